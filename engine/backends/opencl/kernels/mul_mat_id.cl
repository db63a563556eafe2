// MUL_MAT_ID: d[row, slot, token] = dot(row of the expert that ids[slot, token] names, x column).
// Built once a weight type. Unless weights are float32 x has been through round_rows.cl.
//
// mul_mat_id_vec    item = some rows and one (slot, token): straight from the expert's blocks
// mul_mat_id_tile   item = some rows of one expert, for every (slot, token) that names it: they are
//                   listed first, then TILE_ROWS rows at a time are unpacked once into scratch
//
// Shapes: w [k, rows, experts], x [k, x_slots, tokens], ids i32 [slots, tokens]; x_slots is slots,
// or 1 where all slots share a column. An id outside the experts gives NaN and reads nothing.

#define EXPERTS \
    global const char *w_buf, ulong w_off, global const char *x_buf, ulong x_off, \
    global const char *ids_buf, ulong ids_off, global char *d_buf, ulong d_off, \
    int k, int n_rows, int n_experts, int n_slots, int n_tokens, int x_slots, \
    ulong w_nb1, ulong w_nb2, ulong x_nb1, ulong x_nb2, ulong ids_nb0, ulong ids_nb1, \
    ulong d_nb1, ulong d_nb2

#define EXPERT_OF(slot, token) \
    (*AT(const int, ids_buf, ids_off + (slot) * ids_nb0 + (token) * ids_nb1))

static void mark_rows(global char *out, int begin, int end)
{
    for (int row = begin; row < end; row++) store1_f32(NAN, out, row);
}

KERNEL mul_mat_id_vec(ITEM EXPERTS, int rows_per_item)
{
    const long slot = ITEM_ID(1), token = ITEM_ID(2);
    const int begin = ITEM_ID(0) * rows_per_item;
    const int end = min(begin + rows_per_item, n_rows);
    const int expert = EXPERT_OF(slot, token);
    global char *out = d_buf + d_off + slot * d_nb1 + token * d_nb2;
    if (expert < 0 || expert >= n_experts) {
        mark_rows(out, begin, end);
        return;
    }
    global const char *column = x_buf + x_off + slot % x_slots * x_nb1 + token * x_nb2;
    multiply_rows(w_buf + w_off + expert * w_nb2, w_nb1, begin, end, column, k, out);
}

#if defined(DEVICE_CPU)
#define MAX_LISTED 512

// Products of rows begin..end-1 of w with the columns of the listed pairs slot + n_slots * token.
static void multiply_listed(
    global const char *w, ulong w_nb1, int begin, int end, int k, const int *listed, int n_listed,
    int n_slots, global const char *x, int x_slots, ulong x_nb1, ulong x_nb2,
    global char *d, ulong d_nb1, ulong d_nb2)
{
    float rows[TILE_ROWS * TILE_K] __attribute__((aligned(64)));
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int k0 = 0; k0 < k; k0 += TILE_K) {
            const int part_k = min(TILE_K, k - k0);
            unpack_rows(w, w_nb1, row0, end, k0, part_k, rows);
            for (int first = 0; first < n_listed; first += TILE_COLUMNS) {
                global const char *columns[TILE_COLUMNS];
                global char *outs[TILE_COLUMNS];
                for (int c = 0; c < TILE_COLUMNS; c++) {
                    const int pair = listed[min(first + c, n_listed - 1)];
                    const int slot = pair % n_slots, token = pair / n_slots;
                    columns[c] = x + slot % x_slots * x_nb1 + token * x_nb2;
                    outs[c] = d + slot * d_nb1 + token * d_nb2;
                }
                multiply_tile(rows, row0, end, k0, part_k, columns, outs, n_listed - first);
            }
        }
}

KERNEL mul_mat_id_tile(ITEM EXPERTS, int rows_per_item)
{
    const int begin = ITEM_ID(0) * rows_per_item;
    const int end = min(begin + rows_per_item, n_rows);
    const int expert = ITEM_ID(1);
    global const char *w = w_buf + w_off + expert * w_nb2;
    global const char *x = x_buf + x_off;
    global char *d = d_buf + d_off;
    int listed[MAX_LISTED], n_listed = 0;
    for (int token = 0; token < n_tokens; token++)
        for (int slot = 0; slot < n_slots; slot++) {
            const int id = EXPERT_OF(slot, token);
            // The items of expert 0 see to ids that name nobody.
            if (expert == 0 && (id < 0 || id >= n_experts))
                mark_rows(d + slot * d_nb1 + token * d_nb2, begin, end);
            if (id == expert) listed[n_listed++] = token * n_slots + slot;
            const int is_last = token == n_tokens - 1 && slot == n_slots - 1;
            if (n_listed == MAX_LISTED || (is_last && n_listed > 0)) {
                multiply_listed(
                    w, w_nb1, begin, end, k, listed, n_listed, n_slots,
                    x, x_slots, x_nb1, x_nb2, d, d_nb1, d_nb2);
                n_listed = 0;
            }
        }
}
#endif
