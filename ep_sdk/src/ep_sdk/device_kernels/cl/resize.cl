// Resizing along one axis: every output element is a weighted sum of TAPS input elements, whose
// positions and weights the host has worked out. Rows of other axes are `inner` elements apart.
//
// The fastest dimension of the launch is the one in which neighbours lie side by side: the axis itself
// where it is the last (LAST), else the elements behind it.

#ifdef LAST
#define FIND_PLACE \
    const size_t n = 0; \
    const long inner = 1; \
    const long o = get_global_id(0); \
    const long resized = get_global_size(0); \
    const long outer = get_global_id(1);
#else
#define FIND_PLACE \
    const size_t n = get_global_id(0); \
    const long inner = get_global_size(0); \
    const long o = get_global_id(1); \
    const long resized = get_global_size(1); \
    const long outer = get_global_id(2);
#endif

__kernel void resize_axis(
    __global const STORED(T) *restrict x,
    __global STORED(TC) *restrict y,
    __global const int *restrict positions,
    __global const SUM(T) *restrict weights,
    const int taps,
    const long length)
{
    FIND_PLACE
    const long from = outer * length * inner + n;
    SUM(T) total = 0;
    for (int tap = 0; tap < taps; tap++)
        total += weights[o * taps + tap] * LOAD(T, x, from + positions[o * taps + tap] * inner);
    STORE(TC, y, (outer * resized + o) * inner + n, total);
}

// The nearest element, unchanged. UNIT is an unsigned integer of its size: not every compiler has
// variables of halves.
__kernel void pick_axis(
    __global const UNIT *restrict x,
    __global UNIT *restrict y,
    __global const int *restrict positions,
    const long length)
{
    FIND_PLACE
    y[(outer * resized + o) * inner + n] =
        x[(outer * length + positions[o]) * inner + n];
}
