"""The contract between the scheduler and the backends.

interface    BackendReg, Device, BufferType, Buffer, Backend, Event: what a backend implements
registry     register and find devices; knows no backend by name
claims       what a device says of itself, checked
loader       load them from files: the best variant of each, a report of every path
library_kind  what the loader asks of one kind of library
search_paths  where it looks, and whom it trusts
apart        a library tried in a process of its own
memory_refusal  a device without memory for something: how that is told
release      give back all, whatever a device says of some
host_buffer  ordinary memory as a buffer, aligned or mapped
transfer     blocking copies between places (SCHED.md 3.6)
computer     what the operating system says of this computer
alloc        graph allocator: plan (pure) and apply
"""
