// MUL_MAT: d[row, column] = dot(weight row, x column), float32 sums. Built once a weight type.
// With quantised weights x has been through round_rows.cl.
//
// mul_mat_vec   item = some rows and one column: weights are read once, straight from their blocks
// mul_mat_tile  item = TILE_ROWS rows and many columns: the rows are unpacked once into scratch and
//               used for TILE_COLUMNS columns at a time, so their sums stay in registers. For CPU
//               devices: a GPU has no place for so much scratch in every item.

#define MATRICES \
    global const char *w_buf, ulong w_off, global const char *x_buf, ulong x_off, \
    global char *d_buf, ulong d_off, \
    int k, int n_rows, int n_columns, int ne2, int ratio2, int ratio3, \
    ulong w_nb1, ulong w_nb2, ulong w_nb3, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3

// The matrices of this item's batch index: several of x share one of w.
#define SELECT_MATRICES \
    const long i2 = get_global_id(2) % ne2, i3 = get_global_id(2) / ne2; \
    global const char *w = w_buf + w_off + i2 / ratio2 * w_nb2 + i3 / ratio3 * w_nb3; \
    global const char *x = x_buf + x_off + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + i2 * d_nb2 + i3 * d_nb3;

// The part of a dot product that is left after the whole blocks; plain types only.
static float dot_rest(global const char *row, global const char *column, int begin, int k)
{
    float sum = 0;
    for (int i = begin; i < k; i++) sum += weight1(row, i) * load1_f32(column, i);
    return sum;
}

#define VEC_ROWS 4

kernel void mul_mat_vec(MATRICES, int rows_per_item)
{
    SELECT_MATRICES
    const int begin = get_global_id(0) * rows_per_item;
    const int end = min(begin + rows_per_item, n_rows);
    global const char *column = x + get_global_id(1) * x_nb1;
    global char *out = d + get_global_id(1) * d_nb1;
    const uint n_blocks = k / 32;
    for (int row = begin; row < end; row += VEC_ROWS) {
        const int last = end - 1;
        global const char *row0 = w + row * w_nb1;
        global const char *row1 = w + min(row + 1, last) * w_nb1;
        global const char *row2 = w + min(row + 2, last) * w_nb1;
        global const char *row3 = w + min(row + 3, last) * w_nb1;
        float8 sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        for (uint i = 0; i < n_blocks; i++) {
            global const float *part = (global const float *)column + i * 32;
            const float8 x0 = READ8(global, part), x1 = READ8(global, part + 8);
            const float8 x2 = READ8(global, part + 16), x3 = READ8(global, part + 24);
            sum0 = add_block(sum0, row0, i, x0, x1, x2, x3);
            sum1 = add_block(sum1, row1, i, x0, x1, x2, x3);
            sum2 = add_block(sum2, row2, i, x0, x1, x2, x3);
            sum3 = add_block(sum3, row3, i, x0, x1, x2, x3);
        }
        const int done = n_blocks * 32;
        store1_f32(sum8(sum0) + dot_rest(row0, column, done, k), out, row);
        if (row + 1 < end) store1_f32(sum8(sum1) + dot_rest(row1, column, done, k), out, row + 1);
        if (row + 2 < end) store1_f32(sum8(sum2) + dot_rest(row2, column, done, k), out, row + 2);
        if (row + 3 < end) store1_f32(sum8(sum3) + dot_rest(row3, column, done, k), out, row + 3);
    }
}

#if defined(DEVICE_CPU)
#define TILE_ROWS 4
#define TILE_COLUMNS 4
#define TILE_K 1024

#define EACH_COLUMN(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#define EACH_SUM(DO) EACH_COLUMN(DO, 0) EACH_COLUMN(DO, 1) EACH_COLUMN(DO, 2) EACH_COLUMN(DO, 3)
#define ZERO_SUM(r, c) float8 sum_##r##c = 0;
#define ADD_PRODUCT(r, c) sum_##r##c += w##r * x##c;

#define FINISH_SUM(r, c) { \
    float sum = sum8(sum_##r##c); \
    for (int i = whole; i < part_k; i++) sum += rows[r * TILE_K + i] * load1_f32(column_##c, i); \
    if (row0 + r < n_rows && column0 + c < column_end) { \
        global float *out = AT(float, d, (column0 + c) * d_nb1 + (row0 + r) * 4L); \
        *out = k0 == 0 ? sum : *out + sum; \
    } \
}

static void unpack_rows(
    global const char *w, ulong w_nb1, int row0, int n_rows, int k0, int part_k, float *rows)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        global const char *row = w + min(row0 + r, n_rows - 1) * w_nb1;
        int i = 0;
        for (; i + 8 <= part_k; i += 8)
            WRITE8(private, weight8(row, k0 + i), rows + r * TILE_K + i);
        for (; i < part_k; i++) rows[r * TILE_K + i] = weight1(row, k0 + i);
    }
}

kernel void mul_mat_tile(MATRICES, int columns_per_item)
{
    SELECT_MATRICES
    const int row0 = get_global_id(0) * TILE_ROWS;
    const int column_begin = get_global_id(1) * columns_per_item;
    const int column_end = min(column_begin + columns_per_item, n_columns);
    if (row0 >= n_rows) return;
    float rows[TILE_ROWS * TILE_K] __attribute__((aligned(64)));
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        const int part_k = min(TILE_K, k - k0);
        const int whole = part_k & ~7;
        unpack_rows(w, w_nb1, row0, n_rows, k0, part_k, rows);
        for (int column0 = column_begin; column0 < column_end; column0 += TILE_COLUMNS) {
            const int last = column_end - 1;
            global const char *column_0 = x + column0 * x_nb1 + k0 * 4L;
            global const char *column_1 = x + min(column0 + 1, last) * x_nb1 + k0 * 4L;
            global const char *column_2 = x + min(column0 + 2, last) * x_nb1 + k0 * 4L;
            global const char *column_3 = x + min(column0 + 3, last) * x_nb1 + k0 * 4L;
            EACH_SUM(ZERO_SUM)
            for (int i = 0; i < whole; i += 8) {
                const float8 w0 = READ8(private, rows + i);
                const float8 w1 = READ8(private, rows + TILE_K + i);
                const float8 w2 = READ8(private, rows + 2 * TILE_K + i);
                const float8 w3 = READ8(private, rows + 3 * TILE_K + i);
                const float8 x0 = load8_f32(column_0, i), x1 = load8_f32(column_1, i);
                const float8 x2 = load8_f32(column_2, i), x3 = load8_f32(column_3, i);
                EACH_SUM(ADD_PRODUCT)
            }
            EACH_SUM(FINISH_SUM)
        }
    }
}
#endif
