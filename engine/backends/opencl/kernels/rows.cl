// NORM, RMS_NORM, SUM_ROWS: item = one row. ARGSORT: item = (some elements of a row, row).

// The row less its mean, divided by its standard deviation.
KERNEL norm(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int ne0, int ne1, int ne2, int n_rows, ulong x_nb1, ulong x_nb2, ulong x_nb3,
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float eps)
{
    const long row = ITEM_ID(0);
    if (row >= n_rows) return;
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ((long)ne1 * ne2);
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    float8 parts = 0;
    int i = 0;
    for (; i + 8 <= ne0; i += 8) parts += load8_f32(x, i);
    float sum = sum8(parts);
    for (; i < ne0; i++) sum += load1_f32(x, i);
    const float mean = sum / ne0;
    parts = 0;
    for (i = 0; i + 8 <= ne0; i += 8) {
        const float8 v = load8_f32(x, i) - mean;
        parts += v * v;
    }
    float squares = sum8(parts);
    for (; i < ne0; i++) squares += (load1_f32(x, i) - mean) * (load1_f32(x, i) - mean);
    const float factor = 1.0f / sqrt(squares / ne0 + eps);
    for (i = 0; i + 8 <= ne0; i += 8) store8_f32((load8_f32(x, i) - mean) * factor, d, i);
    for (; i < ne0; i++) store1_f32((load1_f32(x, i) - mean) * factor, d, i);
}

KERNEL rms_norm(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int ne0, int ne1, int ne2, int n_rows, ulong x_nb1, ulong x_nb2, ulong x_nb3,
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float eps)
{
    const long row = ITEM_ID(0);
    if (row >= n_rows) return;
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ((long)ne1 * ne2);
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    normalize_row(x, d, ne0, eps);
}

KERNEL sum_rows(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int ne0, int ne1, int ne2, int n_rows, ulong x_nb1, ulong x_nb2, ulong x_nb3,
    ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    const long row = ITEM_ID(0);
    if (row >= n_rows) return;
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ((long)ne1 * ne2);
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    float8 sums = 0;
    int i = 0;
    for (; i + 8 <= ne0; i += 8) sums += load8_f32(x, i);
    float sum = sum8(sums);
    for (; i < ne0; i++) sum += load1_f32(x, i);
    store1_f32(sum, d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3, 0);
}

// Floats as whole numbers in the same order, so that every pair compares, NaN too; -0 equals 0.
static int sort_key(float x)
{
    const int bits = as_int(x == 0.0f ? 0.0f : x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// The place of an element is the number of elements that come before it; equal ones keep their
// order.
KERNEL argsort(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, int chunk, int ne0,
    int ne1, int ne2, int descending, ulong x_nb1, ulong x_nb2, ulong x_nb3,
    ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    const long row = ITEM_ID(1);
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ((long)ne1 * ne2);
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    const int flip = descending ? -1 : 0;
    const int begin = ITEM_ID(0) * chunk;
    const int end = min(begin + chunk, ne0);
    for (int i = begin; i < end; i++) {
        const int own = sort_key(load1_f32(x, i)) ^ flip;
        int place = 0;
        for (int j = 0; j < i; j++) place += (sort_key(load1_f32(x, j)) ^ flip) <= own;
        for (int j = i + 1; j < ne0; j++) place += (sort_key(load1_f32(x, j)) ^ flip) < own;
        AT(int, d, place * 4L)[0] = i;
    }
}
