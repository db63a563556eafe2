// SET_ROWS: item = `rows_per_item` rows of the source, written where the ids say. Built once a
// table type, which the build options name by TARGET_... macros.
//
// Blocks are rounded as ggml's quantize_row_*_ref do. Rows may have one element (a transposed V
// cache), hence several rows an item.

#if defined(TARGET_BF16)
// The upper halves of rounded floats.
static void store1_bf16(float v, global char *row, long i)
{
    AT(ushort, row, i * 2)[0] = as_uint(round_bf16_8(v).s0) >> 16;
}

static void store8_bf16(float8 v, global char *row, long i)
{
    vstore8(convert_ushort8(as_uint8(round_bf16_8(v)) >> 16), 0, AT(ushort, row, i * 2));
}
#define store8 store8_bf16
#define store1 store1_bf16
#elif defined(TARGET_F16)
#define store8 store8_f16
#define store1 store1_f16
#elif defined(TARGET_F32)
#define store8 store8_f32
#define store1 store1_f32
#endif

#if defined(store8)
static void store_row(global const char *x, int ne0, global char *d)
{
    int i = 0;
    for (; i + 8 <= ne0; i += 8) store8(load8_f32(x, i), d, i);
    for (; i < ne0; i++) store1(load1_f32(x, i), d, i);
}
#endif

#if defined(TARGET_Q8_0)
// half d; char q[32]
static void store_row(global const char *x, int ne0, global char *d)
{
    for (int begin = 0; begin < ne0; begin += 32, d += 34) {
        const float largest = largest_of(x, begin, 32);
        const float inverse = inverse_of_q8(largest);
        store1_f16(largest / 127.0f, d, 0);
        for (int i = 0; i < 32; i += 8) {
            const float8 q = whole8(load8_f32(x, begin + i) * inverse);
            vstore8(convert_char8(q), 0, (global char *)(d + 2 + i));
        }
    }
}
#endif

#if defined(TARGET_Q4_0) || defined(TARGET_Q5_0)
// half d; the element farthest from zero becomes q = 0, value -8 d or -16 d
#define HAS_MIN 0
#elif defined(TARGET_Q4_1) || defined(TARGET_Q5_1)
// half d, m; the smallest element becomes q = 0, value m
#define HAS_MIN 1
#endif

#if defined(TARGET_Q5_0) || defined(TARGET_Q5_1)
#define HAS_FIFTH_BITS 1
#define HIGHEST 31
#else
#define HAS_FIFTH_BITS 0
#define HIGHEST 15
#endif

#if defined(HAS_MIN)
// What is taken from each element of a block before it is divided by the step.
static float base_of(global const char *x)
{
    float smallest = load1_f32(x, 0);
    for (int i = 1; i < 32; i++) smallest = fmin(smallest, load1_f32(x, i));
    return HAS_MIN ? smallest : 0.0f;
}

static float step_of(global const char *x, float base)
{
    float farthest = 0;
    for (int i = 0; i < 32; i++) {
        const float v = load1_f32(x, i) - base;
        if (fabs(v) > fabs(farthest)) farthest = v;
    }
    return HAS_MIN ? farthest / HIGHEST : farthest / -(HIGHEST / 2 + 1);
}

// Numbers of a block: low halves of bytes are elements 0..15, high ones 16..31; fifth bits are a
// word, bit j for element j.
static void store_block(global const char *x, global char *d)
{
    const float base = base_of(x), step = step_of(x, base);
    const float inverse = step != 0.0f ? 1.0f / step : 0.0f;
    const float shift = HAS_MIN ? 0.5f : HIGHEST / 2 + 1.5f;
    uchar q[32];
    for (int i = 0; i < 32; i += 8) {
        const float8 v = (load8_f32(x, i) - base) * inverse + shift;
        vstore8(min(convert_uchar8(v), (uchar8)HIGHEST), 0, q + i);
    }
    store1_f16(step, d, 0);
    if (HAS_MIN) store1_f16(base, d, 1);
    d += 2 + 2 * HAS_MIN;
    for (int i = 0; HAS_FIFTH_BITS && i < 32; i += 8) {
        uchar bits = 0;
        for (int j = 0; j < 8; j++) bits |= q[i + j] >> 4 << j;
        *d++ = bits;
    }
    for (int i = 0; i < 16; i += 8) {
        const uchar8 low = vload8(0, q + i) & (uchar8)15, high = vload8(0, q + i + 16);
        vstore8(low | high << (uchar8)4, 0, (global uchar *)(d + i));
    }
}

static void store_row(global const char *x, int ne0, global char *d)
{
    const int block_bytes = 18 + 2 * HAS_MIN + 4 * HAS_FIFTH_BITS;
    for (int begin = 0; begin < ne0; begin += 32, d += block_bytes) store_block(x + begin * 4L, d);
}
#endif

#if defined(TARGET_IQ4_NL)
#define LEAST 1e-15f  // GROUP_MAX_EPS

// The number whose step is nearest.
static uchar nearest_step(float x)
{
    uchar i = 0;
    for (int j = 0; j < 15; j++) i += x >= 0.5f * (uneven_steps[j] + uneven_steps[j + 1]);
    return i;
}

// half d; uchar q[16]. The element farthest from zero gets the outermost step; then d is the one
// with the smallest error, elements weighted by their squares.
static void store_block(global const char *x, global char *d)
{
    float farthest = 0;
    for (int i = 0; i < 32; i++) {
        const float v = load1_f32(x, i);
        if (fabs(v) > fabs(farthest)) farthest = v;
    }
    const float inverse = fabs(farthest) < LEAST ? 0.0f : uneven_steps[0] / farthest;
    float with_x = 0, with_step = 0;
    uchar q[32];
    for (int i = 0; i < 32; i++) {
        const float v = load1_f32(x, i);
        q[i] = nearest_step(v * inverse);
        const float step = uneven_steps[q[i]];
        with_x += v * v * step * v;
        with_step += v * v * step * step;
    }
    store1_f16(inverse != 0.0f && with_step > 0.0f ? with_x / with_step : 0.0f, d, 0);
    for (int i = 0; i < 16; i++) d[2 + i] = q[i] | q[16 + i] << 4;
}

static void store_row(global const char *x, int ne0, global char *d)
{
    for (int begin = 0; begin < ne0; begin += 32, d += 18) store_block(x + begin * 4L, d);
}
#endif

#define SET_ROWS(NAME, ID) \
KERNEL NAME(ITEM \
    global const char *x_buf, ulong x_off, global const char *ids_buf, ulong ids_off, \
    global char *d_buf, ulong d_off, int rows_per_item, int ne0, int ne1, int ne2, int n_rows, \
    int ids_ne1, int ids_ne2, int n_table_rows, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong ids_nb0, ulong ids_nb1, ulong ids_nb2, ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    const long begin = ITEM_ID(0) * (long)rows_per_item; \
    const long end = min(begin + rows_per_item, (long)n_rows); \
    for (long i_row = begin; i_row < end; i_row++) { \
        const long i1 = i_row % ne1, i2 = i_row / ne1 % ne2, i3 = i_row / ((long)ne1 * ne2); \
        const long id = *AT(const ID, ids_buf, ids_off \
            + i1 * ids_nb0 + i2 % ids_ne1 * ids_nb1 + i3 % ids_ne2 * ids_nb2); \
        if (id < 0 || id >= n_table_rows) continue; \
        global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
        global char *d = d_buf + d_off + id * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
        store_row(x, ne0, d); \
    } \
}

SET_ROWS(set_rows_int, int)
SET_ROWS(set_rows_long, long)
