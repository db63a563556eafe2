"""Backends of a llama.cpp install as devices: its own libraries, driven through their C functions.

A library is `libggml-<name>[-variant].so` with the `libggml-base.so` beside it. Nothing is loaded
on import, nothing is compiled, and no code of ggml is here: only its public functions are called
(ggml.h, ggml-backend.h), through ctypes, which lets go of Python's lock meanwhile.

c_api        the C functions and structures that are used, as tables
base         libggml-base: found, opened, checked against the tables
library      a backend library and the functions it registers
op_params    what ggml keeps of an operation's parameters, in its 16 words
tensors      Tensor -> ggml tensor: contexts, strides, sources, views
memory       memory of ours that the library may use as it is
buffer       buffers and buffer types
rules        what a device can do, asked of the library
events       what was queued on a device, and when it was seen to be done
split_graph  one split as a ggml graph, built once
backend      a stream that computes splits
device       a device: its facts, memory and streams
reg          a family of devices
names        names beside those of the built-in backends
rpc          devices of other machines
probe        a library tried in a process of its own: what it is, or how it ended
kind         what the loader asks of such libraries
"""
