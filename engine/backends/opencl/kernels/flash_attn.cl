// FLASH_ATTN_EXT: softmax(scale * q k^T + mask) v with a running maximum, float32 sums. Built once
// a pair of cache types, which the build options name: key8(row, i) and value8(row, i) give the
// elements i..i+7 of a row of k or v; and for heads of up to MAX_HEAD elements.
//
// Item = (QUERIES queries, head, batch); QUERIES is defined at the build. Eight rows of k and v at
// a time are unpacked once for all queries of the item. A group of rows that the mask hides from a
// query is skipped for it. Unless keys are multiplied in tiles ggml's CPU goes key by key
// (`by_key`), and its results are the reference: queries are rounded to what k is multiplied with,
// halves, bf16 or blocks of q8_0, and running sums over a half float v to half precision.
// Shapes: q [dk, t, h], k [dk, n_kv, hk], v [dv, n_kv, hk], mask [n_kv, t], d [dv, h, t].

#define GROUP 8
#define DOT_STEP 64

#if defined(VALUE_F16)
#define HALF_SUMS 1
#else
#define HALF_SUMS 0
#endif

// Sums of eight vectors as one vector: pairs are added until one is left.
static float8 sums8(
    float8 a, float8 b, float8 c, float8 d, float8 e, float8 f, float8 g, float8 h)
{
    const float8 ab = (float8)(a.even + a.odd, b.even + b.odd);
    const float8 cd = (float8)(c.even + c.odd, d.even + d.odd);
    const float8 ef = (float8)(e.even + e.odd, f.even + f.odd);
    const float8 gh = (float8)(g.even + g.odd, h.even + h.odd);
    const float8 abcd = (float8)(ab.even + ab.odd, cd.even + cd.odd);
    const float8 efgh = (float8)(ef.even + ef.odd, gh.even + gh.odd);
    return (float8)(abcd.even + abcd.odd, efgh.even + efgh.odd);
}

// What rows of k are longer than a multiple of DOT_STEP, on top of `sums`: ggml adds that up in
// double precision, here each sum carries what rounding took from it.
static float8 add_rest8(float8 sums, const float *query, const float *keys, int begin, int dk)
{
    float8 lost = 0;
    for (int i = begin; i < dk; i++) {
        const float *key = keys + i;
        const float8 column = (float8)(
            key[0], key[dk], key[2 * dk], key[3 * dk],
            key[4 * dk], key[5 * dk], key[6 * dk], key[7 * dk]);
        const float8 term = query[i] * column;
        const float8 next = sums + term;
        const float8 added = next - sums;
        lost += (sums - (next - added)) + (term - added);
        sums = next;
    }
    return sums + lost;
}

// The dot products of one query with the eight unpacked rows of k.
static float8 dots8(const float *query, const float *keys, int dk)
{
    float8 a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    const int whole = dk - dk % DOT_STEP;
    for (int i = 0; i < whole; i += 8) {
        const float8 q = READ8(private, query + i);
        a += q * READ8(private, keys + i);
        b += q * READ8(private, keys + dk + i);
        c += q * READ8(private, keys + 2 * dk + i);
        d += q * READ8(private, keys + 3 * dk + i);
        e += q * READ8(private, keys + 4 * dk + i);
        f += q * READ8(private, keys + 5 * dk + i);
        g += q * READ8(private, keys + 6 * dk + i);
        h += q * READ8(private, keys + 7 * dk + i);
    }
    const float8 sums = sums8(a, b, c, d, e, f, g, h);
    return whole == dk ? sums : add_rest8(sums, query, keys, whole, dk);
}

// Running sums in half precision, key by key: a key that is a new maximum first scales what is
// there by keep, then weight * value is added; each step is rounded. A keep of 1 scales nothing.
static void add_values_half(
    float *out, const float *weight, const float *keep, const float *values, int dv)
{
    for (int i = 0; i < dv; i += 8) {
        float8 sum = READ8(private, out + i);
        for (int r = 0; r < GROUP; r++) {
            if (keep[r] != 1.0f) sum = round_half8(sum * keep[r]);
            sum = round_half8(sum + weight[r] * READ8(private, values + r * dv + i));
        }
        WRITE8(private, sum, out + i);
    }
}

// out = out * keep + weights . values
static void add_values(float *out, float8 weights, float keep, const float *values, int dv)
{
    for (int i = 0; i < dv; i += 8) {
        float8 sum = READ8(private, out + i) * keep;
        sum += weights.s0 * READ8(private, values + i);
        sum += weights.s1 * READ8(private, values + dv + i);
        sum += weights.s2 * READ8(private, values + 2 * dv + i);
        sum += weights.s3 * READ8(private, values + 3 * dv + i);
        sum += weights.s4 * READ8(private, values + 4 * dv + i);
        sum += weights.s5 * READ8(private, values + 5 * dv + i);
        sum += weights.s6 * READ8(private, values + 6 * dv + i);
        sum += weights.s7 * READ8(private, values + 7 * dv + i);
        WRITE8(private, sum, out + i);
    }
}

// What eight keys in order, as ggml's loop over keys takes them, weigh and leave of what is there;
// hidden keys (-inf) change nothing. The largest logit and the sum of weights move on.
static void weigh_keys(float *top, float *sum, float8 logits, float *weight, float *keep)
{
    float logit[GROUP], before[GROUP];
    WRITE8(private, logits, logit);
    float highest = *top;
    for (int r = 0; r < GROUP; r++) {
        before[r] = highest;
        highest = fmax(highest, logit[r]);
    }
    const float8 tops = READ8(private, before);
    const int8 is_new = logits > tops;
    // Either the old maximum shrinks against the new one or the key against the old one.
    const float8 shrunk = exp(-fabs(logits - tops));
    const float8 weights = select(shrunk, (float8)1, is_new);
    WRITE8(private, select((float8)1, shrunk, is_new), keep);
    WRITE8(private, select(weights, (float8)0, logits == (float8)-INFINITY), weight);
    for (int r = 0; r < GROUP; r++) *sum = *sum * keep[r] + weight[r];
    *top = highest;
}

static void add_keys_half(
    float *out, float *top, float *sum, float8 logits, const float *values, int dv)
{
    float weight[GROUP], keep[GROUP];
    weigh_keys(top, sum, logits, weight, keep);
    add_values_half(out, weight, keep, values, dv);
}

// Eight keys at once against one new maximum.
static void add_keys(
    float *out, float *top, float *sum, float8 logits, const float *values, int dv)
{
    const float new_top = fmax(*top, max8(logits));
    if (new_top == -INFINITY) return;
    const float keep = exp(*top - new_top);
    const float8 weights = exp(logits - new_top);
    add_values(out, weights, keep, values, dv);
    *sum = *sum * keep + sum8(weights);
    *top = new_top;
}

// Rows first..first+7 of k or v, read by READ; rows past the end repeat the last one.
#define UNPACK_GROUP(READ, rows, nb1, first, n_rows, width, out) \
    for (int r = 0; r < GROUP; r++) { \
        global const char *row = (rows) + min((first) + r, (n_rows) - 1) * (nb1); \
        for (int i = 0; i < (width); i += 8) \
            WRITE8(private, READ(row, i), (out) + r * (width) + i); \
    }

#if defined(KEY_F16)
static void round_query(float *query, int dk)
{
    for (int i = 0; i < dk; i += 8)
        WRITE8(private, round_half8(READ8(private, query + i)), query + i);
}
#elif defined(KEY_BF16)
static void round_query(float *query, int dk)
{
    for (int i = 0; i < dk; i += 8)
        WRITE8(private, round_bf16_8(READ8(private, query + i)), query + i);
}
#elif defined(KEY_F32)
static void round_query(float *unused0, int unused1) {}
#else
// In blocks of q8_0.
static void round_query(float *query, int dk)
{
    for (int begin = 0; begin < dk; begin += 32) {
        float8 top = 0;
        for (int i = begin; i < begin + 32; i += 8)
            top = fmax(top, fabs(READ8(private, query + i)));
        const float largest = max8(top);
        const float inverse = inverse_of_q8(largest), step = step_of_q8(largest);
        for (int i = begin; i < begin + 32; i += 8)
            WRITE8(private, whole8(READ8(private, query + i) * inverse) * step, query + i);
    }
}
#endif

// What the mask adds to eight keys of a query; -inf for keys past the end.
static float8 mask_group(global const char *mask, int has_mask, int first, int n_kv)
{
    if (first + GROUP <= n_kv) return has_mask ? load8_f16(mask, first) : (float8)0;
    float values[GROUP];
    for (int r = 0; r < GROUP; r++) {
        const int inside = first + r < n_kv;
        values[r] = !inside ? -INFINITY : has_mask ? load1_f16(mask, first + r) : 0.0f;
    }
    return READ8(private, values);
}

// What the sum of weights is divided by: `sum` is relative to the largest logit `top`, a sink (-inf
// where there is none) is one more logit. A query that sees nothing gives zeros.
static float share_of_one(float top, float sum, float sink)
{
    if (top == -INFINITY) return 0.0f;
    const float highest = fmax(top, sink);
    const float keep = exp(top - highest);
    return keep / (sum * keep + exp(sink - highest));
}

#define ATTENTION \
    global const char *q_buf, ulong q_off, global const char *k_buf, ulong k_off, \
    global const char *v_buf, ulong v_off, global const char *m_buf, ulong m_off, \
    global const char *s_buf, ulong s_off, global char *d_buf, ulong d_off, \
    int dk, int dv, int n_queries, int n_kv, \
    int q_heads_per_k, int q_heads_per_v, int batch_per_k, int batch_per_v, \
    int has_mask, int m_ne2, int m_ne3, int has_sinks, int n_full, int by_key, \
    ulong q_nb1, ulong q_nb2, ulong q_nb3, ulong k_nb1, ulong k_nb2, ulong k_nb3, \
    ulong v_nb1, ulong v_nb2, ulong v_nb3, ulong m_nb1, ulong m_nb2, ulong m_nb3, \
    ulong d_nb1, ulong d_nb2, ulong d_nb3, float scale, float softcap, float max_bias

// Where the head of this item has its rows.
#define SELECT_HEAD \
    const long head = ITEM_ID(1), i3 = ITEM_ID(2); \
    global const char *q = q_buf + q_off + head * q_nb2 + i3 * q_nb3; \
    global const char *k = \
        k_buf + k_off + head / q_heads_per_k * k_nb2 + i3 / batch_per_k * k_nb3; \
    global const char *v = \
        v_buf + v_off + head / q_heads_per_v * v_nb2 + i3 / batch_per_v * v_nb3; \
    global const char *m = m_buf + m_off + head % m_ne2 * m_nb2 + i3 % m_ne3 * m_nb3; \
    global char *d = d_buf + d_off + head * d_nb1 + i3 * d_nb3; \
    const float slope = slope_of(head, n_full, max_bias); \
    const float sink = has_sinks ? load1_f32(s_buf + s_off, head) : -INFINITY;

KERNEL flash_attn(ITEM ATTENTION)
{
    const int half_sums = HALF_SUMS && by_key;
    const int first_query = ITEM_ID(0) * QUERIES;
    const int count = min(QUERIES, n_queries - first_query);
    if (count <= 0) return;
    SELECT_HEAD
    float queries[QUERIES * MAX_HEAD], out[QUERIES * MAX_HEAD];
    float keys[GROUP * MAX_HEAD], values[GROUP * MAX_HEAD];
    float top[QUERIES], sum[QUERIES];
    for (int j = 0; j < count; j++) {
        global const char *query = q + (first_query + j) * q_nb1;
        for (int i = 0; i < dk; i += 8)
            WRITE8(private, load8_f32(query, i), queries + j * dk + i);
        if (by_key) round_query(queries + j * dk, dk);
        for (int i = 0; i < dv; i += 8) WRITE8(private, (float8)0, out + j * dv + i);
        top[j] = -INFINITY;
        sum[j] = 0;
    }

    for (int first = 0; first < n_kv; first += GROUP) {
        int unpacked = 0;
        for (int j = 0; j < count; j++) {
            const float8 bias = mask_group(m + (first_query + j) * m_nb1, has_mask, first, n_kv);
            if (max8(bias) == -INFINITY) continue;
            if (!unpacked) {
                UNPACK_GROUP(key8, k, k_nb1, first, n_kv, dk, keys)
                UNPACK_GROUP(value8, v, v_nb1, first, n_kv, dv, values)
                unpacked = 1;
            }
            float8 logits = dots8(queries + j * dk, keys, dk) * scale;
            if (softcap != 0.0f) logits = softcap * tanh(logits);
            logits += slope * bias;
            if (half_sums) add_keys_half(out + j * dv, top + j, sum + j, logits, values, dv);
            else add_keys(out + j * dv, top + j, sum + j, logits, values, dv);
        }
    }

    for (int j = 0; j < count; j++) {
        const float factor = share_of_one(top[j], sum[j], sink);
        global char *row = d + (first_query + j) * d_nb2;
        for (int i = 0; i < dv; i += 8)
            store8_f32(READ8(private, out + j * dv + i) * factor, row, i);
    }
}

#if defined(DEVICE_CPU)
#define STEP 32

// The dot products of a query with eight rows of k as they lie; dk is a multiple of DOT_STEP.
static float8 dots8_of_rows(const float *query, global const char *const *rows, int dk)
{
    float8 a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (int i = 0; i < dk; i += 8) {
        const float8 q = READ8(private, query + i);
        a += q * key8(rows[0], i);
        b += q * key8(rows[1], i);
        c += q * key8(rows[2], i);
        d += q * key8(rows[3], i);
        e += q * key8(rows[4], i);
        f += q * key8(rows[5], i);
        g += q * key8(rows[6], i);
        h += q * key8(rows[7], i);
    }
    return sums8(a, b, c, d, e, f, g, h);
}

// add_values_half and add_values from rows of v as they lie, STEP sums at a time so that roundings
// do not wait for one another; dv is a multiple of STEP.
static void add_rows_half(
    float *out, const float *weight, const float *keep, global const char *const *rows, int dv)
{
    for (int i = 0; i < dv; i += STEP) {
        float8 a = READ8(private, out + i), b = READ8(private, out + i + 8);
        float8 c = READ8(private, out + i + 16), d = READ8(private, out + i + 24);
        for (int r = 0; r < GROUP; r++) {
            if (keep[r] != 1.0f) {
                a = round_half8(a * keep[r]);
                b = round_half8(b * keep[r]);
                c = round_half8(c * keep[r]);
                d = round_half8(d * keep[r]);
            }
            a = round_half8(a + weight[r] * value8(rows[r], i));
            b = round_half8(b + weight[r] * value8(rows[r], i + 8));
            c = round_half8(c + weight[r] * value8(rows[r], i + 16));
            d = round_half8(d + weight[r] * value8(rows[r], i + 24));
        }
        WRITE8(private, a, out + i);
        WRITE8(private, b, out + i + 8);
        WRITE8(private, c, out + i + 16);
        WRITE8(private, d, out + i + 24);
    }
}

static void add_rows(
    float *out, const float *weight, const float *keep, global const char *const *rows, int dv)
{
    for (int i = 0; i < dv; i += 8) {
        float8 sum = READ8(private, out + i);
        for (int r = 0; r < GROUP; r++) sum = sum * keep[r] + weight[r] * value8(rows[r], i);
        WRITE8(private, sum, out + i);
    }
}

// flash_attn for a single query: rows of k and v are read as they lie, since no other query of the
// item would use what is unpacked. dk is a multiple of DOT_STEP, dv of STEP.
KERNEL flash_attn_one(ITEM ATTENTION)
{
    SELECT_HEAD
    float query[MAX_HEAD], out[MAX_HEAD];
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < dk; i += 8) WRITE8(private, load8_f32(q, i), query + i);
    if (by_key) round_query(query, dk);
    for (int i = 0; i < dv; i += 8) WRITE8(private, (float8)0, out + i);

    for (int first = 0; first < n_kv; first += GROUP) {
        const float8 bias = mask_group(m, has_mask, first, n_kv);
        if (max8(bias) == -INFINITY) continue;
        global const char *k_rows[GROUP], *v_rows[GROUP];
        for (int r = 0; r < GROUP; r++) {
            const long row = min(first + r, n_kv - 1);
            k_rows[r] = k + row * k_nb1;
            v_rows[r] = v + row * v_nb1;
        }
        float8 logits = dots8_of_rows(query, k_rows, dk) * scale;
        if (softcap != 0.0f) logits = softcap * tanh(logits);
        logits += slope * bias;
        float weight[GROUP], keep[GROUP];
        weigh_keys(&top, &sum, logits, weight, keep);
        if (HALF_SUMS) add_rows_half(out, weight, keep, v_rows, dv);
        else add_rows(out, weight, keep, v_rows, dv);
    }

    const float factor = share_of_one(top, sum, sink);
    for (int i = 0; i < dv; i += 8) store8_f32(READ8(private, out + i) * factor, d, i);
}
#endif
