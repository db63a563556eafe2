"""Kernels: what rows of the table point at, (row address, ith, nth) -> status, and their parts.

common       arguments, shares and row addresses
elementwise  ADD, SUB, MUL, DIV, ADD_ID, SCALE, CLAMP, UNARY, GLU
activations  SOFTPLUS, SWIGLU_OAI
norm         NORM, RMS_NORM, SOFT_MAX, SUM_ROWS
sort         ARGSORT
rope         ROPE: angles, then rotation
rows         GET_ROWS, SET_ROWS, CPY, CONT, PAD
arrange      CONCAT, REPEAT, FILL
recurrent    SSM_CONV, SSM_SCAN, GATED_DELTA_NET
quantize     activations to bytes, before a product with quantised weights
matmul       MUL_MAT, MUL_MAT_ID
experts      what MUL_MAT_ID needs before: pairs sorted by expert, columns gathered
products     the inside of a product: some rows times columns
flash_attn   FLASH_ATTN_EXT
dot_rows     rows as they are stored times one column, a kernel a type
unpack       rows to a panel for batches, a kernel a type
convert      rows to floats and back, a kernel a type: plain types and blocks of 32
convert_k    the same for super-blocks of 256
convert_iq   the same for formats with tables and codebooks
traits       which of these a type has
catalog      every kernel by name

References in numpy stand in engine/opcheck/reference.py.
"""
