// Resizing along one axis: every output element is a weighted sum of TAPS input elements, whose
// positions and weights the host has worked out. Rows of other axes are `inner` elements apart.

__kernel void resize_axis(
    __global const STORED(T) *restrict x,
    __global STORED(TC) *restrict y,
    __global const int *restrict positions,
    __global const SUM(T) *restrict weights,
    const int taps,
    const long length)
{
    const size_t n = get_global_id(0);
    const long inner = get_global_size(0);
    const long o = get_global_id(1);
    const long outer = get_global_id(2);
    const long from = outer * length * inner + n;
    SUM(T) total = 0;
    for (int tap = 0; tap < taps; tap++)
        total += weights[o * taps + tap] * LOAD(T, x, from + positions[o * taps + tap] * inner);
    STORE(TC, y, (outer * get_global_size(1) + o) * inner + n, total);
}

// The nearest element, unchanged.
__kernel void pick_axis(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    __global const int *restrict positions,
    const long length)
{
    const size_t n = get_global_id(0);
    const long inner = get_global_size(0);
    const long o = get_global_id(1);
    const long outer = get_global_id(2);
    y[(outer * get_global_size(1) + o) * inner + n] =
        x[(outer * length + positions[o]) * inner + n];
}
