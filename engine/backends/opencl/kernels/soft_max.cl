// SOFT_MAX: item = one row.
//
// The mask repeats over dimensions 2 and 3, which are heads and batches. A sink is one more logit
// of a head, which only takes its share. The logits are kept in d between the passes.

#define SOFT_MAX(NAME, MASK8, MASK1) \
KERNEL NAME(ITEM \
    global const char *x_buf, ulong x_off, global const char *m_buf, ulong m_off, \
    global const char *s_buf, ulong s_off, global char *d_buf, ulong d_off, \
    int ne0, int ne1, int ne2, int n_rows, int m_ne2, int m_ne3, int has_sinks, int n_full, \
    ulong x_nb1, ulong x_nb2, ulong x_nb3, ulong m_nb1, ulong m_nb2, ulong m_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float scale, float max_bias) \
{ \
    const long row = ITEM_ID(0); \
    if (row >= n_rows) return; \
    const long i1 = row % ne1, i2 = row / ne1 % ne2, i3 = row / ((long)ne1 * ne2); \
    global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3; \
    global const char *m = m_buf + m_off + i1 * m_nb1 + i2 % m_ne2 * m_nb2 + i3 % m_ne3 * m_nb3; \
    global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3; \
    const float sink = has_sinks ? load1_f32(s_buf + s_off, i2) : -INFINITY; \
    const float slope = slope_of(i2, n_full, max_bias); \
    float8 top8 = -INFINITY; \
    int i = 0; \
    for (; i + 8 <= ne0; i += 8) { \
        const float8 v = load8_f32(x, i) * scale + slope * MASK8; \
        store8_f32(v, d, i); \
        top8 = fmax(top8, v); \
    } \
    float top = fmax(max8(top8), sink); \
    for (; i < ne0; i++) { \
        const float v = load1_f32(x, i) * scale + slope * MASK1; \
        store1_f32(v, d, i); \
        top = fmax(top, v); \
    } \
    float8 sums = 0; \
    for (i = 0; i + 8 <= ne0; i += 8) { \
        const float8 e = exp(load8_f32(d, i) - top); \
        store8_f32(e, d, i); \
        sums += e; \
    } \
    float sum = sum8(sums) + (has_sinks ? exp(sink - top) : 0.0f); \
    for (; i < ne0; i++) { \
        const float e = exp(load1_f32(d, i) - top); \
        store1_f32(e, d, i); \
        sum += e; \
    } \
    const float factor = 1.0f / sum; \
    for (i = 0; i + 8 <= ne0; i += 8) store8_f32(load8_f32(d, i) * factor, d, i); \
    for (; i < ne0; i++) store1_f32(load1_f32(d, i) * factor, d, i); \
}

SOFT_MAX(soft_max, 0.0f, 0.0f)
SOFT_MAX(soft_max_f32, load8_f32(m, i), load1_f32(m, i))
SOFT_MAX(soft_max_f16, load8_f16(m, i), load1_f16(m, i))
