// ADD, SUB, MUL, DIV, SCALE, UNARY, GLU, CPY and CONT: item = (chunk of a row, row).

// The four indices of row `row` of a tensor with these ne.
#define ROW_INDICES(row, ne1, ne2) \
    const long i1 = (row) % (ne1); \
    const long i2 = (row) / (ne1) % (ne2); \
    const long i3 = (row) / ((long)(ne1) * (ne2));

// First and last element of this item, and whether there is work for it.
#define CHUNK_BOUNDS(ne0, chunk) \
    const long first = get_global_id(0) * (long)(chunk); \
    const long last = min(first + (long)(chunk), (long)(ne0)); \
    if (first >= (ne0)) return;

// b repeats over a: its index is a's index modulo its extent.
#define BINARY(NAME, EXPR8, EXPR1) \
kernel void NAME( \
    global const char *a_buf, ulong a_off, global const char *b_buf, ulong b_off, \
    global char *d_buf, ulong d_off, int chunk, int ne0, int ne1, int ne2, \
    int nb_ne0, int nb_ne1, int nb_ne2, int nb_ne3, \
    ulong a_nb1, ulong a_nb2, ulong a_nb3, ulong b_nb1, ulong b_nb2, ulong b_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(get_global_id(1), ne1, ne2) \
    global const char *a = a_buf + a_off + i1 * a_nb1 + i2 * a_nb2 + i3 * a_nb3; \
    global const char *b = b_buf + b_off \
        + i1 % nb_ne1 * b_nb1 + i2 % nb_ne2 * b_nb2 + i3 % nb_ne3 * b_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    long i = first; \
    if (nb_ne0 == ne0) \
        for (; i + 8 <= last; i += 8) { \
            const float8 x = load8_f32(a, i), y = load8_f32(b, i); \
            store8_f32(EXPR8, d, i); \
        } \
    for (; i < last; i++) { \
        const float x = load1_f32(a, i), y = load1_f32(b, i % nb_ne0); \
        store1_f32(EXPR1, d, i); \
    } \
}

BINARY(add, x + y, x + y)
BINARY(sub, x - y, x - y)
BINARY(mul, x * y, x * y)
BINARY(divide, x / y, x / y)

// y = f(x) with up to two parameters.
#define UNARY(NAME, FUNCTION) \
kernel void NAME( \
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, \
    int chunk, int ne0, int ne1, int ne2, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float p0, float p1) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(get_global_id(1), ne1, ne2) \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    long i = first; \
    for (; i + 8 <= last; i += 8) store8_f32(FUNCTION##8(load8_f32(x, i), p0, p1), d, i); \
    for (; i < last; i++) store1_f32(FUNCTION##8((float8)load1_f32(x, i), p0, p1).s0, d, i); \
}

static float8 scaled8(float8 x, float factor, float bias) { return x * factor + bias; }
static float8 silu8(float8 x, float unused0, float unused1) { return x / (1.0f + exp(-x)); }
// The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x^2))).
static float8 gelu8(float8 x, float unused0, float unused1)
{
    return 0.5f * x * (1.0f + tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}

UNARY(scale, scaled)
UNARY(silu, silu)
UNARY(gelu, gelu)

// swiglu: silu(gate) * up.
kernel void swiglu(
    global const char *g_buf, ulong g_off, global const char *u_buf, ulong u_off,
    global char *d_buf, ulong d_off, int chunk, int ne0, int ne1, int ne2,
    ulong g_nb1, ulong g_nb2, ulong g_nb3, ulong u_nb1, ulong u_nb2, ulong u_nb3,
    ulong d_nb1, ulong d_nb2, ulong d_nb3)
{
    CHUNK_BOUNDS(ne0, chunk)
    ROW_INDICES(get_global_id(1), ne1, ne2)
    global const char *g = g_buf + g_off + i1 * g_nb1 + i2 * g_nb2 + i3 * g_nb3;
    global const char *u = u_buf + u_off + i1 * u_nb1 + i2 * u_nb2 + i3 * u_nb3;
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
    long i = first;
    for (; i + 8 <= last; i += 8)
        store8_f32(silu8(load8_f32(g, i), 0, 0) * load8_f32(u, i), d, i);
    for (; i < last; i++)
        store1_f32(silu8((float8)load1_f32(g, i), 0, 0).s0 * load1_f32(u, i), d, i);
}

// Copy with conversion; nb0 of either side may be any stride.
#define COPY(FROM, TO, FROM_BYTES, TO_BYTES) \
kernel void copy_##FROM##_##TO( \
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, \
    int chunk, int ne0, int ne1, int ne2, ulong x_nb0, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb0, ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(get_global_id(1), ne1, ne2) \
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
