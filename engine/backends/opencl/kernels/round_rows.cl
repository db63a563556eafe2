// Activations as a matmul with quantised weights sees them: the elements of a block are rounded to
// d * q, q a whole number in -127..127, as ggml's CPU does. Its results are the reference.
//
// round_rows_q8_0   blocks of 32, d a half float: quantize_row_q8_0, and q8_1 but for the sum of a
//                   block, which is not rounded here
// round_rows_q8_k   blocks of 256, d a float: quantize_row_q8_K
//
// Item = some whole blocks of one row. The result has no gaps.
// Shapes: x [k, rows] in three outer dimensions, d [k, rows]; k is a multiple of the block.

static float largest_of(global const char *x, long begin, int block)
{
    float8 largest = 0;
    for (long i = begin; i < begin + block; i += 8) largest = fmax(largest, fabs(load8_f32(x, i)));
    return max8(largest);
}

// The nearest whole numbers, halves to even; |x| < 2^22. PoCL's rint is a call for every element.
static float8 whole8(float8 x)
{
    return copysign((fabs(x) + 0x1p23f) - 0x1p23f, x);
}

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
    const long row = get_global_id(1); \
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ne1 / ne2; \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + row * k * 4L; \
    const int first = get_global_id(0) * elems_per_item; \
    const int end = min(first + elems_per_item, k);

kernel void round_rows_q8_0(ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 32) {
        const float largest = largest_of(x, begin, 32);
        const float inverse = largest != 0.0f ? 127.0f / largest : 0.0f;
        const float step = round_half8((float8)(largest / 127.0f)).s0;
        store_block(x, begin, 32, inverse, step, d);
    }
}

kernel void round_rows_q8_k(ROWS)
{
    SELECT_PART
    for (int begin = first; begin < end; begin += 256) {
        const float largest = largest_of(x, begin, 256);
        const float inverse = largest != 0.0f ? 127.0f / largest : 0.0f;
        const float step = largest != 0.0f ? 1.0f / inverse : 0.0f;
        store_block(x, begin, 256, inverse, step, d);
    }
}
