// Rows of a weight matrix as float32. Built once a type: WEIGHT_F32, _F16, _Q8_0, _Q4_0 or _Q4_1.
//
// weight8(row, i) gives elements i..i+7, i a multiple of 8; weight1 one element (plain types only:
// a quantised row is a whole number of blocks of 32). Block layouts: ggml-common.h.

#if defined(WEIGHT_F32)
#define weight8(row, i) load8_f32(row, i)
#define weight1(row, i) load1_f32(row, i)
#elif defined(WEIGHT_F16)
#define weight8(row, i) load8_f16(row, i)
#define weight1(row, i) load1_f16(row, i)
#else
#define weight1(row, i) 0.0f
#endif

#if defined(WEIGHT_Q8_0)
// half d; char q[32]
static float8 weight8(global const char *row, int i)
{
    global const char *block = row + (i / 32) * 34;
    float d = vload_half(0, (global const half *)block);
    return convert_float8(vload8(0, block + 2 + i % 32)) * d;
}
#endif

#if defined(WEIGHT_Q4_0) || defined(WEIGHT_Q4_1)
// Elements 0..15 of a block are the low nibbles of its bytes, 16..31 the high ones.
static float8 nibbles8(global const char *q, int i)
{
    uchar8 bytes = vload8(0, (global const uchar *)q + i % 16);
    return convert_float8(i % 32 < 16 ? bytes & (uchar8)15 : bytes >> (uchar8)4);
}
#endif

#if defined(WEIGHT_Q4_0)
// half d; uchar q[16]; value d * (q - 8)
static float8 weight8(global const char *row, int i)
{
    global const char *block = row + (i / 32) * 18;
    float d = vload_half(0, (global const half *)block);
    return (nibbles8(block + 2, i) - 8.0f) * d;
}
#endif

#if defined(WEIGHT_Q4_1)
// half d, m; uchar q[16]; value d * q + m
static float8 weight8(global const char *row, int i)
{
    global const char *block = row + (i / 32) * 20;
    float d = vload_half(0, (global const half *)block);
    float m = vload_half(1, (global const half *)block);
    return fma(nibbles8(block + 4, i), (float8)d, (float8)m);
}
#endif
