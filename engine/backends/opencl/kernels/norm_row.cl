// A row divided by its root mean square, for RMS_NORM by itself and in a chain.

static void normalize_row(global const char *x, global char *norm, int n, float eps)
{
    float8 squares = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        const float8 v = load8_f32(x, i);
        squares += v * v;
    }
    float total = sum8(squares);
    for (; i < n; i++) total += load1_f32(x, i) * load1_f32(x, i);
    const float factor = 1.0f / sqrt(total / n + eps);
    for (i = 0; i + 8 <= n; i += 8) store8_f32(load8_f32(x, i) * factor, norm, i);
    for (; i < n; i++) store1_f32(load1_f32(x, i) * factor, norm, i);
}
