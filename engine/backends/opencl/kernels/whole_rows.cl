// Rows of weights times one column in whole numbers. Built once a weight type, which macros name:
// add_whole, BLOCK_ELEMS, BLOCK_BYTES. Types without add_whole have their product in products.cl.

#if defined(DEVICE_CPU) && defined(add_whole)
#define PARTS (BLOCK_ELEMS / 32)
#define BLOCKS_AHEAD 4096  // bytes between what is read and what is asked for

// Rows of a group lie side by side, but the processor sees short streams and asks for little on its
// own. Past the end of a buffer the request has no effect.
static void ask_ahead(global const char *p)
{
#pragma unroll
    for (int at = 0; at < VEC_ROWS * BLOCK_BYTES; at += 64)
        __builtin_prefetch((const void *)(ulong)(p + BLOCKS_AHEAD + at));
}

// out[row] = dot(weight row, column) for rows begin..end-1.
static void multiply_rows(
    global const char *w, ulong w_nb1, int begin, int end, global const char *column, int k,
    global char *out)
{
    const uint n_blocks = k / BLOCK_ELEMS;
    for (int row = begin; row < end; row += VEC_ROWS) {
        const int last = end - 1;
        global const char *row0 = w + row * w_nb1;
        global const char *row1 = w + min(row + 1, last) * w_nb1;
        global const char *row2 = w + min(row + 2, last) * w_nb1;
        global const char *row3 = w + min(row + 3, last) * w_nb1;
        float8 sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
        struct part x;
        x.q = (global const short *)column;
        x.step = (global const float *)(column + k * 2L);
        x.eighth = x.step + k / 32;
        for (uint i = 0; i < n_blocks; i++) {
            const long at = i * (long)BLOCK_BYTES;
            ask_ahead(row0 + VEC_ROWS * at);
            sum0 = add_whole(sum0, row0 + at, x);
            sum1 = add_whole(sum1, row1 + at, x);
            sum2 = add_whole(sum2, row2 + at, x);
            sum3 = add_whole(sum3, row3 + at, x);
            x.q += BLOCK_ELEMS;
            x.step += PARTS;
            x.eighth += PARTS;
        }
        store1_f32(sum8(sum0), out, row);
        if (row + 1 < end) store1_f32(sum8(sum1), out, row + 1);
        if (row + 2 < end) store1_f32(sum8(sum2), out, row + 2);
        if (row + 3 < end) store1_f32(sum8(sum3), out, row + 3);
    }
}
#endif
