// Shared by every family: addressing, sums of vectors, rows of weights.
//
// A tensor argument is a pair (buffer, offset in bytes); strides nb are bytes, ne and nb in ggml
// order. Offsets are multiples of the element size only, so vectors are read by vload8. No vector
// has more than 8 floats: PoCL 3.0 breaks on wider ones.

#define AT(type, base, off) ((global type *)((base) + (off)))

static float sum8(float8 v)
{
    float4 half_sum = v.lo + v.hi;
    float2 quarter_sum = half_sum.lo + half_sum.hi;
    return quarter_sum.x + quarter_sum.y;
}

static float max8(float8 v)
{
    float4 half_max = fmax(v.lo, v.hi);
    float2 quarter_max = fmax(half_max.lo, half_max.hi);
    return fmax(quarter_max.x, quarter_max.y);
}

// Element access by type, so that one body serves f32 and f16.
static float load1_f32(global const char *row, long i) { return AT(const float, row, i * 4)[0]; }
static float load1_f16(global const char *row, long i) { return vload_half(i, (global const half *)row); }
static float8 load8_f32(global const char *row, long i) { return vload8(0, AT(const float, row, i * 4)); }
static float8 load8_f16(global const char *row, long i) { return vload_half8(0, AT(const half, row, i * 2)); }
static void store1_f32(float v, global char *row, long i) { AT(float, row, i * 4)[0] = v; }
static void store1_f16(float v, global char *row, long i) { vstore_half_rte(v, i, (global half *)row); }
static void store8_f32(float8 v, global char *row, long i) { vstore8(v, 0, AT(float, row, i * 4)); }
static void store8_f16(float8 v, global char *row, long i) { vstore_half8_rte(v, 0, AT(half, row, i * 2)); }
