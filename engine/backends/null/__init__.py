"""Devices that compute nothing: any number, any facts, virtual time in which they overlap.

rules    CpuRules, BlasRules: what a table alone cannot say
presets  facts of devices as real backends report them: cpu, blas, plain, rpc, cuda, vulkan
costs    DeviceSpeed: how fast a device is, and what operations and copies cost there
virtual  "NAME:TYPE:FREE_MIB[:key=value,..]" to facts and speed
clock    VirtualClock: the host's time; Stream, Link: work in order, one transfer at a time
reg      NullReg, NullDevice, NullBackend, NullBuffer
"""
