// Reading and writing at positions that a tensor of indices names.
//
// UNIT is an unsigned integer of an element's size, TI the code of the indices' type. An index
// counts from the end where it is negative. One that is out of range is noted in `fault` and reads
// or writes the nearest element instead, so that no memory is touched that isn't ours.

#define OUT_OF_RANGE 1

inline long checked_index(long index, long length, __global int *fault)
{
    const long at = index < 0 ? index + length : index;
    if (at < 0 || at >= length) {
        *fault = OUT_OF_RANGE;
        return clamp(at, 0L, length - 1);
    }
    return at;
}

// Whole slices: `inner` elements for each index. The dimensions of the launch are the place in the
// slice, the index, and the slices in front.
__kernel void gather(
    __global const UNIT *restrict data,
    __global const STORED(TI) *restrict indices,
    __global UNIT *restrict target,
    __global int *fault,
    const long length)
{
    const size_t x = get_global_id(0);
    const long inner = get_global_size(0);
    const long number = get_global_id(1);
    const long outer = get_global_id(2);
    const long at = checked_index(LOAD(TI, indices, number), length, fault);
    target[(outer * get_global_size(1) + number) * inner + x] =
        data[(outer * length + at) * inner + x];
}

// The position in `data` of an element of `indices`, but for the axis that the index replaces.
#define ALONG(n) \
    if (RANK > n) { \
        const long here = rest % (size_t)shape.s##n; \
        rest /= (size_t)shape.s##n; \
        if (n != AXIS) from += here * step.s##n; \
    }
#define FIND_ELEMENT \
    size_t rest = get_global_id(0); \
    long from = 0; \
    ALONG(0) ALONG(1) ALONG(2) ALONG(3) ALONG(4) ALONG(5) ALONG(6) ALONG(7)

__kernel void gather_elements(
    __global const UNIT *restrict data,
    __global const STORED(TI) *restrict indices,
    __global UNIT *restrict target,
    __global int *fault,
    const long8 shape,
    const long8 step,
    const long length,
    const long axis_step)
{
    FIND_ELEMENT
    const long at = checked_index(LOAD(TI, indices, get_global_id(0)), length, fault);
    target[get_global_id(0)] = data[from + at * axis_step];
}

// Tuples of WIDE indices, each naming a slice of `inner` elements; `batch` tuples share a batch.
__kernel void gather_nd(
    __global const UNIT *restrict data,
    __global const STORED(TI) *restrict indices,
    __global UNIT *restrict target,
    __global int *fault,
    const int wide,
    const long8 length,
    const long8 step,
    const long batch,
    const long batch_step)
{
    const size_t x = get_global_id(0);
    const long number = get_global_id(1);
    long from = number / batch * batch_step + x;
    const long lengths[8] = {length.s0, length.s1, length.s2, length.s3,
                             length.s4, length.s5, length.s6, length.s7};
    const long steps[8] = {step.s0, step.s1, step.s2, step.s3, step.s4, step.s5, step.s6, step.s7};
    for (int k = 0; k < wide; k++)
        from += steps[k] * checked_index(LOAD(TI, indices, number * wide + k), lengths[k], fault);
    target[number * get_global_size(0) + x] = data[from];
}

#ifdef REDUCE
// REDUCE(old, new) says what becomes of an element that an update hits. One work-item does all
// updates of a line one after the other, so that updates of one element come in their order.
__kernel void scatter_elements(
    __global const STORED(T) *restrict updates,
    __global const STORED(TI) *restrict indices,
    __global STORED(T) *restrict target,
    __global int *fault,
    const long8 shape,
    const long8 step,
    const long8 index_step,
    const long count,
    const long length)
{
    // The launch goes over all but the axis; shape.s<AXIS> is 1.
    size_t rest = get_global_id(0);
    long to = 0;
    long first = 0;
#define LINE(n) \
    if (RANK > n) { \
        const long here = rest % (size_t)shape.s##n; \
        rest /= (size_t)shape.s##n; \
        to += here * step.s##n; \
        first += here * index_step.s##n; \
    }
    LINE(0) LINE(1) LINE(2) LINE(3) LINE(4) LINE(5) LINE(6) LINE(7)
    for (long i = 0; i < count; i++) {
        const long number = first + i * AXIS_INDEX_STEP;
        const long at = to + AXIS_STEP * checked_index(LOAD(TI, indices, number), length, fault);
        const COMPUTED(T) older = LOAD(T, target, at);
        const COMPUTED(T) newer = LOAD(T, updates, number);
        STORE(T, target, at, REDUCE(older, newer));
    }
}

__kernel void scatter_nd(
    __global const STORED(T) *restrict updates,
    __global const STORED(TI) *restrict indices,
    __global STORED(T) *restrict target,
    __global int *fault,
    const int wide,
    const long8 length,
    const long8 step,
    const long count)
{
    const size_t x = get_global_id(0);
    const long lengths[8] = {length.s0, length.s1, length.s2, length.s3,
                             length.s4, length.s5, length.s6, length.s7};
    const long steps[8] = {step.s0, step.s1, step.s2, step.s3, step.s4, step.s5, step.s6, step.s7};
    for (long number = 0; number < count; number++) {
        long at = x;
        for (int k = 0; k < wide; k++)
            at += steps[k]
                * checked_index(LOAD(TI, indices, number * wide + k), lengths[k], fault);
        const COMPUTED(T) older = LOAD(T, target, at);
        const COMPUTED(T) newer = LOAD(T, updates, number * get_global_size(0) + x);
        STORE(T, target, at, REDUCE(older, newer));
    }
}
#endif

#ifdef CLAIMS
// Updates that replace elements, all at once: first each claims its element, or its slice, with its
// number, of which the largest stays; then those that hold their claim write. That is what they would
// leave one after the other.
__kernel void claim_elements(
    __global const STORED(TI) *restrict indices,
    __global int *restrict claims,
    __global int *fault,
    const long8 shape,
    const long8 step,
    const long length,
    const long axis_step)
{
    FIND_ELEMENT
    const long at = checked_index(LOAD(TI, indices, get_global_id(0)), length, fault);
    atomic_max(claims + from + at * axis_step, (int)get_global_id(0));
}

__kernel void place_elements(
    __global const UNIT *restrict updates,
    __global const STORED(TI) *restrict indices,
    __global UNIT *restrict target,
    __global int *fault,
    __global const int *restrict claims,
    const long8 shape,
    const long8 step,
    const long length,
    const long axis_step)
{
    FIND_ELEMENT
    const long at =
        from + axis_step * checked_index(LOAD(TI, indices, get_global_id(0)), length, fault);
    if (claims[at] == (int)get_global_id(0)) target[at] = updates[get_global_id(0)];
}

#define FIND_SLICE \
    const long lengths[8] = {length.s0, length.s1, length.s2, length.s3, \
                             length.s4, length.s5, length.s6, length.s7}; \
    const long steps[8] = {step.s0, step.s1, step.s2, step.s3, \
                           step.s4, step.s5, step.s6, step.s7}; \
    long slice = 0; \
    for (int k = 0; k < wide; k++) \
        slice += steps[k] * checked_index(LOAD(TI, indices, number * wide + k), lengths[k], fault);

__kernel void claim_slices(
    __global const STORED(TI) *restrict indices,
    __global int *restrict claims,
    __global int *fault,
    const int wide,
    const long8 length,
    const long8 step)
{
    const long number = get_global_id(0);
    FIND_SLICE
    atomic_max(claims + slice, (int)number);
}

__kernel void place_slices(
    __global const UNIT *restrict updates,
    __global const STORED(TI) *restrict indices,
    __global UNIT *restrict target,
    __global int *fault,
    __global const int *restrict claims,
    const int wide,
    const long8 length,
    const long8 step)
{
    const size_t x = get_global_id(0);
    const long inner = get_global_size(0);
    const long number = get_global_id(1);
    FIND_SLICE
    if (claims[slice] == (int)number) target[slice * inner + x] = updates[number * inner + x];
}
#endif

#ifdef RUNNING_SUM
__kernel void running_sum(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict y,
    const long length,
    const int exclusive,
    const int backwards)
{
    const long columns = get_global_size(0);
    const size_t from = get_global_id(1) * length * columns + get_global_id(0);
    SUM(T) total = 0;
    for (long i = 0; i < length; i++) {
        const size_t at = from + (backwards ? length - 1 - i : i) * columns;
        const COMPUTED(T) value = LOAD(T, x, at);
        if (exclusive) STORE(T, y, at, total);
        total += value;
        if (!exclusive) STORE(T, y, at, total);
    }
}
#endif

#ifdef ONE_HOT
__kernel void one_hot(
    __global const STORED(TI) *restrict indices,
    __global const UNIT *restrict values,
    __global UNIT *restrict target,
    const long depth)
{
    const size_t x = get_global_id(0);
    const long inner = get_global_size(0);
    const long row = get_global_id(1);
    const long outer = get_global_id(2);
    const long index = (long)LOAD(TI, indices, outer * inner + x);
    const long at = index < 0 ? index + depth : index;
    target[(outer * depth + row) * inner + x] = values[at == row];
}
#endif
