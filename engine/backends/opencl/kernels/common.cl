// Shared by every family: addressing, vectors, sums.
//
// A tensor argument is a pair (buffer, offset in bytes); strides nb are bytes, ne and nb in ggml
// order. Offsets are multiples of the element size only. No vector has more than 8 floats: PoCL 3.0
// breaks on wider ones.
//
// PoCL 3.0 calls its library for every vload8 and fma. CPU devices therefore read vectors through
// types of lower alignment, and products are added with plain operators, which contract.

#pragma OPENCL FP_CONTRACT ON

#define VEC_ROWS 4  // weight rows that are multiplied with a column side by side

#define AT(type, base, off) ((global type *)((base) + (off)))

// A kernel is launched by itself, or as a step among others (steps.cl): then it is a function that
// is given its item.
#if defined(AS_STEPS)
#define KERNEL static void
#define ITEM const ulong *item,
#define ITEM_ID(d) item[d]
#else
#define KERNEL kernel void
#define ITEM
#define ITEM_ID(d) get_global_id(d)
#endif

#if defined(DEVICE_CPU)
typedef float8 loose_float8 __attribute__((aligned(4)));
typedef ushort8 loose_ushort8 __attribute__((aligned(2)));
typedef short8 loose_short8 __attribute__((aligned(2)));
typedef short16 loose_short16 __attribute__((aligned(2)));
typedef uchar8 loose_uchar8 __attribute__((aligned(1)));
typedef char8 loose_char8 __attribute__((aligned(1)));
#define READ8(space, p) (*(space const loose_float8 *)(p))
#define WRITE8(space, v, p) (*(space loose_float8 *)(p) = (v))
#define READ_USHORT8(p) (*(global const loose_ushort8 *)(p))
#define READ_UCHAR8(p) (*(global const loose_uchar8 *)(p))
#define READ_CHAR8(p) (*(global const loose_char8 *)(p))
#else
#define READ8(space, p) vload8(0, (space const float *)(p))
#define WRITE8(space, v, p) vstore8(v, 0, (space float *)(p))
#define READ_USHORT8(p) vload8(0, (global const ushort *)(p))
#define READ_UCHAR8(p) vload8(0, (global const uchar *)(p))
#define READ_CHAR8(p) vload8(0, (global const char *)(p))
#endif

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

// Finite half floats, weights and caches; a half float eight times; and the nearest half-precision
// values, to even, of |x| < 65520. x86 processors convert in one instruction, which compilers of
// CPU drivers do not find on their own. Where there is none the exponent is moved up and the value
// scaled, which holds for small values too, but not for infinities.
#if defined(DEVICE_CPU) && defined(__F16C__)
typedef short machine_short8 __attribute__((vector_size(16)));
typedef float machine_float8 __attribute__((vector_size(32)));
#define FROM_HALVES(v) \
    __builtin_astype(__builtin_ia32_vcvtph2ps256(__builtin_astype(v, machine_short8)), float8)
static float8 finite8_of(ushort8 halves) { return FROM_HALVES(halves); }
static float8 spread_f16(global const char *p)
{
    return FROM_HALVES((ushort8)*(global const ushort *)p);
}
static float finite1_f16(global const char *p) { return spread_f16(p).s0; }
static float8 round_half8(float8 x)
{
    // 0: to nearest, halves to even.
    return FROM_HALVES(__builtin_ia32_vcvtps2ph256(__builtin_astype(x, machine_float8), 0));
}
#else
#if defined(DEVICE_CPU)
static float8 finite8_of(ushort8 halves)
{
    const uint8 bits = convert_uint8(halves);
    const float8 magnitude = as_float8((bits & 0x7fffu) << 13) * 0x1p112f;
    return as_float8(as_uint8(magnitude) | ((bits & 0x8000u) << 16));
}
static float finite1_f16(global const char *p)
{
    const uint bits = *(global const ushort *)p;
    const float magnitude = as_float((bits & 0x7fffu) << 13) * 0x1p112f;
    return as_float(as_uint(magnitude) | ((bits & 0x8000u) << 16));
}
#else
static float8 finite8_f16(global const char *p) { return vload_half8(0, (global const half *)p); }
static float finite1_f16(global const char *p) { return vload_half(0, (global const half *)p); }
#endif
static float8 spread_f16(global const char *p) { return finite1_f16(p); }
static float8 round_half8(float8 x)
{
    const uint8 bits = as_uint8(x);
    const float8 normal = as_float8((bits + 0xFFFu + ((bits >> 13) & 1u)) & 0xFFFFE000u);
    // Below 2^-14 halves are multiples of 2^-24, as floats from 0.5 on are.
    const float8 small = copysign((fabs(x) + 0.5f) - 0.5f, x);
    return select(normal, small, fabs(x) < 6.103515625e-5f);
}
#endif

#if defined(DEVICE_CPU)
static float8 finite8_f16(global const char *p) { return finite8_of(READ_USHORT8(p)); }
#endif

// The nearest bf16 values, to even: upper halves of floats.
static float8 round_bf16_8(float8 x)
{
    const uint8 bits = as_uint8(x);
    return as_float8((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

// Element access by type, so that one body serves f32 and f16.
static float load1_f32(global const char *row, long i)
{
    return AT(const float, row, i * 4)[0];
}
static float load1_f16(global const char *row, long i)
{
    return vload_half(i, (global const half *)row);
}
static float8 load8_f32(global const char *row, long i)
{
    return READ8(global, row + i * 4);
}
static float8 load8_f16(global const char *row, long i)
{
    return vload_half8(0, AT(const half, row, i * 2));
}
static void store1_f32(float v, global char *row, long i)
{
    AT(float, row, i * 4)[0] = v;
}
static void store1_f16(float v, global char *row, long i)
{
    vstore_half_rte(v, i, (global half *)row);
}
static void store8_f32(float8 v, global char *row, long i)
{
    WRITE8(global, v, row + i * 4);
}
static void store8_f16(float8 v, global char *row, long i)
{
    vstore_half8_rte(v, 0, AT(half, row, i * 2));
}

#if defined(TYPE_IQ4_NL)
// What the numbers 0..15 of iq4_nl stand for.
constant char uneven_steps[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#endif
