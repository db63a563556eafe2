// Types with blocks of 32 as float32. Built for the types that TYPE_... macros name.
//
// values8_T(row, i)   elements i..i+7, i a multiple of 8
// add_block_T(...)    where there is one: sum + partial products of elements 32 * i_block.. with
//                     32 elements of x; the block's scale is applied once
//
// Block layouts: ggml-common.h. Of 4-bit numbers elements 0..15 are the low halves of the bytes,
// 16..31 the high ones; fifth bits are a word, bit j for element j.

#define BLOCK_AND_X \
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3

// Eight numbers of 4 bits, from i on.
static uchar8 nibbles8(global const char *q, uint i)
{
    const uchar8 bytes = READ_UCHAR8(q + i % 16);
    return i % 32 < 16 ? bytes & (uchar8)15 : bytes >> (uchar8)4;
}

// The eight bits of a byte as 0 or 16.
static uchar8 fifth_bits8(uchar bits)
{
    const char8 is_set = ((uchar8)bits & (uchar8)(1, 2, 4, 8, 16, 32, 64, 128)) != (uchar8)0;
    return as_uchar8(is_set) & (uchar8)16;
}

// The sum of the products of a block's 4-bit numbers, unscaled, with 32 elements of x.
static float8 nibble_products(global const char *q, float8 x0, float8 x1, float8 x2, float8 x3)
{
    const uchar8 a = READ_UCHAR8(q), b = READ_UCHAR8(q + 8);
    float8 products = convert_float8(a & (uchar8)15) * x0;
    products += convert_float8(b & (uchar8)15) * x1;
    products += convert_float8(a >> (uchar8)4) * x2;
    return products + convert_float8(b >> (uchar8)4) * x3;
}

// The same for numbers of 5 bits; `high` are the four bytes of fifth bits.
static float8 five_bit_products(
    global const char *high, global const char *q, float8 x0, float8 x1, float8 x2, float8 x3)
{
    const uchar8 a = READ_UCHAR8(q), b = READ_UCHAR8(q + 8);
    float8 products = convert_float8(a & (uchar8)15 | fifth_bits8(high[0])) * x0;
    products += convert_float8(b & (uchar8)15 | fifth_bits8(high[1])) * x1;
    products += convert_float8(a >> (uchar8)4 | fifth_bits8(high[2])) * x2;
    return products + convert_float8(b >> (uchar8)4 | fifth_bits8(high[3])) * x3;
}

#if defined(TYPE_Q8_0)
// half d; char q[32]; value d * q
static float8 values8_q8_0(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 34;
    return convert_float8(READ_CHAR8(block + 2 + i % 32)) * finite1_f16(block);
}

static float8 add_block_q8_0(BLOCK_AND_X)
{
    global const char *block = row + i_block * 34;
    float8 products = convert_float8(READ_CHAR8(block + 2)) * x0;
    products += convert_float8(READ_CHAR8(block + 10)) * x1;
    products += convert_float8(READ_CHAR8(block + 18)) * x2;
    products += convert_float8(READ_CHAR8(block + 26)) * x3;
    return sum + finite1_f16(block) * products;
}
#endif

#if defined(TYPE_Q4_0)
// half d; uchar q[16]; value d * (q - 8)
static float8 values8_q4_0(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 18;
    return (convert_float8(nibbles8(block + 2, i)) - 8.0f) * finite1_f16(block);
}

static float8 add_block_q4_0(BLOCK_AND_X)
{
    global const char *block = row + i_block * 18;
    const float8 products = nibble_products(block + 2, x0, x1, x2, x3);
    return sum + finite1_f16(block) * (products - 8.0f * ((x0 + x1) + (x2 + x3)));
}
#endif

#if defined(TYPE_Q4_1)
// half d, m; uchar q[16]; value d * q + m
static float8 values8_q4_1(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 20;
    const float8 q = convert_float8(nibbles8(block + 4, i));
    return q * finite1_f16(block) + finite1_f16(block + 2);
}

static float8 add_block_q4_1(BLOCK_AND_X)
{
    global const char *block = row + i_block * 20;
    const float8 products = nibble_products(block + 4, x0, x1, x2, x3);
    const float8 total = sum + finite1_f16(block + 2) * ((x0 + x1) + (x2 + x3));
    return total + finite1_f16(block) * products;
}
#endif

#if defined(TYPE_Q5_0)
// half d; uchar high[4], q[16]; value d * (q - 16)
static float8 values8_q5_0(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 22;
    const uchar8 q = nibbles8(block + 6, i) | fifth_bits8(block[2 + i % 32 / 8]);
    return (convert_float8(q) - 16.0f) * finite1_f16(block);
}

static float8 add_block_q5_0(BLOCK_AND_X)
{
    global const char *block = row + i_block * 22;
    const float8 products = five_bit_products(block + 2, block + 6, x0, x1, x2, x3);
    return sum + finite1_f16(block) * (products - 16.0f * ((x0 + x1) + (x2 + x3)));
}
#endif

#if defined(TYPE_Q5_1)
// half d, m; uchar high[4], q[16]; value d * q + m
static float8 values8_q5_1(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 24;
    const uchar8 q = nibbles8(block + 8, i) | fifth_bits8(block[4 + i % 32 / 8]);
    return convert_float8(q) * finite1_f16(block) + finite1_f16(block + 2);
}

static float8 add_block_q5_1(BLOCK_AND_X)
{
    global const char *block = row + i_block * 24;
    const float8 products = five_bit_products(block + 4, block + 8, x0, x1, x2, x3);
    const float8 total = sum + finite1_f16(block + 2) * ((x0 + x1) + (x2 + x3));
    return total + finite1_f16(block) * products;
}
#endif

#if defined(TYPE_MXFP4)
// uchar e; uchar q[16]; value 2^(e - 127) * a float of 1 sign, 2 exponent and 1 mantissa bits
static float8 values8_mxfp4(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 17;
    const uchar8 q = nibbles8(block + 1, i);
    // Twice the values 0, .5, 1, 1.5, 2, 3, 4, 6 are 0 to 4 and then grow by 2 and by 4.
    const float8 n = convert_float8(q & (uchar8)7);
    const float8 twice = fmax(n, fmax(2.0f * n - 4.0f, 4.0f * n - 16.0f));
    const uint e = (uchar)block[0];
    const float half_scale = as_float(e < 2 ? 0x200000u << e : (e - 1) << 23);
    return as_float8(as_uint8(twice) | convert_uint8(q & (uchar8)8) << 28) * half_scale;
}
#endif

#if defined(TYPE_IQ4_NL)
// half d; uchar q[16]; value d * uneven_steps[q]
static float8 values8_iq4_nl(global const char *row, uint i)
{
    global const char *block = row + (i / 32) * 18;
    uchar q[8];
    vstore8(nibbles8(block + 2, i), 0, q);
    const float8 steps = (float8)(
        uneven_steps[q[0]], uneven_steps[q[1]], uneven_steps[q[2]], uneven_steps[q[3]],
        uneven_steps[q[4]], uneven_steps[q[5]], uneven_steps[q[6]], uneven_steps[q[7]]);
    return steps * finite1_f16(block);
}
#endif
