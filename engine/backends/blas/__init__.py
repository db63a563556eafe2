"""The BLAS backend: large products of matrices through numpy's BLAS, in the CPU's memory.

reg       create(): one device, or the reason why there is none
library   the BLAS that numpy calls: its name, how many threads of its own it may use
rules     BlasRules: every product ggml's would take, or only those where it wins
backend   BlasBackend: the command stream
program   a split as products whose arrays were made once
workers   the threads that products are shared among, each with BLAS for itself
"""
