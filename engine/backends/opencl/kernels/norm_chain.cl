// ADD, RMS_NORM, MUL and the rounding of the result, one after another in one item, for CPUs: what
// a token needs between two matmuls is little work, and each launch costs more than it.
//
// Each pass is over before the next one begins, so tensors may take one another's memory as when
// each is a launch of its own.
// Shapes: a, b, sum, norm, product [n, rows]; weight [n]; none has gaps. Without ADD `sum` is the
// source. `block` is 32 or 256, what round_rows.cl rounds together, or 0: no rounding.

#if defined(DEVICE_CPU)
static void add_all(global const char *a, global const char *b, global char *sum, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) store8_f32(load8_f32(a, i) + load8_f32(b, i), sum, i);
    for (; i < n; i++) store1_f32(load1_f32(a, i) + load1_f32(b, i), sum, i);
}

static void multiply_row(global const char *norm, global const char *w, global char *product, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) store8_f32(load8_f32(norm, i) * load8_f32(w, i), product, i);
    for (; i < n; i++) store1_f32(load1_f32(norm, i) * load1_f32(w, i), product, i);
}

KERNEL norm_chain(ITEM
    global const char *a_buf, ulong a_off, global const char *b_buf, ulong b_off,
    global char *sum_buf, ulong sum_off, global char *norm_buf, ulong norm_off,
    global const char *w_buf, ulong w_off, global char *product_buf, ulong product_off,
    global char *whole_buf, ulong whole_off, int has_add, int n, int n_rows, int block, float eps)
{
    global char *sum = sum_buf + sum_off, *norm = norm_buf + norm_off;
    global char *product = product_buf + product_off, *whole = whole_buf + whole_off;
    const long nb1 = n * 4L;
    if (has_add) add_all(a_buf + a_off, b_buf + b_off, sum, n * n_rows);
    for (int row = 0; row < n_rows; row++)
        normalize_row(sum + row * nb1, norm + row * nb1, n, eps);
    for (int row = 0; row < n_rows; row++)
        multiply_row(norm + row * nb1, w_buf + w_off, product + row * nb1, n);
    if (block == 0) return;
    for (int row = 0; row < n_rows; row++)
        for (int begin = 0; begin < n; begin += block)
            store_whole_block(product + row * nb1, begin, block, whole + row * nb1, n);
}
#endif
