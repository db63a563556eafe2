// Blocks of 32 elements rounded to few bits, as ggml's CPU does.

// The nearest whole numbers, halves to even; |x| < 2^22. PoCL's rint is a call for every element.
static float8 whole8(float8 x)
{
    return copysign((fabs(x) + 0x1p23f) - 0x1p23f, x);
}

// The largest magnitude of a block.
static float largest_of(global const char *x, long begin, int block)
{
    float8 largest = 0;
    for (long i = begin; i < begin + block; i += 8) largest = fmax(largest, fabs(load8_f32(x, i)));
    return max8(largest);
}

// What is stored as d of a block of q8_0, q8_1: a half float.
static float step_of_q8(float largest)
{
    return round_half8((float8)(largest / 127.0f)).s0;
}

static float inverse_of_q8(float largest)
{
    return largest != 0.0f ? 127.0f / largest : 0.0f;
}

// What is stored as d of a block of q8_K: a float.
static float step_of_q8_k(float largest)
{
    return largest != 0.0f ? 1.0f / inverse_of_q8(largest) : 0.0f;
}
