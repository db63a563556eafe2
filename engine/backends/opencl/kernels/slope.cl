// What a head multiplies its mask with (alibi): powers of 2^(-max_bias / n_full), whole ones for
// the first `n_full` heads, then those half-way between; 1 where max_bias is 0.
static float slope_of(long head, int n_full, float max_bias)
{
    const float power = head < n_full ? head + 1 : head - n_full + 0.5f;
    return exp2(-max_bias * power / n_full);
}
