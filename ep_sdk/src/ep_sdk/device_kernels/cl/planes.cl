// Convolutions over padded planes: the input with its padding written out, so that no kernel has to
// ask where the border is. See windows.cl for the arguments that they share.
//
// `padded` has the lengths of a plane with its padding.

__kernel void pad_planes(
    __global const STORED(T) *restrict x,
    __global NUMBER *restrict planes,
    const int4 in,
    const int4 padded,
    const int4 pad
    SHIFT_PARAMETERS)
{
    const size_t w = get_global_id(0);
    const int h = get_global_id(1);
    const int d = get_global_id(2) % padded.x;
    const long plane = get_global_id(2) / padded.x;
    const long from_w = (long)w - pad.z;
    const int from_h = h - pad.y;
    const int from_d = d - pad.x;
    const bool inside = from_w >= 0 && from_w < in.z && from_h >= 0 && from_h < in.y
        && from_d >= 0 && from_d < in.x;
    NUMBER value = 0;
    if (inside)
        value = (NUMBER)LOAD(T, x, ((plane * in.x + from_d) * in.y + from_h) * in.z + from_w)
            X_SHIFT;
    planes[(get_global_id(2) * padded.y + h) * padded.z + w] = value;
}

// One output element a work-item: for groups of few channels, where a product of matrices would be
// too narrow to pay. The third dimension is image, output channel and depth.
__kernel void convolve_planes(
    __global const NUMBER *restrict planes,
    __global const STORED(TW) *restrict weight,
    __global STORED(TC) *restrict y,
    const int channels,
    const int out_channels,
    const int groups,
    const int4 padded,
    const int4 out,
    const int4 window,
    const int4 stride,
    const int4 dilation
    SHIFT_PARAMETERS
    TAIL_PARAMETERS)
{
    const size_t ow = get_global_id(0);
    const long oh = get_global_id(1);
    long rest = get_global_id(2);
    const long od = rest % out.x;
    rest /= out.x;
    const long m = rest % out_channels;
    const long image = rest / out_channels;
    const long group = m / (out_channels / groups);
    const long plane = (long)padded.x * padded.y * padded.z;
    __global const STORED(TW) *k =
        weight + m * channels * window.x * window.y * window.z;
    __global const NUMBER *from = planes + (image * groups + group) * channels * plane
        + (od * stride.x * padded.y + oh * stride.y) * padded.z;
#ifdef STEP_1
    const size_t x = ow;
#else
    const long x = ow * stride.z;
#endif
    NUMBER value = 0;
    for (int c = 0; c < channels; c++) {
        for (int kd = 0; kd < window.x; kd++) {
            for (int kh = 0; kh < window.y; kh++) {
                __global const NUMBER *row = from
                    + ((long)kd * dilation.x * padded.y + kh * dilation.y) * padded.z;
                for (int kw = 0; kw < window.z; kw++) {
                    value += row[x + kw * dilation.z] * ((NUMBER)LOAD(TW, k, 0) W_SHIFT(m));
                    k++;
                }
            }
        }
        from += plane;
    }
    const size_t at =
        ((((long)image * out_channels + m) * out.x + od) * out.y + oh) * out.z + ow;
    STORE(TC, y, at, TAIL((RESULT)value, m, at));
}

#ifndef PART_CHANNELS
#define PART_CHANNELS 1
#endif

#ifdef TM
// A convolution of step 1 as a product of matrices, without unfolding: if output positions are
// counted along the padded rows, the inputs of neighbouring positions are neighbours for every place
// of the window. A few positions at the end of each row are computed in vain and not stored. The
// tile is that of gemm_panels in gemm.cl. Planes have PANEL elements more than they need at the end.
__kernel GROUP_SIZE(1, 1, 1)
void multiply_planes(
    __global const NUMBER *restrict planes,
    __global const STORED(TW) *restrict weight,
    __global STORED(TC) *restrict y,
    const int channels,
    const int out_channels,
    const int groups,
    const int4 padded,
    const int4 out,
    const int4 window,
    const int4 dilation
    SHIFT_PARAMETERS
    TAIL_PARAMETERS)
{
    const long rows = out_channels / groups;
    const long m0 = get_global_id(0) * TM;
    const long p0 = get_global_id(1) * PANEL;
    const long group = get_global_id(2) % groups;
    const long image = get_global_id(2) / groups;
    const long plane = (long)padded.x * padded.y * padded.z;
    const long depth = (long)channels * window.x * window.y * window.z;

    // Rows beyond the end read the last one and are not stored.
    __global const STORED(TW) *k = weight + group * rows * depth;
    long from[TM];
    UNROLL
    for (int i = 0; i < TM; i++) from[i] = min(m0 + i, rows - 1) * depth;

    BEGIN_SUMS

    __global const NUMBER *x = planes + (image * groups + group) * channels * plane + p0;
    for (int c = 0; c < channels; c++) {
        for (int kd = 0; kd < window.x; kd++) {
            for (int kh = 0; kh < window.y; kh++) {
                __global const NUMBER *b =
                    x + ((long)kd * dilation.x * padded.y + kh * dilation.y) * padded.z;
                for (int kw = 0; kw < window.z; kw++) {
                    VECTOR right[TN];
                    UNROLL
                    for (int j = 0; j < TN; j++) right[j] = LOAD_VECTOR(b + j * WIDTH);
                    b += dilation.z;
                    UNROLL
                    for (int i = 0; i < TM; i++) {
                        const long m = min(m0 + i, rows - 1) + group * rows;
                        const VECTOR left = (VECTOR)((NUMBER)LOAD(TW, k, from[i]) W_SHIFT(m));
                        UNROLL
                        for (int j = 0; j < TN; j++)
                            sum[i][j] = MULTIPLY_ADD(left, right[j], sum[i][j]);
                    }
                    k++;
                }
            }
        }
        x += plane;
        // Parts end with a channel.
        if (c % PART_CHANNELS == PART_CHANNELS - 1) {
            ADD_PART
        }
    }
    ADD_PART

    const long size = (long)out.x * out.y * out.z;
    UNROLL
    for (int j = 0; j < TN; j++) {
        const long p = p0 + j * WIDTH;
        UNROLL
        for (int i = 0; i < TM; i++) {
            if (m0 + i >= rows) continue;
            RESULT values[WIDTH];
            JOIN(vstore, WIDTH)(TOTALS[i][j], 0, values);
            const long m = group * rows + m0 + i;
            const long start = (image * out_channels + m) * size;
            long w = p % padded.z;
            long h = p / padded.z % padded.y;
            long d = p / ((long)padded.z * padded.y);
            for (int v = 0; v < WIDTH; v++) {
                if (w < out.z && h < out.y && d < out.x) {
                    const long at = start + (d * out.y + h) * out.z + w;
                    STORE(TC, y, at, TAIL(values[v], m, at));
                }
                if (++w == padded.z) {
                    w = 0;
                    if (++h == padded.y) {
                        h = 0;
                        d++;
                    }
                }
            }
        }
    }
}
#endif
