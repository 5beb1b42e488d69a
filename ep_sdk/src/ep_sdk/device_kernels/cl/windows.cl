// Convolutions over up to three spatial dimensions: depth, height, width. Lower ranks have
// lengths of 1 in front.
//
// Steps, pads and dilations come as int4 with depth in x, height in y and width in z.

// The part of the input under each output position as a matrix of panels: rows are the positions of
// the window in all channels of a group, columns the output positions. Products of matrices then do
// the work. A work-item writes one column for one channel; neighbours write neighbours.
__kernel void unfold(
    __global const STORED(T) *restrict x,
    __global NUMBER *restrict packed,
    const long x_start,
    const int channels,
    const int4 in,
    const int4 out,
    const int4 window,
    const int4 stride,
    const int4 dilation,
    const int4 pad,
    const int panel_length
    SHIFT_PARAMETERS)
{
    const size_t lane = get_global_id(0);
    const int position = get_global_id(1) * panel_length + lane;
    const int channel = get_global_id(2) % channels;
    const long matrix = get_global_id(2) / channels;
    const int count = window.x * window.y * window.z;
    const bool used = position < out.x * out.y * out.z;
    const int w0 = position % out.z * stride.z - pad.z;
    const int h0 = position / out.z % out.y * stride.y - pad.y;
    const int d0 = position / (out.z * out.y) * stride.x - pad.x;
    __global const STORED(T) *plane =
        x + x_start + get_global_id(2) * (long)in.x * in.y * in.z;
    const long panels = get_global_size(1);
    size_t to = ((matrix * panels + get_global_id(1)) * channels + channel) * count * panel_length
        + lane;
    for (int kd = 0; kd < window.x; kd++) {
        const int d = d0 + kd * dilation.x;
        for (int kh = 0; kh < window.y; kh++) {
            const int h = h0 + kh * dilation.y;
            const bool inside = used && d >= 0 && d < in.x && h >= 0 && h < in.y;
            for (int kw = 0; kw < window.z; kw++) {
                const int w = w0 + kw * dilation.z;
                NUMBER value = 0;
                if (inside && w >= 0 && w < in.z)
                    value = (NUMBER)LOAD(T, plane, (d * in.y + h) * in.z + w) X_SHIFT;
                packed[to] = value;
                to += panel_length;
            }
        }
    }
}

// The transpose of a convolution, gathered: an output element takes what every input element under
// whose window it lies sends there. Weights are [input channel][output channel of the group][...].
//
// Neighbours of a launch are elements of one row, `stride.z` apart: the same places of the window meet
// them, and they read neighbours.
__kernel void convolve_transposed(
    __global const STORED(T) *restrict x,
    __global const STORED(TW) *restrict weight,
    __global STORED(TC) *restrict y,
    const int channels,
    const int out_channels,
    const int groups,
    const int4 in,
    const int4 out,
    const int4 window,
    const int4 stride,
    const int4 dilation,
    const int4 pad
    TAIL_PARAMETERS)
{
    const int place = get_global_id(0);
    const int oh = get_global_id(1);
    int rest = get_global_id(2);
    const int phase = rest % stride.z;
    rest /= stride.z;
    const int od = rest % out.x;
    rest /= out.x;
    const int m = rest % out_channels;
    const int image = rest / out_channels;
    const size_t ow = (size_t)place * stride.z + phase;
    if (ow >= (size_t)out.z) return;
    const int own = out_channels / groups;
    const int group = m / own;
    const int area = window.x * window.y * window.z;
    NUMBER value = 0;
    for (int kd = 0; kd < window.x; kd++) {
        const int d = od + pad.x - kd * dilation.x;
        if (d < 0 || d % stride.x || d / stride.x >= in.x) continue;
        for (int kh = 0; kh < window.y; kh++) {
            const int h = oh + pad.y - kh * dilation.y;
            if (h < 0 || h % stride.y || h / stride.y >= in.y) continue;
            for (int kw = 0; kw < window.z; kw++) {
                const int shift = phase + pad.z - kw * dilation.z;
                if (shift % stride.z) continue;
                const int w = place + shift / stride.z;
                if (w < 0 || w >= in.z) continue;
                const int from = ((d / stride.x) * in.y + h / stride.y) * in.z + w;
                const int tap = (kd * window.y + kh) * window.z + kw;
                for (int c = 0; c < channels; c++) {
                    const int whole = group * channels + c;
                    const long plane =
                        ((long)image * groups * channels + whole) * in.x * in.y * in.z;
                    const long k = ((long)whole * own + m % own) * area + tap;
                    value += (NUMBER)LOAD(T, x, plane + from) * (NUMBER)LOAD(TW, weight, k);
                }
            }
        }
    }
    const size_t at =
        ((((long)image * out_channels + m) * out.x + od) * out.y + oh) * out.z + ow;
    STORE(TC, y, at, TAIL(value, m, at));
}
