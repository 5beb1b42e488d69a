// Finding the elements that aren't zero, in their order. A work-item looks at `block` neighbours:
// first all blocks are counted, then the host says where each of them begins in the result.

__kernel void count_found(
    __global const STORED(T) *restrict x,
    __global long *restrict counts,
    const long total,
    const long block)
{
    const size_t number = get_global_id(0);
    const long first = number * block;
    const long end = min(first + block, total);
    long count = 0;
    for (long i = first; i < end; i++) count += LOAD(T, x, i) != 0;
    counts[number] = count;
}

// Positions as numbers of elements, one behind the other.
__kernel void write_found(
    __global const STORED(T) *restrict x,
    __global const long *restrict starts,
    __global long *restrict found,
    const long total,
    const long block)
{
    const size_t number = get_global_id(0);
    const long first = number * block;
    const long end = min(first + block, total);
    long to = starts[number];
    for (long i = first; i < end; i++)
        if (LOAD(T, x, i) != 0) found[to++] = i;
}

// One row of `target` for each axis: the place along it of every position.
__kernel void split_positions(
    __global const long *restrict found,
    __global long *restrict target,
    const long step,
    const long length,
    const long start)
{
    const size_t number = get_global_id(0);
    target[start + number] = found[number] / step % length;
}
