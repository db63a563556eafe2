// What MUL_MAT and MUL_MAT_ID share. Built once a weight type, which macros name:
//
// weight8(row, i)   elements i..i+7 of a weight row, i a multiple of 8
// weight1(row, i)   one element; defined for plain types only
// add_block(...)    as in blocks32.cl; types that have none of their own unpack their elements

#if !defined(weight1)
#define weight1(row, i) 0.0f  // rows of these types are whole blocks
#endif

static float8 add_unpacked(
    float8 sum, global const char *row, uint i_block, float8 x0, float8 x1, float8 x2, float8 x3)
{
    const uint i = i_block * 32;
    sum += weight8(row, i) * x0;
    sum += weight8(row, i + 8) * x1;
    sum += weight8(row, i + 16) * x2;
    return sum + weight8(row, i + 24) * x3;
}

#if !defined(add_block)
#define add_block add_unpacked
#endif

// The part of a dot product that is left after the whole blocks; plain types only.
static float dot_rest(global const char *row, global const char *column, int begin, int k)
{
    float sum = 0;
    for (int i = begin; i < k; i++) sum += weight1(row, i) * load1_f32(column, i);
    return sum;
}

#if !defined(DEVICE_CPU) || !defined(add_whole)
// out[row] = dot(weight row, column) for rows begin..end-1, straight from their blocks.
static void multiply_rows(
    global const char *w, ulong w_nb1, int begin, int end, global const char *column, int k,
    global char *out)
{
    const uint n_blocks = k / 32;
    const int done = n_blocks * 32;
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
        store1_f32(sum8(sum0) + dot_rest(row0, column, done, k), out, row);
        if (row + 1 < end) store1_f32(sum8(sum1) + dot_rest(row1, column, done, k), out, row + 1);
        if (row + 2 < end) store1_f32(sum8(sum2) + dot_rest(row2, column, done, k), out, row + 2);
        if (row + 3 < end) store1_f32(sum8(sum3) + dot_rest(row3, column, done, k), out, row + 3);
    }
}
#endif

// Tiles are for CPU devices: a GPU has no place for so much scratch in every item.
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
    for (int i = whole; i < part_k; i++) sum += rows[r * TILE_K + i] * load1_f32(x_##c, i); \
    if (row0 + r < n_rows && c < n_columns) { \
        global float *out = AT(float, outs[c], (row0 + r) * 4L); \
        *out = k0 == 0 ? sum : *out + sum; \
    } \
}

// Elements k0.. of TILE_ROWS weight rows, unpacked; rows past the end repeat the last one.
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

// Products of the unpacked rows with up to TILE_COLUMNS columns, whose sums stay in registers. All
// of `columns` are read; the first n_columns have a place in `outs`.
static void multiply_tile(
    const float *rows, int row0, int n_rows, int k0, int part_k,
    global const char *const *columns, global char *const *outs, int n_columns)
{
    const int whole = part_k & ~7;
    global const char *x_0 = columns[0] + k0 * 4L, *x_1 = columns[1] + k0 * 4L;
    global const char *x_2 = columns[2] + k0 * 4L, *x_3 = columns[3] + k0 * 4L;
    EACH_SUM(ZERO_SUM)
    for (int i = 0; i < whole; i += 8) {
        const float8 w0 = READ8(private, rows + i);
        const float8 w1 = READ8(private, rows + TILE_K + i);
        const float8 w2 = READ8(private, rows + 2 * TILE_K + i);
        const float8 w3 = READ8(private, rows + 3 * TILE_K + i);
        const float8 x0 = load8_f32(x_0, i), x1 = load8_f32(x_1, i);
        const float8 x2 = load8_f32(x_2, i), x3 = load8_f32(x_3, i);
        EACH_SUM(ADD_PRODUCT)
    }
    EACH_SUM(FINISH_SUM)
}
#endif
