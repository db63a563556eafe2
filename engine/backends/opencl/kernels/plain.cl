// Types without blocks as float32: f32, f16, bf16. Built for the types that TYPE_... macros name.
//
// values8_T(row, i)   elements i..i+7
// values1_T(row, i)   one element: rows of these types may have any length

#if defined(TYPE_F32)
#define values8_f32(row, i) load8_f32(row, i)
#define values1_f32(row, i) load1_f32(row, i)
#endif

#if defined(TYPE_F16)
#define values8_f16(row, i) finite8_f16((row) + (i) * 2L)
#define values1_f16(row, i) finite1_f16((row) + (i) * 2L)
#endif

#if defined(TYPE_BF16)
// The upper half of a float.
static float8 values8_bf16(global const char *row, long i)
{
    return as_float8(convert_uint8(READ_USHORT8(row + i * 2)) << 16);
}

static float values1_bf16(global const char *row, long i)
{
    return as_float((uint)AT(const ushort, row, i * 2)[0] << 16);
}
#endif
