// MUL_MAT: d[row, column] = dot(weight row, x column), float32 sums. Built once a weight type.
// Unless weights are float32 x has been through round_rows.cl.
//
// mul_mat_vec   item = some rows and one column: weights are read once, straight from their blocks
// mul_mat_tile  item = TILE_ROWS rows and many columns: the rows are unpacked once into scratch

#define MATRICES \
    global const char *w_buf, ulong w_off, global const char *x_buf, ulong x_off, \
    global char *d_buf, ulong d_off, \
    int k, int n_rows, int n_columns, int ne2, int ratio2, int ratio3, \
    ulong w_nb1, ulong w_nb2, ulong w_nb3, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3

// The matrices of this item's batch index: several of x share one of w.
#define SELECT_MATRICES \
    const long i2 = ITEM_ID(2) % ne2, i3 = ITEM_ID(2) / ne2; \
    global const char *w = w_buf + w_off + i2 / ratio2 * w_nb2 + i3 / ratio3 * w_nb3; \
    global const char *x = x_buf + x_off + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + i2 * d_nb2 + i3 * d_nb3;

KERNEL mul_mat_vec(ITEM MATRICES, int rows_per_item)
{
    SELECT_MATRICES
    const long column = ITEM_ID(1);
    const int begin = ITEM_ID(0) * rows_per_item;
    const int end = min(begin + rows_per_item, n_rows);
    multiply_rows(w, w_nb1, begin, end, x + column * x_nb1, k, d + column * d_nb1);
}

#if defined(DEVICE_CPU)
KERNEL mul_mat_tile(ITEM MATRICES, int columns_per_item)
{
    SELECT_MATRICES
    const int row0 = ITEM_ID(0) * TILE_ROWS;
    const int begin = ITEM_ID(1) * columns_per_item;
    const int end = min(begin + columns_per_item, n_columns);
    if (row0 >= n_rows) return;
    float rows[TILE_ROWS * TILE_K] __attribute__((aligned(64)));
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        const int part_k = min(TILE_K, k - k0);
        unpack_rows(w, w_nb1, row0, n_rows, k0, part_k, rows);
        for (int column = begin; column < end; column += TILE_COLUMNS) {
            global const char *columns[TILE_COLUMNS];
            global char *outs[TILE_COLUMNS];
            for (int c = 0; c < TILE_COLUMNS; c++) {
                const int i_column = min(column + c, end - 1);
                columns[c] = x + i_column * x_nb1;
                outs[c] = d + i_column * d_nb1;
            }
            multiply_tile(rows, row0, n_rows, k0, part_k, columns, outs, end - column);
        }
    }
}
#endif
