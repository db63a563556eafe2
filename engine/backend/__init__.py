"""The contract between the scheduler and the backends.

interface    BackendReg, Device, BufferType, Buffer, Backend, Event: what a backend implements
registry     register and find devices; knows no backend by name
host_buffer  ordinary memory as a buffer, aligned or mapped
transfer     blocking copies between places (SCHED.md 3.6)
computer     what the operating system says of this computer
alloc        graph allocator: plan (pure) and apply
"""
