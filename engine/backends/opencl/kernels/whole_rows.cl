// Rows of weights times one column in whole numbers. Built once a weight type, which macros name:
// add_whole, BLOCK_ELEMS, BLOCK_BYTES. Types without add_whole have their product in products.cl.

#if defined(DEVICE_CPU) && defined(add_whole)
// Bytes between what is read and what the first cache is asked for, and the second.
#define NEAR 2048
#define FAR 8192
#define FIRST_CACHE 3
#define SECOND_CACHE 2

// Rows of a group lie side by side, but the processor sees short streams and asks for little on its
// own. Past the end of a buffer the request has no effect.
#define ASK_FOR(p, n_bytes, cache)                                                                 \
    _Pragma("unroll") for (long byte = 0; byte < (n_bytes); byte += 64)                             \
        __builtin_prefetch((const void *)(ulong)((p) + byte), 0, cache)

// out[row] = dot(weight row, column) for rows begin..end-1.
static void multiply_rows(
    global const char *w, ulong w_nb1, int begin, int end, global const char *column, int k,
    global char *out)
{
    const uint n_blocks = k / BLOCK_ELEMS;
    const long n_first = min((long)((end - begin) * w_nb1), (long)NEAR);
    ASK_FOR(w + begin * w_nb1, n_first, FIRST_CACHE);
    for (int row = begin; row < end; row += VEC_ROWS) {
        const int last = end - 1;
        global const char *row0 = w + row * w_nb1;
        global const char *row1 = w + min(row + 1, last) * w_nb1;
        global const char *row2 = w + min(row + 2, last) * w_nb1;
        global const char *row3 = w + min(row + 3, last) * w_nb1;
        float8 sums[VEC_ROWS] = {0, 0, 0, 0};
        struct part x = whole_column(column, k);
        for (uint i = 0; i < n_blocks; i++) {
            const long at = i * (long)BLOCK_BYTES;
            global const char *blocks[VEC_ROWS] = {row0 + at, row1 + at, row2 + at, row3 + at};
            ASK_FOR(row0 + NEAR + VEC_ROWS * at, VEC_ROWS * BLOCK_BYTES, FIRST_CACHE);
            ASK_FOR(row0 + FAR + VEC_ROWS * at, VEC_ROWS * BLOCK_BYTES, SECOND_CACHE);
            add_whole(sums, blocks, x);
            x = move_on(x, BLOCK_ELEMS);
        }
        store1_f32(sum8(sums[0]), out, row);
        if (row + 1 < end) store1_f32(sum8(sums[1]), out, row + 1);
        if (row + 2 < end) store1_f32(sum8(sums[2]), out, row + 2);
        if (row + 3 < end) store1_f32(sum8(sums[3]), out, row + 3);
    }
}
#endif
