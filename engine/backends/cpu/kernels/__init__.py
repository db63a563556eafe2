"""Kernels, one table row each: (row address, ith, nth) -> status.

common        arguments, shares and row addresses
elementwise   ADD, SUB, MUL, DIV, SCALE, UNARY, GLU
norm          RMS_NORM, SOFT_MAX
rope          ROPE: angles, then rotation
rows          GET_ROWS, SET_ROWS, CPY, CONT
quantize      activations to bytes, before a product with quantised weights
matmul_quant  MUL_MAT with q4_0, q4_1, q8_0
matmul_float  MUL_MAT with f32, f16
flash_attn    FLASH_ATTN_EXT
catalog       every kernel by name

References in numpy stand in engine/backends/cpu/reference.py.
"""
