// Types with blocks of 256 as float32. Built for the types that TYPE_... macros name.
//
// values8_T(row, i) and add_block_T(...) as in blocks32.cl. Block layouts: ggml-common.h.
//
// q2_K, q3_K: each half of a block has four runs of 32 elements, which share 32 bytes of 2-bit
// numbers; 16 elements share a scale. q4_K, q5_K: two runs of 32 share 32 bytes of 4-bit numbers; a
// run has a 6-bit scale and a 6-bit minimum.

#define BLOCK_AND_X \
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3

#if defined(TYPE_Q2_K)
// uchar scale[16], low half scale, high half minimum; uchar q[64]; half d, dmin
static float8 values8_q2_K(global const char *row, uint i)
{
    global const char *block = row + (i / 256) * 84;
    const uint half_id = i % 256 / 128, run = i % 128 / 32, place = i % 32;
    const uchar8 bytes = READ_UCHAR8(block + 16 + half_id * 32 + place);
    const uchar8 q = bytes >> (uchar8)(run * 2) & (uchar8)3;
    const uchar scale = block[i % 256 / 16];
    const float d = finite1_f16(block + 80) * (scale & 15);
    return convert_float8(q) * d - finite1_f16(block + 82) * (scale >> 4);
}
#endif

#if defined(TYPE_Q3_K)
// uchar high[32], q[64], scale[12]; half d; value d * (scale - 32) * (q - 4). Bit `run of the
// block` of high byte j is the third bit. Scales have 4 bits in bytes 0..7 and 2 in bytes 8..11.
static float8 values8_q3_K(global const char *row, uint i)
{
    global const char *block = row + (i / 256) * 110;
    global const uchar *scales = (global const uchar *)block + 96;
    const uint half_id = i % 256 / 128, run = i % 128 / 32, place = i % 32;
    const uint i_scale = i % 256 / 16;
    const uchar8 low = READ_UCHAR8(block + 32 + half_id * 32 + place) >> (uchar8)(run * 2);
    const uchar8 high = READ_UCHAR8(block + place) >> (uchar8)(half_id * 4 + run);
    const uchar8 q = low & (uchar8)3 | (high & (uchar8)1) << (uchar8)2;
    const int scale_low = scales[i_scale % 8] >> (i_scale / 8 * 4) & 15;
    const int scale_high = scales[8 + i_scale % 4] >> (i_scale / 4 * 2) & 3;
    const float d = finite1_f16(block + 108) * ((scale_low | scale_high << 4) - 32);
    return (convert_float8(q) - 4.0f) * d;
}
#endif

#if defined(TYPE_Q4_K) || defined(TYPE_Q5_K)
// Scale and minimum of a run: runs 0..3 have theirs in the low 6 bits of bytes 0..3 and 4..7, the
// others 4 bits in bytes 8..11 and the 2 high ones above those.
static uint2 scale_and_min(global const uchar *scales, uint run)
{
    if (run < 4) return (uint2)(scales[run] & 63, scales[run + 4] & 63);
    const uint low = scales[run + 4];
    return (uint2)(low & 15 | scales[run - 4] >> 6 << 4, low >> 4 | scales[run] >> 6 << 4);
}

// d * scale and dmin * minimum of a run; a block starts with half d, dmin; uchar scale[12].
static float2 step_and_offset(global const char *block, uint run)
{
    const uint2 pair = scale_and_min((global const uchar *)block + 4, run);
    return (float2)(finite1_f16(block) * pair.x, finite1_f16(block + 2) * pair.y);
}
#endif

#if defined(TYPE_Q4_K)
// half d, dmin; uchar scale[12], q[128]
static uchar8 numbers8_q4_K(global const char *block, uint run, uint place)
{
    const uchar8 bytes = READ_UCHAR8(block + 16 + run / 2 * 32 + place);
    return bytes >> (uchar8)(run % 2 * 4) & (uchar8)15;
}

static float8 values8_q4_K(global const char *row, uint i)
{
    global const char *block = row + (i / 256) * 144;
    const uint run = i % 256 / 32;
    const float2 scale = step_and_offset(block, run);
    return convert_float8(numbers8_q4_K(block, run, i % 32)) * scale.x - scale.y;
}

static float8 add_block_q4_K(BLOCK_AND_X)
{
    global const char *block = row + (i_block / 8) * 144;
    const uint run = i_block % 8;
    const float2 scale = step_and_offset(block, run);
    float8 products = convert_float8(numbers8_q4_K(block, run, 0)) * x0;
    products += convert_float8(numbers8_q4_K(block, run, 8)) * x1;
    products += convert_float8(numbers8_q4_K(block, run, 16)) * x2;
    products += convert_float8(numbers8_q4_K(block, run, 24)) * x3;
    return sum + scale.x * products - scale.y * ((x0 + x1) + (x2 + x3));
}
#endif

#if defined(TYPE_Q5_K)
// half d, dmin; uchar scale[12], high[32], q[128]; bit `run` of high byte j is the fifth bit
static uchar8 numbers8_q5_K(global const char *block, uint run, uint place)
{
    const uchar8 bytes = READ_UCHAR8(block + 48 + run / 2 * 32 + place);
    const uchar8 high = READ_UCHAR8(block + 16 + place) >> (uchar8)run & (uchar8)1;
    return bytes >> (uchar8)(run % 2 * 4) & (uchar8)15 | high << (uchar8)4;
}

static float8 values8_q5_K(global const char *row, uint i)
{
    global const char *block = row + (i / 256) * 176;
    const uint run = i % 256 / 32;
    const float2 scale = step_and_offset(block, run);
    return convert_float8(numbers8_q5_K(block, run, i % 32)) * scale.x - scale.y;
}

static float8 add_block_q5_K(BLOCK_AND_X)
{
    global const char *block = row + (i_block / 8) * 176;
    const uint run = i_block % 8;
    const float2 scale = step_and_offset(block, run);
    float8 products = convert_float8(numbers8_q5_K(block, run, 0)) * x0;
    products += convert_float8(numbers8_q5_K(block, run, 8)) * x1;
    products += convert_float8(numbers8_q5_K(block, run, 16)) * x2;
    products += convert_float8(numbers8_q5_K(block, run, 24)) * x3;
    return sum + scale.x * products - scale.y * ((x0 + x1) + (x2 + x3));
}
#endif

#if defined(TYPE_Q6_K)
// uchar low[128], high[64]; char scale[16]; half d; value d * scale * (q - 32), q = 4 low bits and
// 2 high ones. Each half of a block is four runs of 32: two share 32 low bytes, all four 32 high.
static float8 values8_q6_K(global const char *row, uint i)
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
