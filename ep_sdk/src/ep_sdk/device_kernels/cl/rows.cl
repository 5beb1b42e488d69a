// Kernels that combine the elements of a row: reductions, softmax, normalisations.
//
// Where the elements of a row are neighbours, a group of GROUP work-items shares a row: each takes
// every GROUP-th element, and a tree in local memory joins what they found. That keeps loads of
// neighbours together, and sums of long rows accurate. Where neighbours belong to different rows,
// a work-item takes a whole row and neighbours still load neighbours.

#define GROUP 64
#define TOTAL SUM(T)

// Joins one value of each work-item; everybody gets the result. COMBINE names a macro of two values.
#define JOIN_GROUP(COMBINE, shared, value) \
    { \
        shared[get_local_id(0)] = value; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (int half_way = GROUP / 2; half_way; half_way /= 2) { \
            if (get_local_id(0) < half_way) \
                shared[get_local_id(0)] = \
                    COMBINE(shared[get_local_id(0)], shared[get_local_id(0) + half_way]); \
            barrier(CLK_LOCAL_MEM_FENCE); \
        } \
        value = shared[0]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
#define ADD_UP(a, b) ((a) + (b))

#ifdef START
// START is what an empty row gives, TERM(v) what an element adds, COMBINE(a, b) joins two parts and
// FINISH(total, count) is the result.
__kernel GROUP_SIZE(GROUP, 1, 1)
void reduce_rows(
    __global const STORED(T) *restrict x,
    __global STORED(TC) *restrict y,
    const long length)
{
    __local TOTAL shared[GROUP];
    const long row = get_group_id(0);
    __global const STORED(T) *from = x + row * length;
    TOTAL total = START;
    for (long i = get_local_id(0); i < length; i += GROUP) {
        const TOTAL value = LOAD(T, from, i);
        total = COMBINE(total, TERM(value));
    }
    JOIN_GROUP(COMBINE, shared, total)
    if (get_local_id(0) == 0) STORE(TC, y, row, FINISH(total, length));
}

__kernel void reduce_columns(
    __global const STORED(T) *restrict x,
    __global STORED(TC) *restrict y,
    const long length)
{
    const size_t column = get_global_id(0);
    const long columns = get_global_size(0);
    const long outer = get_global_id(1);
    TOTAL total = START;
    for (long i = 0; i < length; i++) {
        const TOTAL value = LOAD(T, x, (outer * length + i) * columns + column);
        total = COMBINE(total, TERM(value));
    }
    STORE(TC, y, outer * columns + column, FINISH(total, length));
}
#endif

#ifdef IS_BETTER
// Position of the largest or smallest element; of equal ones the first, or the last.
__kernel void find_position(
    __global const STORED(T) *restrict x,
    __global long *restrict y,
    const long length)
{
    const size_t column = get_global_id(0);
    const long columns = get_global_size(0);
    const long outer = get_global_id(1);
    long best = 0;
    COMPUTED(T) found = LOAD(T, x, outer * length * columns + column);
    for (long i = 1; i < length; i++) {
        const COMPUTED(T) value = LOAD(T, x, (outer * length + i) * columns + column);
        if (IS_BETTER(value, found)) {
            found = value;
            best = i;
        }
    }
    y[outer * columns + column] = best;
}
#endif

#ifdef SOFTMAX
// SOFTMAX(e, total) from the exponential of an element, LOGARITHM(v, total) from the element itself;
// both relative to the row's largest element, so that nothing overflows.
__kernel GROUP_SIZE(GROUP, 1, 1)
void softmax_rows(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    const long length)
{
    __local TOTAL shared[GROUP];
    const long row = get_group_id(0) * length;
    TOTAL largest = LOWEST(T);
    for (long i = get_local_id(0); i < length; i += GROUP) {
        const TOTAL value = LOAD(T, x, row + i);
        largest = LARGER(value, largest);
    }
    JOIN_GROUP(LARGER, shared, largest)
    TOTAL total = 0;
    for (long i = get_local_id(0); i < length; i += GROUP)
        total += exp(LOAD(T, x, row + i) - largest);
    JOIN_GROUP(ADD_UP, shared, total)
    for (long i = get_local_id(0); i < length; i += GROUP)
        STORE(T, y, row + i, SOFTMAX(LOAD(T, x, row + i) - largest, total));
}

__kernel void softmax_columns(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    const long length)
{
    const long columns = get_global_size(0);
    const size_t from = get_global_id(1) * length * columns + get_global_id(0);
    TOTAL largest = LOWEST(T);
    for (long i = 0; i < length; i++) {
        const TOTAL value = LOAD(T, x, from + i * columns);
        largest = LARGER(value, largest);
    }
    TOTAL total = 0;
    for (long i = 0; i < length; i++) total += exp(LOAD(T, x, from + i * columns) - largest);
    for (long i = 0; i < length; i++)
        STORE(T, y, from + i * columns, SOFTMAX(LOAD(T, x, from + i * columns) - largest, total));
}

// The logarithm of the sum of exponentials of a row; an empty row gives that of 0.
__kernel GROUP_SIZE(GROUP, 1, 1)
void log_sum_exp_rows(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    const long length)
{
    __local TOTAL shared[GROUP];
    const long row = get_group_id(0) * length;
    TOTAL largest = LOWEST(T);
    for (long i = get_local_id(0); i < length; i += GROUP) {
        const TOTAL value = LOAD(T, x, row + i);
        largest = LARGER(value, largest);
    }
    JOIN_GROUP(LARGER, shared, largest)
    // An infinite largest element minus itself would be no number.
    const TOTAL base = isinf(largest) ? 0 : largest;
    TOTAL total = 0;
    for (long i = get_local_id(0); i < length; i += GROUP)
        total += exp(LOAD(T, x, row + i) - base);
    JOIN_GROUP(ADD_UP, shared, total)
    if (get_local_id(0) == 0) STORE(T, y, get_group_id(0), log(total) + base);
}
#endif

#ifdef SCALE_AT
// Subtracts the mean of a row and divides by its standard deviation, then scales. Two passes: the
// second sums squares of differences, which loses nothing where the mean is large.
// SCALE_AT(row, i) says which scale belongs to element i of a row.
__kernel GROUP_SIZE(GROUP, 1, 1)
void normalize_rows(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    __global const STORED(TW) *restrict scale,
    __global const STORED(TW) *restrict bias,
    const long length,
    const TOTAL epsilon,
    const long channels,
    const long plane
    STATISTICS)
{
    __local TOTAL shared[GROUP];
    const long row = get_group_id(0);
    const long from = row * length;
    TOTAL mean = 0;
#ifdef CENTERED
    for (long i = get_local_id(0); i < length; i += GROUP) mean += LOAD(T, x, from + i);
    JOIN_GROUP(ADD_UP, shared, mean)
    mean /= length;
#endif
    TOTAL squares = 0;
    for (long i = get_local_id(0); i < length; i += GROUP) {
        const TOTAL distance = LOAD(T, x, from + i) - mean;
        squares += distance * distance;
    }
    JOIN_GROUP(ADD_UP, shared, squares)
    const TOTAL factor = 1 / sqrt(squares / length + epsilon);
    for (long i = get_local_id(0); i < length; i += GROUP) {
        TOTAL value = ROUNDED(T, (LOAD(T, x, from + i) - mean) * factor);
        value *= LOAD(TW, scale, SCALE_AT(row, i));
#ifdef HAS_BIAS
        value += LOAD(TW, bias, SCALE_AT(row, i));
#endif
        STORE(T, y, from + i, value);
    }
    KEEP_STATISTICS
}
#endif
