"""The CPU backend: kernels compiled by numba, walked by an interpreter that holds no lock.

reg          registration: one device, ordinary memory; imports no compiler
repack       CPU_REPACK: memory in which the rows of weights are interleaved
rules        CpuRules: which operations have a kernel
warmup       the kernels that a run needs, known before it begins
features     what the processor can do, and which kernel variant that selects
table        a split as rows of int64: Program
lowering     what each operation becomes: rows of the table
lowering_products  the same for MUL_MAT and MUL_MAT_ID
writer       rows while they are collected, and the scratch memory they share
layout       where a row keeps what
backend      CpuBackend: the command stream
threads      ThreadPool: worker threads that wait in native code
interpreter  the walk over the table, barrier, stop word, ticks
ticks        ticks of rows as times of the host's clock
bus_error    what is said when a mapped file is cut while it is read
jit          how kernels are compiled and cached
old_code     what was kept and is not used any more goes
codegen      pieces of LLVM code
simd         vector types and the operations kernels are written with
tiles        register tiles over unpacked panels, for batches
row_tiles    register tiles over stored rows, for single columns
super_forms  what the bytes of super-blocks of 256 mean
super_tiles  tiles over rows of them
kernels      one function an operation
"""
