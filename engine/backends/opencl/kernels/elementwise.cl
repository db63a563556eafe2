// ADD, ADD_ID, SUB, MUL, DIV, SCALE, CLAMP, FILL, UNARY, GLU: item = (chunk of a row, row).

// b repeats over a: its index is a's index modulo its extent.
#define BINARY(NAME, EXPR8, EXPR1) \
KERNEL NAME(ITEM \
    global const char *a_buf, ulong a_off, global const char *b_buf, ulong b_off, \
    global char *d_buf, ulong d_off, int chunk, int ne0, int ne1, int ne2, \
    int nb_ne0, int nb_ne1, int nb_ne2, int nb_ne3, \
    ulong a_nb1, ulong a_nb2, ulong a_nb3, ulong b_nb1, ulong b_nb2, ulong b_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(ITEM_ID(1), ne1, ne2) \
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
    if (nb_ne0 == 1) { \
        const float8 y = load1_f32(b, 0); \
        for (; i + 8 <= last; i += 8) { \
            const float8 x = load8_f32(a, i); \
            store8_f32(EXPR8, d, i); \
        } \
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

// Rows of a [n, slots, tokens] plus the rows of b [n, experts] that ids [slots, tokens] name. An id
// outside the table gives NaN.
KERNEL add_id(ITEM
    global const char *a_buf, ulong a_off, global const char *b_buf, ulong b_off,
    global const char *ids_buf, ulong ids_off, global char *d_buf, ulong d_off,
    int chunk, int ne0, int ne1, int n_table_rows, ulong a_nb1, ulong a_nb2, ulong b_nb1,
    ulong ids_nb0, ulong ids_nb1, ulong d_nb1, ulong d_nb2)
{
    CHUNK_BOUNDS(ne0, chunk)
    const long i1 = ITEM_ID(1) % ne1, i2 = ITEM_ID(1) / ne1;
    const int id = *AT(const int, ids_buf, ids_off + i1 * ids_nb0 + i2 * ids_nb1);
    const int inside = id >= 0 && id < n_table_rows;
    global const char *a = a_buf + a_off + i1 * a_nb1 + i2 * a_nb2;
    global const char *b = b_buf + b_off + (inside ? id * b_nb1 : 0);
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2;
    const float mark = inside ? 0.0f : NAN;
    long i = first;
    for (; i + 8 <= last; i += 8) store8_f32(load8_f32(a, i) + load8_f32(b, i) + mark, d, i);
    for (; i < last; i++) store1_f32(load1_f32(a, i) + load1_f32(b, i) + mark, d, i);
}

// y = f(x) with up to two parameters.
#define UNARY(NAME, FUNCTION) \
KERNEL NAME(ITEM \
    global const char *x_buf, ulong x_off, global char *d_buf, ulong d_off, \
    int chunk, int ne0, int ne1, int ne2, ulong x_nb1, ulong x_nb2, ulong x_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float p0, float p1) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(ITEM_ID(1), ne1, ne2) \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    long i = first; \
    for (; i + 8 <= last; i += 8) store8_f32(FUNCTION##8(load8_f32(x, i), p0, p1), d, i); \
    for (; i < last; i++) store1_f32(FUNCTION##8((float8)load1_f32(x, i), p0, p1).s0, d, i); \
}

static float8 scaled8(float8 x, float factor, float bias) { return x * factor + bias; }
static float8 clamped8(float8 x, float low, float high) { return clamp(x, low, high); }
static float8 filled8(float8 unused, float value, float unused1) { return value; }
static float8 tanh8(float8 x, float unused0, float unused1) { return tanh(x); }
static float8 silu8(float8 x, float unused0, float unused1) { return x / (1.0f + exp(-x)); }
static float8 sigmoid8(float8 x, float unused0, float unused1) { return 1.0f / (1.0f + exp(-x)); }
static float8 softplus8(float8 x, float unused0, float unused1)
{
    return select(log(1.0f + exp(x)), x, x > 20.0f);
}
// The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x^2))). ggml's CPU looks it up by the
// half float next to x, in a table of half floats, unless x is far from zero.
static float8 gelu8(float8 x, float unused0, float unused1)
{
    const float8 t = round_half8(x);
    const float8 factor = 1.0f + tanh(0.79788456080286535588f * t * (1.0f + 0.044715f * t * t));
    const float8 near = round_half8(0.5f * t * factor);
    return select(select(near, x, x >= 10.0f), (float8)0, x <= -10.0f);
}

UNARY(scale, scaled)
UNARY(clamp_to, clamped)
UNARY(fill, filled)
UNARY(tanh_of, tanh)
UNARY(silu, silu)
UNARY(sigmoid, sigmoid)
UNARY(softplus, softplus)
UNARY(gelu, gelu)

// Gated units of gate and up with two parameters; both may be halves of one tensor.
static float8 swiglu8(float8 gate, float8 up, float unused0, float unused1)
{
    return silu8(gate, 0, 0) * up;
}
static float8 geglu8(float8 gate, float8 up, float unused0, float unused1)
{
    return gelu8(gate, 0, 0) * up;
}
static float8 swiglu_oai8(float8 gate, float8 up, float alpha, float limit)
{
    const float8 below = fmin(gate, limit);
    return below / (1.0f + exp(-alpha * below)) * (clamp(up, -limit, limit) + 1.0f);
}

#define GLU(NAME) \
KERNEL NAME(ITEM \
    global const char *g_buf, ulong g_off, global const char *u_buf, ulong u_off, \
    global char *d_buf, ulong d_off, int chunk, int ne0, int ne1, int ne2, \
    ulong g_nb1, ulong g_nb2, ulong g_nb3, ulong u_nb1, ulong u_nb2, ulong u_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float p0, float p1) \
{ \
    CHUNK_BOUNDS(ne0, chunk) \
    ROW_INDICES(ITEM_ID(1), ne1, ne2) \
    global const char *g = g_buf + g_off + i1 * g_nb1 + i2 * g_nb2 + i3 * g_nb3; \
    global const char *u = u_buf + u_off + i1 * u_nb1 + i2 * u_nb2 + i3 * u_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    long i = first; \
    for (; i + 8 <= last; i += 8) \
        store8_f32(NAME##8(load8_f32(g, i), load8_f32(u, i), p0, p1), d, i); \
    for (; i < last; i++) \
        store1_f32( \
            NAME##8((float8)load1_f32(g, i), (float8)load1_f32(u, i), p0, p1).s0, d, i); \
}

GLU(swiglu)
GLU(geglu)
GLU(swiglu_oai)
