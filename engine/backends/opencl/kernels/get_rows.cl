// GET_ROWS: item = `rows_per_item` rows of the result, since rows may have one element (the weights
// of experts). Built once a table type, which the build options name (products.cl).

#if !defined(weight1)
#define weight1(row, i) 0.0f
#endif

KERNEL get_rows(ITEM
    global const char *t_buf, ulong t_off, global const char *ids_buf, ulong ids_off,
    global char *d_buf, ulong d_off, int rows_per_item,
    int ne0, int n_table_rows, int ids_ne0, int ids_ne1, int n_rows,
    ulong t_nb1, ulong t_nb2, ulong t_nb3, ulong ids_nb0, ulong ids_nb1, ulong ids_nb2,
    ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    const long begin = ITEM_ID(0) * (long)rows_per_item;
    const long end = min(begin + rows_per_item, (long)n_rows);
    for (long i_row = begin; i_row < end; i_row++) {
        const long i0 = i_row % ids_ne0;
        const long i1 = i_row / ids_ne0 % ids_ne1;
        const long i2 = i_row / ((long)ids_ne0 * ids_ne1);
        const int id = *AT(
            const int, ids_buf, ids_off + i0 * ids_nb0 + i1 * ids_nb1 + i2 * ids_nb2);
        global char *d = d_buf + d_off + i0 * d_nb1 + i1 * d_nb2 + i2 * d_nb3;
        if (id < 0 || id >= n_table_rows) {  // reads no foreign memory, and shows
            for (int i = 0; i < ne0; i++) store1_f32(NAN, d, i);
            continue;
        }
        global const char *row = t_buf + t_off + id * t_nb1 + i1 * t_nb2 + i2 * t_nb3;
        int i = 0;
        for (; i + 8 <= ne0; i += 8) store8_f32(weight8(row, i), d, i);
        for (; i < ne0; i++) store1_f32(weight1(row, i), d, i);
    }
}
