"""Devices that compute nothing: any number, any facts, a virtual clock.

rules    CpuRules, BlasRules: what a table alone cannot say
presets  facts of devices as real backends report them: cpu, blas, plain, rpc, cuda, vulkan
virtual  "NAME:TYPE:FREE_MIB[:key=value,..]" to facts
reg      NullReg, NullDevice, NullBackend, NullBuffer
clock    VirtualClock: time that only advances by the cost of work
"""
