// Dot products in whole numbers, for CPU devices: weights as they are stored times activations that
// round_rows.cl left as whole numbers. Built for the type that a TYPE_... macro names.
//
// add_whole_T(sums, blocks, x)   adds the products of one block of each of VEC_ROWS rows with x to
//                                the sums of the rows, whose lanes add up to the dot products
//
// Sums of a block's products are exact, and scaled once. Numbers are multiplied as shorts, or as
// bytes where both fit: pairs of products fit an int or a short, and processors have one
// instruction for them. Block layouts: see blocks32.cl and blocks256.cl.

#if defined(DEVICE_CPU)
typedef uchar16 loose_uchar16 __attribute__((aligned(1)));
typedef char16 loose_char16 __attribute__((aligned(1)));
typedef uint loose_uint __attribute__((aligned(1)));
typedef ushort loose_ushort __attribute__((aligned(1)));

#if defined(__AVX2__)
typedef short machine_short16 __attribute__((vector_size(32)));
typedef char machine_char32 __attribute__((vector_size(32)));
// Sums of pairs of products.
static int8 pair_products(short16 a, short16 b)
{
    return __builtin_astype(
        __builtin_ia32_pmaddwd256(
            __builtin_astype(a, machine_short16), __builtin_astype(b, machine_short16)),
        int8);
}

// Sums of four products of numbers of up to 7 bits in w and of 8 bits with a sign in x.
static int8 byte_products(short16 w, short16 x)
{
    const short16 pairs = __builtin_astype(
        __builtin_ia32_pmaddubsw256(
            __builtin_astype(w, machine_char32), __builtin_astype(x, machine_char32)),
        short16);
    return pair_products(pairs, (short16)1);
}
#else
static int8 pair_products(short16 a, short16 b)
{
    return convert_int8(a.even) * convert_int8(b.even) + convert_int8(a.odd) * convert_int8(b.odd);
}

static int8 byte_products(short16 w, short16 x)
{
    return pair_products(w & (short16)255, x << (short16)8 >> (short16)8)
        + pair_products(w >> (short16)8, x >> (short16)8);
}
#endif

// A column of k activations. It has whole numbers q[k], and for each 32 of them the step d and an
// eighth of d * (q0 + q1 + ...). `pairs` are the same numbers as bytes: of each 32 the first and the
// 17th side by side, then the second and the 18th, as 4-bit numbers lie in a byte.
// In memory: char pairs[k]; short q[k]; float step[k / 32], eighth[k / 32].
struct part {
    global const char *pairs;
    global const short *q;
    global const float *step, *eighth;
};

static struct part whole_column(global const char *column, int k)
{
    struct part x;
    x.pairs = column;
    x.q = (global const short *)(column + k);
    x.step = (global const float *)(column + k * 3L);
    x.eighth = x.step + k / 32;
    return x;
}

// The part that is n elements further on.
static struct part move_on(struct part x, int n)
{
    x.pairs += n;
    x.q += n;
    x.step += n / 32;
    x.eighth += n / 32;
    return x;
}

#define EACH_ROW _Pragma("unroll") for (int r = 0; r < VEC_ROWS; r++)

// add_whole_T of a type whose rows have nothing in common.
#define ADD_EACH_ROW(T) \
static void add_whole_##T(float8 *sums, global const char *const *blocks, struct part x) \
{ \
    EACH_ROW sums[r] = add_block_whole_##T(sums[r], blocks[r], x); \
}

// Where blocks begin with half floats those of all rows are converted at once. Each is then read
// from memory, by the instruction that multiplies with it: taking them out of a vector costs more,
// which is what compilers do that see where they come from.
#define THROUGH_MEMORY(v) __asm__("" : "+m"(v))

#if defined(TYPE_Q4_0)
static void read_scales(global const char *const *blocks, float step, float4 *scales)
{
    const ushort4 halves = (ushort4)(
        *(global const ushort *)blocks[0], *(global const ushort *)blocks[1],
        *(global const ushort *)blocks[2], *(global const ushort *)blocks[3]);
    *scales = finite8_of((ushort8)(halves, halves)).lo * step;
    THROUGH_MEMORY(*scales);
}
#endif

#if defined(TYPE_Q4_1)
// The scale times `step` and the minimum of one row after the other.
static void read_scales_and_mins(global const char *const *blocks, float step, float8 *scales)
{
    const uint4 words = (uint4)(
        *(global const loose_uint *)blocks[0], *(global const loose_uint *)blocks[1],
        *(global const loose_uint *)blocks[2], *(global const loose_uint *)blocks[3]);
    const float8 factors = (float8)(step, 1, step, 1, step, 1, step, 1);
    *scales = finite8_of(as_ushort8(words)) * factors;
    THROUGH_MEMORY(*scales);
}
#endif

static short16 bytes16(global const char *p)
{
    return as_short16(convert_ushort16(*(global const loose_uchar16 *)p));
}

static int8 times16(short16 w, struct part x, int at)
{
    return pair_products(w, *(global const loose_short16 *)(x.q + at));
}

// 32 numbers of 4 bits as bytes, in the order of `pairs`.
static short16 nibble_pairs(global const char *q)
{
    const short16 bytes = bytes16(q);
    return (bytes | bytes << (short16)4) & (short16)0x0f0f;
}

static short16 pairs_of(struct part x)
{
    return *(global const loose_short16 *)x.pairs;
}

// -16 where a bit is not set.
static short16 less_16_unless(ushort bits)
{
    const short16 each = (short16)(
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    return ((short16)as_short(bits) & each) == (short16)0 ? (short16)-16 : (short16)0;
}

// The sum of the products of 5-bit numbers less 16 with their 32 activations; `high` are their fifth
// bits.
static int8 five_bits_times(global const char *high, global const char *q, struct part x)
{
    const short16 bytes = bytes16(q);
    const short16 low = (bytes & (short16)15) + less_16_unless(*(global const loose_ushort *)high);
    const short16 up =
        (bytes >> (short16)4) + less_16_unless(*(global const loose_ushort *)(high + 2));
    return times16(low, x, 0) + times16(up, x, 16);
}

#if defined(TYPE_Q8_0)
static float8 add_block_whole_q8_0(float8 sum, global const char *block, struct part x)
{
    global const loose_char16 *q = (global const loose_char16 *)(block + 2);
    const int8 products =
        times16(convert_short16(q[0]), x, 0) + times16(convert_short16(q[1]), x, 16);
    return sum + convert_float8(products) * (spread_f16(block) * *x.step);
}
ADD_EACH_ROW(q8_0)
#endif

#if defined(TYPE_Q4_0)
static void add_whole_q4_0(float8 *sums, global const char *const *blocks, struct part x)
{
    float4 scales;
    read_scales(blocks, *x.step, &scales);
    const short16 pairs = pairs_of(x);
    const int8 eight_times = byte_products((short16)0x0808, pairs);
    EACH_ROW {
        const int8 products = byte_products(nibble_pairs(blocks[r] + 2), pairs) - eight_times;
        sums[r] += convert_float8(products) * ((const float *)&scales)[r];
    }
}
#endif

#if defined(TYPE_Q4_1)
static void add_whole_q4_1(float8 *sums, global const char *const *blocks, struct part x)
{
    float8 scales;
    read_scales_and_mins(blocks, *x.step, &scales);
    const short16 pairs = pairs_of(x);
    EACH_ROW {
        const int8 products = byte_products(nibble_pairs(blocks[r] + 4), pairs);
        const float scale = ((const float *)&scales)[2 * r];
        const float8 total = sums[r] + ((const float *)&scales)[2 * r + 1] * (float8)*x.eighth;
        sums[r] = total + convert_float8(products) * scale;
    }
}
#endif

#if defined(TYPE_Q5_0)
static float8 add_block_whole_q5_0(float8 sum, global const char *block, struct part x)
{
    const int8 products = five_bits_times(block + 2, block + 6, x);
    return sum + convert_float8(products) * (spread_f16(block) * *x.step);
}
ADD_EACH_ROW(q5_0)
#endif

#if defined(TYPE_Q5_1)
static float8 add_block_whole_q5_1(float8 sum, global const char *block, struct part x)
{
    const int8 products = five_bits_times(block + 4, block + 8, x);
    // five_bits_times took 16 from each number.
    const float8 scale = spread_f16(block);
    const float8 total = sum + (spread_f16(block + 2) + 16.0f * scale) * *x.eighth;
    return total + convert_float8(products) * (scale * *x.step);
}
ADD_EACH_ROW(q5_1)
#endif

#if defined(TYPE_Q4_K) || defined(TYPE_Q5_K)
// Steps and minimums of the eight runs, as numbers of 6 bits.
static float8 six_bit_steps(global const char *packed)
{
    global const loose_uint *words = (global const loose_uint *)packed;
    const uint2 steps = (uint2)(
        words[0] & 0x3f3f3f3fu, (words[2] & 0x0f0f0f0fu) | (words[0] >> 6 & 0x03030303u) << 4);
    return convert_float8(as_uchar8(steps));
}

static float8 six_bit_mins(global const char *packed)
{
    global const loose_uint *words = (global const loose_uint *)packed;
    const uint2 mins = (uint2)(
        words[1] & 0x3f3f3f3fu, (words[2] >> 4 & 0x0f0f0f0fu) | (words[1] >> 6 & 0x03030303u) << 4);
    return convert_float8(as_uchar8(mins));
}

// What the minimums of a block take away, in lanes.
static float8 less_mins(float8 sum, global const char *block, struct part x)
{
    const float8 mins = six_bit_mins(block + 4) * (spread_f16(block + 2) * 8.0f);
    return sum - mins * *(global const loose_float8 *)x.eighth;
}
#endif

#define ADD_SCALED(products, scale) sum += convert_float8(products) * (scale)

#if defined(TYPE_Q4_K)
#define ADD_RUNS_Q4_K(j, low_scale, high_scale) { \
    const short16 a = bytes16(block + 16 + j * 32), b = bytes16(block + 32 + j * 32); \
    ADD_SCALED(times16(a & (short16)15, x, j * 64) + times16(b & (short16)15, x, j * 64 + 16), \
        low_scale); \
    ADD_SCALED( \
        times16(a >> (short16)4, x, j * 64 + 32) + times16(b >> (short16)4, x, j * 64 + 48), \
        high_scale); \
}

static float8 add_block_whole_q4_K(float8 sum, global const char *block, struct part x)
{
    const float8 steps = six_bit_steps(block + 4) * (spread_f16(block) * *x.step);
    sum = less_mins(sum, block, x);
    ADD_RUNS_Q4_K(0, steps.s0, steps.s1)
    ADD_RUNS_Q4_K(1, steps.s2, steps.s3)
    ADD_RUNS_Q4_K(2, steps.s4, steps.s5)
    ADD_RUNS_Q4_K(3, steps.s6, steps.s7)
    return sum;
}
ADD_EACH_ROW(q4_K)
#endif

#if defined(TYPE_Q5_K)
// Bit `run` of each byte as 0 or 16.
static short16 fifth_bit(short16 high, int run)
{
    return (run < 4 ? high << (short16)(4 - run) : high >> (short16)(run - 4)) & (short16)16;
}

#define ADD_RUN_Q5_K(j, SHIFTED, run, scale) \
    ADD_SCALED( \
        times16(SHIFTED(a) | fifth_bit(high_a, run), x, run * 32) \
            + times16(SHIFTED(b) | fifth_bit(high_b, run), x, run * 32 + 16), \
        scale);
#define LOW_NIBBLE(bytes) ((bytes) & (short16)15)
#define HIGH_NIBBLE(bytes) ((bytes) >> (short16)4)
#define ADD_RUNS_Q5_K(j, low_scale, high_scale) { \
    const short16 a = bytes16(block + 48 + j * 32), b = bytes16(block + 64 + j * 32); \
    ADD_RUN_Q5_K(j, LOW_NIBBLE, (2 * j), low_scale) \
    ADD_RUN_Q5_K(j, HIGH_NIBBLE, (2 * j + 1), high_scale) \
}

static float8 add_block_whole_q5_K(float8 sum, global const char *block, struct part x)
{
    const float8 steps = six_bit_steps(block + 4) * (spread_f16(block) * *x.step);
    const short16 high_a = bytes16(block + 16), high_b = bytes16(block + 32);
    sum = less_mins(sum, block, x);
    ADD_RUNS_Q5_K(0, steps.s0, steps.s1)
    ADD_RUNS_Q5_K(1, steps.s2, steps.s3)
    ADD_RUNS_Q5_K(2, steps.s4, steps.s5)
    ADD_RUNS_Q5_K(3, steps.s6, steps.s7)
    return sum;
}
ADD_EACH_ROW(q5_K)
#endif

#if defined(TYPE_Q6_K)
// Sixteen numbers of each of the four runs of a half, less 32; `part` is 0 or 1, their scales are
// four apart: lanes `part`, part + 2, ... of `steps`.
#define TIMES_Q6_K(low, high, run) \
    times16(((low) | ((high) & (short16)48)) - (short16)32, x, at + run * 32)

#define ADD_PART_Q6_K(half_id, part, scale0, scale1, scale2, scale3) { \
    const int at = half_id * 128 + part * 16; \
    const short16 a = bytes16(block + half_id * 64 + part * 16); \
    const short16 b = bytes16(block + half_id * 64 + 32 + part * 16); \
    const short16 high = bytes16(block + 128 + half_id * 32 + part * 16); \
    ADD_SCALED(TIMES_Q6_K(a & (short16)15, high << (short16)4, 0), scale0); \
    ADD_SCALED(TIMES_Q6_K(b & (short16)15, high << (short16)2, 1), scale1); \
    ADD_SCALED(TIMES_Q6_K(a >> (short16)4, high, 2), scale2); \
    ADD_SCALED(TIMES_Q6_K(b >> (short16)4, high >> (short16)2, 3), scale3); \
}

#define ADD_HALF_Q6_K(half_id) { \
    const float8 steps = convert_float8(READ_CHAR8(block + 192 + half_id * 8)) * factor; \
    ADD_PART_Q6_K(half_id, 0, steps.s0, steps.s2, steps.s4, steps.s6) \
    ADD_PART_Q6_K(half_id, 1, steps.s1, steps.s3, steps.s5, steps.s7) \
}

static float8 add_block_whole_q6_K(float8 sum, global const char *block, struct part x)
{
    const float8 factor = spread_f16(block + 208) * *x.step;
    ADD_HALF_Q6_K(0)
    ADD_HALF_Q6_K(1)
    return sum;
}
ADD_EACH_ROW(q6_K)
#endif
#endif
