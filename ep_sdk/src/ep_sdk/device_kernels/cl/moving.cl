// Moving elements without changing them. UNIT is an unsigned integer of the element's size; RANK is
// the number of dimensions that are left after joining those that lie one behind the other.
//
// A work-item moves one element. The two fastest dimensions are dimensions of the launch, so that
// neighbours read and write neighbours; the others share the third.

#define OUTER(n) \
    if (RANK > n) { \
        const size_t at = rest % (size_t)length.s##n; \
        rest /= (size_t)length.s##n; \
        from += at * from_step.s##n; \
        to += at * to_step.s##n; \
    }

__kernel void move(
    __global const UNIT *restrict source,
    __global UNIT *restrict target,
    const long source_start,
    const long target_start,
    const long8 length,
    const long8 from_step,
    const long8 to_step)
{
    const size_t x = get_global_id(0);
#ifdef NEIGHBOURS
    // Both sides move by one along the fastest dimension: said here, loads and stores are wide.
    long from = source_start + x;
    long to = target_start + x;
#else
    long from = source_start + x * from_step.s0;
    long to = target_start + x * to_step.s0;
#endif
    if (RANK > 1) {
        from += get_global_id(1) * from_step.s1;
        to += get_global_id(1) * to_step.s1;
    }
    size_t rest = get_global_id(2);
    OUTER(2)
    OUTER(3)
    OUTER(4)
    OUTER(5)
    OUTER(6)
    OUTER(7)
    target[to] = source[from];
}

// Transposes the two fastest dimensions through local memory, so that both the reads and the writes
// of neighbours are to neighbours. TILE is 32: a tile of 32 x 33 elements; the odd row length
// spreads a column over the banks.
#define TILE 32

__kernel GROUP_SIZE(32, 8, 1)
void transpose_tiled(
    __global const UNIT *restrict source,
    __global UNIT *restrict target,
    const long rows,
    const long columns)
{
    __local UNIT tile[TILE][TILE + 1];
    const long batch = get_group_id(2) * rows * columns;
    const long x = get_group_id(0) * TILE + get_local_id(0);
    const long y = get_group_id(1) * TILE + get_local_id(1);
    for (int row = 0; row < TILE; row += 8)
        if (x < columns && y + row < rows)
            tile[get_local_id(1) + row][get_local_id(0)] =
                source[batch + (y + row) * columns + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    const long to_x = get_group_id(1) * TILE + get_local_id(0);
    const long to_y = get_group_id(0) * TILE + get_local_id(1);
    for (int row = 0; row < TILE; row += 8)
        if (to_x < rows && to_y + row < columns)
            target[batch + (to_y + row) * rows + to_x] =
                tile[get_local_id(0)][get_local_id(1) + row];
}

// Padding: for every dimension, where an element of the output comes from. MODE is 0 for a constant,
// 1 for the edge's value, 2 for reflection without the edge, 3 for going round.
inline long padded_source(long at, long length)
{
#if MODE == 1
    return clamp(at, 0L, length - 1);
#elif MODE == 2
    const long period = max(2 * (length - 1), 1L);
    const long along = ((at % period) + period) % period;
    return along < length ? along : period - along;
#elif MODE == 3
    return ((at % length) + length) % length;
#else
    return at;
#endif
}

#define PADDED(n) \
    if (RANK > n) { \
        const long at = padded_source((long)(rest % (size_t)to_length.s##n) - before.s##n, \
                                      from_length.s##n); \
        rest /= (size_t)to_length.s##n; \
        inside = inside && at >= 0 && at < from_length.s##n; \
        from += at * step; \
        step *= from_length.s##n; \
    }

__kernel void pad(
    __global const UNIT *restrict source,
    __global UNIT *restrict target,
    __global const UNIT *restrict value,
    const long8 to_length,
    const long8 from_length,
    const long8 before)
{
    size_t rest = get_global_id(0);
    long from = 0;
    long step = 1;
    bool inside = true;
    PADDED(0)
    PADDED(1)
    PADDED(2)
    PADDED(3)
    PADDED(4)
    PADDED(5)
    PADDED(6)
    PADDED(7)
    target[get_global_id(0)] = inside ? source[from] : value[0];
}

__kernel void fill(__global UNIT *restrict target, const UNIT value)
{
    target[get_global_id(0)] = value;
}

// The upper or lower triangle of each matrix, zeros elsewhere.
__kernel void triangle(
    __global const UNIT *restrict source,
    __global UNIT *restrict target,
    const long rows,
    const long columns,
    const long diagonal,
    const int upper)
{
    const size_t position = get_global_id(0);
    const long column = position % columns;
    const long row = (position / columns) % rows;
    const bool kept = upper ? column - row >= diagonal : column - row <= diagonal;
    target[position] = kept ? source[position] : (UNIT)0;
}
