// Rows of a weight matrix as float32. Built once a type: WEIGHT_F32, _F16, _Q8_0, _Q4_0, _Q4_1
// or _Q6_K.
//
// weight8(row, i)   elements i..i+7, i a multiple of 8
// weight1(row, i)   one element (plain types only: a quantised row is whole blocks of 32 or 256)
// add_block(...)    sum + partial products of elements 32 * i_block.. with 32 elements of x
//
// Block layouts: ggml-common.h.

#if defined(WEIGHT_F32)
#define weight8(row, i) load8_f32(row, i)
#define weight1(row, i) load1_f32(row, i)
#elif defined(WEIGHT_F16)
#define weight8(row, i) finite8_f16((row) + (i) * 2L)
#define weight1(row, i) finite1_f16((row) + (i) * 2L)
#else
#define weight1(row, i) 0.0f
#endif

#if defined(WEIGHT_Q6_K)
// uchar low[128], high[64]; char scale[16]; half d; value d * scale * (q - 32), q = 4 low bits and
// 2 high ones. Each half of a block is four runs of 32: two share 32 low bytes, all four 32 high.
static float8 weight8(global const char *row, uint i)
{
    global const char *block = row + (i / 256) * 210;
    const uint half_id = i % 256 / 128, run = i % 128 / 32, place = i % 32;
    const uchar8 low = READ_UCHAR8(block + half_id * 64 + run % 2 * 32 + place);
    const uchar8 high = READ_UCHAR8(block + 128 + half_id * 32 + place);
    const uchar8 q_low = low >> (uchar8)(run / 2 * 4) & (uchar8)15;
    const uchar8 q_high = high >> (uchar8)(run * 2) & (uchar8)3;
    const float d = finite1_f16(block + 208) * block[192 + i % 256 / 16];
    return (convert_float8(q_low | q_high << (uchar8)4) - 32.0f) * d;
}
#endif

#if defined(WEIGHT_F32) || defined(WEIGHT_F16) || defined(WEIGHT_Q6_K)
static float8 add_block(
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3)
{
    const uint i = i_block * 32;
    sum += weight8(row, i) * x0;
    sum += weight8(row, i + 8) * x1;
    sum += weight8(row, i + 16) * x2;
    return sum + weight8(row, i + 24) * x3;
}
#endif

#if defined(WEIGHT_Q8_0)
// half d; char q[32]
static float8 weight8(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 34;
    float d = finite1_f16(block);
    return convert_float8(READ_CHAR8(block + 2 + i % 32)) * d;
}

static float8 add_block(
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3)
{
    global const char *block = row + i_block * 34;
    const float d = finite1_f16(block);
    float8 products = convert_float8(READ_CHAR8(block + 2)) * x0;
    products += convert_float8(READ_CHAR8(block + 10)) * x1;
    products += convert_float8(READ_CHAR8(block + 18)) * x2;
    products += convert_float8(READ_CHAR8(block + 26)) * x3;
    return sum + d * products;
}
#endif

#if defined(WEIGHT_Q4_0) || defined(WEIGHT_Q4_1)
// Elements 0..15 of a block are the low nibbles of its bytes, 16..31 the high ones.
static float8 nibbles8(global const char *q, uint i)
{
    uchar8 bytes = READ_UCHAR8(q + i % 16);
    return convert_float8(i % 32 < 16 ? bytes & (uchar8)15 : bytes >> (uchar8)4);
}

// The sum of the products of a block's nibbles, unscaled, with 32 elements of x.
static float8 nibble_products(
    global const char *q, float8 x0, float8 x1, float8 x2, float8 x3)
{
    const uchar8 a = READ_UCHAR8(q), b = READ_UCHAR8(q + 8);
    float8 products = convert_float8(a & (uchar8)15) * x0;
    products += convert_float8(b & (uchar8)15) * x1;
    products += convert_float8(a >> (uchar8)4) * x2;
    return products + convert_float8(b >> (uchar8)4) * x3;
}
#endif

#if defined(WEIGHT_Q4_0)
// half d; uchar q[16]; value d * (q - 8)
static float8 weight8(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 18;
    float d = finite1_f16(block);
    return (nibbles8(block + 2, i) - 8.0f) * d;
}

static float8 add_block(
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3)
{
    global const char *block = row + i_block * 18;
    const float d = finite1_f16(block);
    const float8 products = nibble_products(block + 2, x0, x1, x2, x3);
    return sum + d * (products - 8.0f * ((x0 + x1) + (x2 + x3)));
}
#endif

#if defined(WEIGHT_Q4_1)
// half d, m; uchar q[16]; value d * q + m
static float8 weight8(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 20;
    float d = finite1_f16(block);
    float m = finite1_f16(block + 2);
    return nibbles8(block + 4, i) * d + m;
}

static float8 add_block(
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3)
{
    global const char *block = row + i_block * 20;
    const float d = finite1_f16(block);
    const float m = finite1_f16(block + 2);
    const float8 products = nibble_products(block + 4, x0, x1, x2, x3);
    return sum + m * ((x0 + x1) + (x2 + x3)) + d * products;
}
#endif
