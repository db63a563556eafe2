// ROPE, of pairs 2j, 2j+1 or j, j + n_dims/2: item = (token, part of the heads). A token has one
// position, or four (time, height, width, extra), of which each pair takes one by its section.
//
// The angles of a token are computed once for all heads of the item. Angles are multiplied up pair
// by pair, as ggml does, so that rounding agrees with it.

#define MAX_PAIRS 256

// Blend of the interpolated and the extrapolated angle of pair j (yarn).
static float yarn_angle(float angle, int j, float freq_scale, float ext_factor, float lo, float hi)
{
    const float interpolated = freq_scale * angle;
    if (ext_factor == 0.0f) return interpolated;
    const float ramp = clamp((j - lo) / fmax(0.001f, hi - lo), 0.0f, 1.0f);
    const float mix = (1.0f - ramp) * ext_factor;
    return interpolated * (1.0f - mix) + angle * mix;
}

#define ONE_POSITION 0
#define IN_RUNS 1  // sections follow one another
#define IN_TURNS 2  // pairs take time, height and width in turn

// Which of a token's positions pair j turns by.
static int position_of(int j, int sections, int time, int height, int width, int extra)
{
    if (sections == ONE_POSITION) return 0;
    const int place = j % (time + height + width + extra);
    if (sections == IN_RUNS)
        return (place >= time) + (place >= time + height) + (place >= time + height + width);
    const int turn = place % 3;
    const int length = turn == 0 ? time : turn == 1 ? height : width;
    return place < 3 * length ? turn : 3;
}

KERNEL rope(ITEM
    global const char *x_buf, ulong x_off, global const char *pos_buf, ulong pos_off,
    global const char *ff_buf, ulong ff_off, global char *d_buf, ulong d_off,
    int ne0, int ne1, int ne2, int n_tokens, int heads_per_item, int has_factors,
    int n_dims, int offset, int pair_step, int pair_gap, int sections,
    int time, int height, int width, int extra, ulong pos_nb0,
    ulong x_nb1, ulong x_nb2, ulong x_nb3, ulong d_nb1, ulong d_nb2, ulong d_nb3,
    float theta_scale, float freq_scale, float ext_factor, float magnitude, float lo, float hi)
{
    const long i_token = ITEM_ID(0);
    if (i_token >= n_tokens) return;
    const long i2 = i_token % ne2, i3 = i_token / ne2;
    const int head_begin = ITEM_ID(1) * heads_per_item;
    const int head_end = min(head_begin + heads_per_item, ne1);
    const int n_pairs = n_dims / 2;

    float cosines[MAX_PAIRS], sines[MAX_PAIRS];
    float thetas[4];
    for (int i = 0; i < 4; i++) {
        const long i_position = sections == ONE_POSITION ? i2 : i2 + (long)i * ne2;
        thetas[i] = *AT(const int, pos_buf, pos_off + i_position * pos_nb0);
    }
    for (int j = 0; j < n_pairs; j++) {
        const float factor = has_factors ? load1_f32(ff_buf + ff_off, j) : 1.0f;
        const float theta = thetas[position_of(j, sections, time, height, width, extra)];
        cosines[j] = yarn_angle(theta / factor, j, freq_scale, ext_factor, lo, hi);
        for (int i = 0; i < 4; i++) thetas[i] *= theta_scale;
    }
    int j = 0;
    for (; j + 8 <= n_pairs; j += 8) {
        float8 cosine;
        const float8 sine = sincos(READ8(private, cosines + j), &cosine);
        WRITE8(private, sine * magnitude, sines + j);
        WRITE8(private, cosine * magnitude, cosines + j);
    }
    for (; j < n_pairs; j++) {
        const float angle = cosines[j];
        sines[j] = sin(angle) * magnitude;
        cosines[j] = cos(angle) * magnitude;
    }

    for (int i1 = head_begin; i1 < head_end; i1++) {
        global const char *x = x_buf + x_off + i1 * x_nb1 + i2 * x_nb2 + i3 * x_nb3;
        global char *d = d_buf + d_off + i1 * d_nb1 + i2 * d_nb2 + i3 * d_nb3;
        for (int k = 0; k < n_pairs; k++) {
            const int i = offset + k * pair_step;
            const float a = load1_f32(x, i), b = load1_f32(x, i + pair_gap);
            store1_f32(a * cosines[k] - b * sines[k], d, i);
            store1_f32(a * sines[k] + b * cosines[k], d, i + pair_gap);
        }
        for (int i = 0; i < offset; i++) store1_f32(load1_f32(x, i), d, i);
        for (int i = offset + n_dims; i < ne0; i++) store1_f32(load1_f32(x, i), d, i);
    }
}
