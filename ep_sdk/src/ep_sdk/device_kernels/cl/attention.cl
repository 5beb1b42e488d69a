// From scores to weights: scale, cap, mask, and softmax over the keys, in place.
//
// A group of GROUP work-items shares a row of keys, as in rows.cl. TM is the code of the mask's type
// where there is one. A row in which every key is forbidden gets zeros.

#define GROUP 64

#define JOIN_GROUP(EXPRESSION, shared, value) \
    { \
        shared[get_local_id(0)] = value; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (int half_way = GROUP / 2; half_way; half_way /= 2) { \
            if (get_local_id(0) < half_way) { \
                const NUMBER a = shared[get_local_id(0)]; \
                const NUMBER b = shared[get_local_id(0) + half_way]; \
                shared[get_local_id(0)] = EXPRESSION; \
            } \
            barrier(CLK_LOCAL_MEM_FENCE); \
        } \
        value = shared[0]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }

__kernel GROUP_SIZE(GROUP, 1, 1)
void weigh(
    __global NUMBER *restrict scores,
    const long keys,
    const long queries,
    const long heads,
    const NUMBER scale,
    const NUMBER cap,
    const int causal
    MASK_PARAMETERS)
{
    __local NUMBER shared[GROUP];
    const long row = get_group_id(0);
    const long query = row % queries;
    const long head = row / queries % heads;
    const long batch = row / (queries * heads);
    __global NUMBER *mine = scores + row * keys;
    NUMBER largest = -INFINITY;
    for (long key = get_local_id(0); key < keys; key += GROUP) {
        NUMBER value = mine[key] * scale;
        if (cap > 0) value = tanh(value / cap) * cap;
#ifdef TM
        if (key >= mask_keys) {
            value = -INFINITY;
        } else {
            const long at = batch * mask_batch + head * mask_head + query * mask_query
                + key * mask_key;
#ifdef MASK_IS_BOOL
            if (!mask[at]) value = -INFINITY;
#else
            value += LOAD(TM, mask, at);
#endif
        }
#endif
        if (causal && key > query) value = -INFINITY;
        mine[key] = value;
        largest = LARGER(value, largest);
    }
    JOIN_GROUP(LARGER(a, b), shared, largest)
    const NUMBER base = largest == -INFINITY ? 0 : largest;
    NUMBER total = 0;
    for (long key = get_local_id(0); key < keys; key += GROUP) {
        const NUMBER power = exp(mine[key] - base);
        mine[key] = power;
        total += power;
    }
    JOIN_GROUP(a + b, shared, total)
    const NUMBER divisor = total == 0 ? 1 : total;
    for (long key = get_local_id(0); key < keys; key += GROUP)
        mine[key] = ROUNDED(T, mine[key] / divisor);
}
