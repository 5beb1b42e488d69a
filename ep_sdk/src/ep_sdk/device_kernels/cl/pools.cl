// Pools over up to three spatial dimensions; see windows.cl for the arguments.
//
// KIND is 0 for the maximum, 1 for the average, 2 for the root of order `order` of the sum of powers.
// With POSITIONS the place of each maximum in the whole input is written too, the first of equal ones;
// `by_columns` counts the first spatial dimension of a plane fastest.

__kernel void pool(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    const int4 in,
    const int4 out,
    const int4 window,
    const int4 stride,
    const int4 dilation,
    const int4 pad,
    const int4 end,
    const int counts_padding,
    const int order
#ifdef POSITIONS
    , __global long *restrict positions,
    const int by_columns
#endif
    )
{
    const size_t ow = get_global_id(0);
    const int oh = get_global_id(1);
    const int od = get_global_id(2) % out.x;
    const long plane = get_global_id(2) / out.x;
    __global const STORED(T) *from = x + plane * in.x * in.y * in.z;
#if KIND == 0
    COMPUTED(T) best = LOWEST(T);
    int best_d = -1;
    int best_h = -1;
    int best_w = -1;
#else
    SUM(T) sum = 0;
#endif
    int count = 0;
    for (int kd = 0; kd < window.x; kd++) {
        const int d = od * stride.x - pad.x + kd * dilation.x;
        for (int kh = 0; kh < window.y; kh++) {
            const int h = oh * stride.y - pad.y + kh * dilation.y;
            for (int kw = 0; kw < window.z; kw++) {
                const int w = (int)ow * stride.z - pad.z + kw * dilation.z;
                const bool inside = d >= 0 && d < in.x && h >= 0 && h < in.y && w >= 0 && w < in.z;
                // A window may reach beyond the padding where lengths are rounded up.
                const bool counted = d < in.x + end.x && h < in.y + end.y && w < in.z + end.z;
                if (inside) {
                    const COMPUTED(T) value = LOAD(T, from, (d * in.y + h) * in.z + w);
#if KIND == 0
                    if (best_d < 0 || value > best || (value != value && best == best)) {
                        best_d = d;
                        best_h = h;
                        best_w = w;
                    }
                    best = LARGER(value, best);
#elif KIND == 1
                    sum += value;
#else
                    sum += pow(fabs(value), (COMPUTED(T))order);
#endif
                }
                count += inside || (counts_padding && counted);
            }
        }
    }
    const size_t at = ((plane * out.x + od) * out.y + oh) * out.z + ow;
#if KIND == 0
    STORE(T, y, at, best);
#ifdef POSITIONS
    if (best_d < 0) best_d = best_h = best_w = 0;
    const long place = by_columns
        ? best_d + in.x * (best_h + (long)in.y * best_w)
        : (best_d * (long)in.y + best_h) * in.z + best_w;
    positions[at] = plane * in.x * in.y * in.z + place;
#endif
#elif KIND == 1
    STORE(T, y, at, sum / (SUM(T))count);
#else
    STORE(T, y, at, pow(sum, (SUM(T))1 / (SUM(T))order));
#endif
}
