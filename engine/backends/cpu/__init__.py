"""The CPU backend: kernels compiled by numba, walked by an interpreter that holds no lock.

reg          registration: one device, ordinary memory; imports no compiler
rules        CpuRules: which operations have a kernel
features     what the processor can do, and which kernel variant that selects
table        a split as rows of int64: Program
layout       where a row keeps what
backend      CpuBackend: the command stream
threads      ThreadPool: worker threads that wait in native code
interpreter  the walk over the table, barrier, stop word, clock
jit          how kernels are compiled and cached
codegen      pieces of LLVM code
simd         vector types and the operations kernels are written with
tiles        register tiles over unpacked panels, for batches
row_tiles    register tiles over stored rows, for single columns
kernels      one function an operation
reference    the same operations in plain numpy, for tests
"""
