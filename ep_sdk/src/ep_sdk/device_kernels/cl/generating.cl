// Tensors that are made from a few numbers.

__kernel void count_up(__global STORED(T) *restrict y, const NUMBER start, const NUMBER step)
{
    const size_t i = get_global_id(0);
    STORE(T, y, i, start + (NUMBER)i * step);
}

// Scale and zero point of unsigned bytes that cover all values and 0.
__kernel void dynamic_parameters(
    __global const float *restrict lowest,
    __global const float *restrict highest,
    __global float *restrict scale,
    __global uchar *restrict zero)
{
    const float low = fmin(lowest[0], 0.0f);
    const float high = fmax(highest[0], 0.0f);
    const float found = low == high ? 1.0f : (high - low) / 255.0f;
    scale[0] = found;
    zero[0] = convert_uchar_sat(rint(clamp(-low / found, 0.0f, 255.0f)));
}

__kernel void dynamic_quantize(
    __global const float *restrict x,
    __global uchar *restrict y,
    __global const float *restrict scale,
    __global const uchar *restrict zero)
{
    const size_t i = get_global_id(0);
    y[i] = convert_uchar_sat(clamp(rint(x[i] / scale[0]) + (float)zero[0], 0.0f, 255.0f));
}
