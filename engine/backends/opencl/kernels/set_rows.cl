// SET_ROWS: item = `rows_per_item` rows of the source, written where the ids say.
//
// Rows may have one element (a transposed V cache), hence several rows an item.

#define SET_ROWS(TO, ID_NAME, ID) \
kernel void set_rows_##TO##_##ID_NAME( \
    global const char *x_buf, ulong x_off, global const char *ids_buf, ulong ids_off, \
    global char *d_buf, ulong d_off, int rows_per_item, int ne0, int ne1, int ne2, int n_rows, \
    int ids_ne1, int ids_ne2, int n_table_rows, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong ids_nb0, ulong ids_nb1, ulong ids_nb2, ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    const long begin = get_global_id(0) * (long)rows_per_item; \
    const long end = min(begin + rows_per_item, (long)n_rows); \
    for (long i_row = begin; i_row < end; i_row++) { \
        const long i1 = i_row % ne1, i2 = i_row / ne1 % ne2, i3 = i_row / ((long)ne1 * ne2); \
        const long id = *AT(const ID, ids_buf, ids_off \
            + i1 * ids_nb0 + i2 % ids_ne1 * ids_nb1 + i3 % ids_ne2 * ids_nb2); \
        if (id < 0 || id >= n_table_rows) continue; \
        global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
        global char *d = d_buf + d_off + id * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
        int i = 0; \
        for (; i + 8 <= ne0; i += 8) store8_##TO(load8_f32(x, i), d, i); \
        for (; i < ne0; i++) store1_##TO(load1_f32(x, i), d, i); \
    } \
}

SET_ROWS(f32, i32, int)
SET_ROWS(f32, i64, long)
SET_ROWS(f16, i32, int)
SET_ROWS(f16, i64, long)
