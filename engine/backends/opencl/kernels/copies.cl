// CPY, CONT, CONCAT, REPEAT, PAD: item = (chunk of a row, row). Sources may have any nb0.

// Copy with conversion; nb0 of either side may be any stride.
#define COPY(FROM, TO, FROM_BYTES, TO_BYTES) \
KERNEL copy_##FROM##_##TO(ITEM \
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, \
    int chunk, int ne0, int ne1, int ne2, ulong x_nb0, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb0, ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(ITEM_ID(1), ne1, ne2) \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    long i = first; \
    if (x_nb0 == FROM_BYTES && d_nb0 == TO_BYTES) \
        for (; i + 8 <= last; i += 8) store8_##TO(load8_##FROM(x, i), d, i); \
    for (; i < last; i++) store1_##TO(load1_##FROM(x + i * x_nb0, 0), d + i * d_nb0, 0); \
}

COPY(f32, f32, 4, 4)
COPY(f32, f16, 4, 2)
COPY(f16, f32, 2, 4)
COPY(f16, f16, 2, 2)

// Elements begin..end-1 of a row of floats.
static void copy_part(global const char *x, ulong x_nb0, global char *d, long begin, long end)
{
    long i = begin;
    if (x_nb0 == 4)
        for (; i + 8 <= end; i += 8) store8_f32(load8_f32(x, i), d, i);
    for (; i < end; i++) store1_f32(load1_f32(x + i * x_nb0, 0), d, i);
}

// b begins where a, which has `length` elements along dimension `dim`, ends.
KERNEL concat(ITEM
    global const char *a_buf, ulong a_off, global const char *b_buf, ulong b_off,
    global char *d_buf, ulong d_off, int chunk, int ne0, int ne1, int ne2, int dim, int length,
    ulong a_nb0, ulong a_nb1, ulong a_nb2, ulong a_nb3,
    ulong b_nb0, ulong b_nb1, ulong b_nb2, ulong b_nb3, ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    CHUNK_BOUNDS(ne0, chunk)
    ROW_INDICES(ITEM_ID(1), ne1, ne2)
    const long place = dim == 1 ? i1 : dim == 2 ? i2 : i3;
    const long a_end = dim == 0 ? clamp((long)length, first, last) : place < length ? last : first;
    const ulong b_start = length * (dim == 0 ? b_nb0 : dim == 1 ? b_nb1 : dim == 2 ? b_nb2 : b_nb3);
    global const char *a = a_buf + a_off + i1 * a_nb1 + i2 * a_nb2 + i3 * a_nb3;
    global const char *b = b_buf + b_off + i1 * b_nb1 + i2 * b_nb2 + i3 * b_nb3 - b_start;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    copy_part(a, a_nb0, d, first, a_end);
    copy_part(b, b_nb0, d, a_end, last);
}

// x over and over: an index is that of the result modulo x's extent.
KERNEL repeat(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int chunk, int ne0, int ne1, int ne2, int x_ne0, int x_ne1, int x_ne2, int x_ne3,
    ulong x_nb0, ulong x_nb1, ulong x_nb2, ulong x_nb3, ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    CHUNK_BOUNDS(ne0, chunk)
    ROW_INDICES(ITEM_ID(1), ne1, ne2)
    global const char *x = x_buf + x_off
        + i1 % x_ne1 * x_nb1 + i2 % x_ne2 * x_nb2 + i3 % x_ne3 * x_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    if (x_ne0 == ne0) copy_part(x, x_nb0, d, first, last);
    else
        for (long i = first; i < last; i++) store1_f32(load1_f32(x + i % x_ne0 * x_nb0, 0), d, i);
}

// x, and zeros behind it in every dimension.
KERNEL pad(ITEM
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off,
    int chunk, int ne0, int ne1, int ne2, int x_ne0, int x_ne1, int x_ne2, int x_ne3,
    ulong x_nb0, ulong x_nb1, ulong x_nb2, ulong x_nb3, ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    CHUNK_BOUNDS(ne0, chunk)
    ROW_INDICES(ITEM_ID(1), ne1, ne2)
    const int inside = i1 < x_ne1 && i2 < x_ne2 && i3 < x_ne3;
    const long x_end = inside ? clamp((long)x_ne0, first, last) : first;
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    copy_part(x, x_nb0, d, first, x_end);
    for (long i = x_end; i < last; i++) store1_f32(0.0f, d, i);
}
