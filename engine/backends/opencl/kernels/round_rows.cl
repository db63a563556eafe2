// Activations as a matmul sees them: with quantised weights the elements of a block are rounded to
// d * q, q a whole number in -127..127, with half float or bf16 weights to such floats, as ggml's
// CPU does. Its results are the reference.
//
// round_rows_f16, round_rows_bf16   element by element
// round_rows_q8_0   blocks of 32, d a half float: quantize_row_q8_0, and q8_1 but for the sum of a
//                   block, which is not rounded here
// round_rows_q8_k   blocks of 256, d a float: quantize_row_q8_K
//
// whole_rows_q8_0, whole_rows_q8_k   the same numbers q and d, kept apart: what whole.cl reads
//
// Item = some whole blocks of one row. The result has no gaps.
// Shapes: x [k, rows] in three outer dimensions, d [k, rows]; k is a multiple of the block.

static void store_block(
    global const char *x, long begin, int block, float inverse, float step, global char *d)
{
    for (long i = begin; i < begin + block; i += 8)
        store8_f32(whole8(load8_f32(x, i) * inverse) * step, d, i);
}

#define ROWS \
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, \
    int elems_per_item, int k, int ne1, int ne2, ulong x_nb1, ulong x_nb2, ulong x_nb3

#define SELECT_PART \
    const long row = ITEM_ID(1); \
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ne1 / ne2; \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + row * k * 4L; \
    const int first = ITEM_ID(0) * elems_per_item; \
    const int end = min(first + elems_per_item, k);

KERNEL round_rows_q8_0(ITEM ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 32) {
        const float largest = largest_of(x, begin, 32);
        store_block(x, begin, 32, inverse_of_q8(largest), step_of_q8(largest), d);
    }
}

KERNEL round_rows_q8_k(ITEM ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 256) {
        const float largest = largest_of(x, begin, 256);
        store_block(x, begin, 256, inverse_of_q8(largest), step_of_q8_k(largest), d);
    }
}

#if defined(DEVICE_CPU)
// The elements of a block as whole numbers, laid out as whole.cl reads them.
static void store_whole(
    global const char *x, long begin, int block, float inverse, float step, global char *d, int k)
{
    global short *q = (global short *)(d + k);
    global float *steps = (global float *)(d + k * 3L), *eighths = steps + k / 32;
    for (long part = begin; part < begin + block; part += 32) {
        float8 total = 0;
        for (long i = part; i < part + 32; i += 8) {
            const float8 whole = whole8(load8_f32(x, i) * inverse);
            total += whole;
            *(global loose_short8 *)(q + i) = convert_short8(whole);
        }
        const short16 low = *(global const loose_short16 *)(q + part);
        const short16 high = *(global const loose_short16 *)(q + part + 16);
        *(global loose_short16 *)(d + part) = (low & (short16)255) | high << (short16)8;
        steps[part / 32] = step;
        eighths[part / 32] = 0.125f * step * sum8(total);
    }
}

// One block of 32 (q8_0) or 256 (q8_K).
static void store_whole_block(global const char *x, long begin, int block, global char *d, int k)
{
    const float largest = largest_of(x, begin, block);
    const float inverse = inverse_of_q8(largest);
    const float step = block == 32 ? step_of_q8(largest) : step_of_q8_k(largest);
    store_whole(x, begin, block, inverse, step, d, k);
}

KERNEL whole_rows_q8_0(ITEM ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 32) store_whole_block(x, begin, 32, d, k);
}

KERNEL whole_rows_q8_k(ITEM ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 256) store_whole_block(x, begin, 256, d, k);
}
#endif

#define ROUND_ELEMENTS(NAME, ROUND) \
KERNEL NAME(ITEM ROWS) \
{ \
    SELECT_PART \
    int i = first; \
    for (; i + 8 <= end; i += 8) store8_f32(ROUND(load8_f32(x, i)), d, i); \
    for (; i < end; i++) store1_f32(ROUND((float8)load1_f32(x, i)).s0, d, i); \
}

ROUND_ELEMENTS(round_rows_f16, round_half8)
ROUND_ELEMENTS(round_rows_bf16, round_bf16_8)
