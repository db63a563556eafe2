// Activations as a matmul with quantised weights sees them: blocks of 32 are rounded to d * q, q a
// whole number in -127..127 and d a half float, as ggml's CPU does (quantize_row_q8_0, and q8_1
// but for the sum of a block, which we do not round). Its results are the reference.
//
// Item = some blocks of one row. The result has no gaps.
// Shapes: x [k, rows] in three outer dimensions, d [k, rows]; k is a multiple of 32.

#define BLOCK 32

static float8 whole_numbers(float8 x, float inverse)
{
    const float8 scaled = x * inverse;
    return rint(scaled);
}

static void round_block(global const char *x, long i, global char *d)
{
    const float8 x0 = load8_f32(x, i), x1 = load8_f32(x, i + 8);
    const float8 x2 = load8_f32(x, i + 16), x3 = load8_f32(x, i + 24);
    const float largest = max8(fmax(fmax(fabs(x0), fabs(x1)), fmax(fabs(x2), fabs(x3))));
    const float inverse = largest != 0.0f ? 127.0f / largest : 0.0f;
    const float step = round_half8((float8)(largest / 127.0f)).s0;
    store8_f32(whole_numbers(x0, inverse) * step, d, i);
    store8_f32(whole_numbers(x1, inverse) * step, d, i + 8);
    store8_f32(whole_numbers(x2, inverse) * step, d, i + 16);
    store8_f32(whole_numbers(x3, inverse) * step, d, i + 24);
}

kernel void round_rows(
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int elems_per_item, int k, int ne1, int ne2,
    ulong x_nb1, ulong x_nb2, ulong x_nb3)
{
    const long row = get_global_id(1);
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ne1 / ne2;
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    global char *d = d_buf + d_off + row * k * 4L;
    const int begin = get_global_id(0) * elems_per_item;
    const int end = min(begin + elems_per_item, k);
    for (int i = begin; i < end; i += BLOCK) round_block(x, i, d);
}
