"""Devices that compute nothing: any number, any facts, a virtual clock.

presets  facts of devices as real backends report them: cpu, rpc, cuda, vulkan
virtual  "NAME:TYPE:FREE_MIB[:key=value,..]" to facts
reg      NullReg, NullDevice, NullBackend, NullBuffer
clock    VirtualClock: time that only advances by the cost of work
"""
