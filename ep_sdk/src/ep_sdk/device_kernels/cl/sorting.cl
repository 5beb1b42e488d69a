// The first elements of each row in an order, equal ones in the order in which they lie.
//
// Chunks of a row are sorted by counting, for each element, those of its chunk that come before it.
// Then neighbouring lists are merged, pair by pair, until there is one: the place of an element is
// its own plus the number of elements of the other list before it, which is found by halving. No
// list keeps more elements than are wanted at the end. PRECEDES(a, b) is the order.
//
// `step_by` says how results lie: steps between outer rows, inner rows, lists, and places.

#define PLACE(row, inner, list, place) \
    ((row) / (inner) * step_by.s0 + (row) % (inner) * step_by.s1 + (list) * step_by.s2 \
     + (place) * step_by.s3)

__kernel void sort_chunks(
    __global const STORED(T) *restrict x,
    __global STORED(T) *restrict values,
    __global long *restrict places,
    const long length,
    const long inner,
    const long chunk,
    const long kept,
    const long4 step_by)
{
    const long i = get_global_id(0);
    const long row = get_global_id(1);
    const long from = row / inner * length * inner + row % inner;
    const long first = i / chunk * chunk;
    const long end = min(first + chunk, length);
    const COMPUTED(T) mine = LOAD(T, x, from + i * inner);
    long place = 0;
    for (long j = first; j < end; j++) {
        const COMPUTED(T) other = LOAD(T, x, from + j * inner);
        place += PRECEDES(other, mine) || (!PRECEDES(mine, other) && j < i);
    }
    if (place < kept) {
        const long to = PLACE(row, inner, i / chunk, place);
        STORE(T, values, to, mine);
        places[to] = i;
    }
}

// `covered` elements of a row stand behind each list, of which it keeps `capacity` at most.
__kernel void merge_lists(
    __global const STORED(T) *restrict values,
    __global const long *restrict places,
    __global STORED(T) *restrict new_values,
    __global long *restrict new_places,
    const long length,
    const long inner,
    const long covered,
    const long capacity,
    const long lists,
    const long kept,
    const long4 step_by)
{
    const long list = get_global_id(0) / capacity;
    const long place = get_global_id(0) % capacity;
    const long row = get_global_id(1);
    if (place >= length - list * covered) return;
    const long at = (row * lists + list) * capacity + place;
    const COMPUTED(T) mine = LOAD(T, values, at);
    const long other = list ^ 1;
    const long from = (row * lists + other) * capacity;
    // Equal elements of the list in front come before those of the one behind.
    const bool is_behind = list & 1;
    long low = 0;
    long high = other < lists ? min(capacity, length - other * covered) : 0;
    while (low < high) {
        const long middle = (low + high) / 2;
        const COMPUTED(T) value = LOAD(T, values, from + middle);
        const bool comes_first = is_behind ? !PRECEDES(mine, value) : PRECEDES(value, mine);
        low = comes_first ? middle + 1 : low;
        high = comes_first ? high : middle;
    }
    if (place + low < kept) {
        const long to = PLACE(row, inner, list / 2, place + low);
        STORE(T, new_values, to, mine);
        new_places[to] = places[at];
    }
}
