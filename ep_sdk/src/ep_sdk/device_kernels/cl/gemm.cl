// Products of matrices: C = A x B, for stacks of matrices, with a tail for each element of C.
//
// TA, TB, TC are codes of element types; NUMBER is the scalar in which sums are kept and WIDTH how
// many of them one vector register holds.
//
// `gemm_panels` is for processors. A work-item keeps a tile of TM x (TN vectors) of C in registers
// for the whole of K: with 32 registers of 16 floats, 8 x 2 leaves room for the two vectors of B and
// one of A, and 16 independent sums hide the latency of multiply-add. B comes in panels of TN vectors
// side by side, row after row, so that each is read from beginning to end.
//
// `gemm_tiled` is for GPUs. A group of 16 x 16 work-items computes 64 x 64 of C; both operands go
// through local memory in slices of 16, of which each work-item then uses 4 x 4 from registers: 8
// loads from local memory for 16 multiply-adds.
//
// TAIL(value, m, n, at) gives the element to store from the sum; `at` is its position in C.

#ifndef TAIL
#define TAIL(value, m, n, at) (value)
#endif
#ifndef TAIL_PARAMETERS
#define TAIL_PARAMETERS
#endif
#ifndef PACK_PARAMETERS
#define PACK_PARAMETERS
#endif
// What is added to an element of A in row m, or of B in column n, before it is multiplied.
#ifndef A_SHIFT
#define A_SHIFT(m)
#endif
#ifndef B_SHIFT
#define B_SHIFT(n)
#endif

// `start` has the first elements of A, B and C. Which matrix of each stack belongs to matrix number `batch` of the result.
#define STACKED(n) \
    { \
        const long at = rest % stack.s##n; \
        rest /= stack.s##n; \
        a_from += at * a_stack.s##n; \
        b_from += at * b_stack.s##n; \
    }
#define FIND_MATRICES \
    long a_from = start.s0; \
    long b_from = start.s1; \
    { \
        long rest = get_global_id(2); \
        STACKED(0) \
        STACKED(1) \
        STACKED(2) \
        STACKED(3) \
    }

#ifdef TM
// Lays the columns of B into panels of PANEL columns, filled up with zeros.
__kernel void pack_panels(
    __global const STORED(TB) *restrict b,
    __global NUMBER *restrict packed,
    const long rows,
    const long columns,
    const long row_step,
    const long column_step,
    const long start,
    const long matrix_step
    PACK_PARAMETERS)
{
    const size_t lane = get_global_id(0);
    const long panels = (columns + PANEL - 1) / PANEL;
    const long row = get_global_id(1);
    const long panel = get_global_id(2) % panels;
    const long matrix = get_global_id(2) / panels;
    const long column = panel * PANEL + lane;
    const size_t to = ((matrix * panels + panel) * rows + row) * PANEL + lane;
    const long from = start + matrix * matrix_step + row * row_step + column * column_step;
    packed[to] = column < columns ? (NUMBER)LOAD(TB, b, from) B_SHIFT(column) : (NUMBER)0;
}

// Rows of A as NUMBER, dense, with their shift: done once where each is read for many panels.
__kernel void widen_rows(
    __global const STORED(TA) *restrict a,
    __global NUMBER *restrict widened,
    const long rows,
    const long a_row,
    const long a_column,
    const long4 start,
    const long4 stack,
    const long4 a_stack
    TAIL_PARAMETERS)
{
    const size_t k = get_global_id(0);
    const long m = get_global_id(1);
    long from = start.s0;
    long rest = get_global_id(2);
#define ALONG_STACK(n) \
    from += rest % stack.s##n * a_stack.s##n; \
    rest /= stack.s##n;
    ALONG_STACK(0) ALONG_STACK(1) ALONG_STACK(2) ALONG_STACK(3)
    const size_t to = (get_global_id(2) * rows + m) * get_global_size(0) + k;
    widened[to] = (NUMBER)LOAD(TA, a, from + m * a_row + k * a_column) A_SHIFT(m);
}

__kernel GROUP_SIZE(1, 1, 1)
void gemm_panels(
    __global const STORED(TA) *restrict a,
    __global const NUMBER *restrict packed,
    __global STORED(TC) *restrict c,
    const long rows,
    const long columns,
    const long depth,
    const long a_row,
    const long a_column,
    const long4 start,
    const long4 stack,
    const long4 a_stack,
    const long4 b_stack
    TAIL_PARAMETERS)
{
    FIND_MATRICES
    const long m0 = get_global_id(0) * TM;
    const long panel = get_global_id(1);
    __global const NUMBER *b = packed + b_from + panel * depth * PANEL;

    // Rows beyond the end read the last one and are not stored.
    long from[TM];
    UNROLL
    for (int i = 0; i < TM; i++) from[i] = a_from + min(m0 + i, rows - 1) * a_row;

    BEGIN_SUMS

    for (long part = 0; part < depth; part += STEP_OF(depth)) {
        const long end = min(part + STEP_OF(depth), depth);
        for (long k = part; k < end; k++) {
            VECTOR right[TN];
            UNROLL
            for (int j = 0; j < TN; j++) right[j] = LOAD_VECTOR(b + j * WIDTH);
            b += PANEL;
            UNROLL
            for (int i = 0; i < TM; i++) {
                const VECTOR left =
                    (VECTOR)((NUMBER)LOAD(TA, a, from[i] + k * a_column) A_SHIFT(m0 + i));
                UNROLL
                for (int j = 0; j < TN; j++)
                    sum[i][j] = MULTIPLY_ADD(left, right[j], sum[i][j]);
            }
        }
        ADD_PART
    }

    const long c_from = start.s2 + get_global_id(2) * rows * columns;
    UNROLL
    for (int i = 0; i < TM; i++) {
        const long m = m0 + i;
        if (m < rows) {
            UNROLL
            for (int j = 0; j < TN; j++) {
                RESULT values[WIDTH];
                JOIN(vstore, WIDTH)(TOTALS[i][j], 0, values);
                const long n0 = panel * PANEL + j * WIDTH;
                const long count = min((long)WIDTH, columns - n0);
                const long start = c_from + m * columns + n0;
                if (count == WIDTH) {
                    for (int v = 0; v < WIDTH; v++)
                        STORE(TC, c, start + v, TAIL(values[v], m, n0 + v, start + v));
                } else {
                    for (int v = 0; v < count; v++)
                        STORE(TC, c, start + v, TAIL(values[v], m, n0 + v, start + v));
                }
            }
        }
    }
}
#else

// One element a work-item, B read as it lies: for few rows, where packing would cost more.
__kernel void gemm_plain(
    __global const STORED(TA) *restrict a,
    __global const STORED(TB) *restrict b,
    __global STORED(TC) *restrict c,
    const long rows,
    const long columns,
    const long depth,
    const long a_row,
    const long a_column,
    const long b_row,
    const long b_column,
    const long4 start,
    const long4 stack,
    const long4 a_stack,
    const long4 b_stack
    TAIL_PARAMETERS)
{
    FIND_MATRICES
    const size_t n = get_global_id(0);
    const long m = get_global_id(1);
    long left = a_from + m * a_row;
#ifdef B_NEIGHBOURS
    size_t right = b_from + n;
#else
    long right = b_from + n * b_column;
#endif
    NUMBER sum = 0;
    for (long k = 0; k < depth; k++) {
        sum = MULTIPLY_ADD(
            (NUMBER)LOAD(TA, a, left) A_SHIFT(m), (NUMBER)LOAD(TB, b, right) B_SHIFT(n), sum);
        left += a_column;
        right += b_row;
    }
    const long at = start.s2 + (get_global_id(2) * rows + m) * columns + n;
    STORE(TC, c, at, TAIL(sum, m, n, at));
}

#define SIDE 64
#define SLICE 16
#define EACH 4

__kernel GROUP_SIZE(16, 16, 1)
void gemm_tiled(
    __global const STORED(TA) *restrict a,
    __global const STORED(TB) *restrict b,
    __global STORED(TC) *restrict c,
    const long rows,
    const long columns,
    const long depth,
    const long a_row,
    const long a_column,
    const long b_row,
    const long b_column,
    const long4 start,
    const long4 stack,
    const long4 a_stack,
    const long4 b_stack
    TAIL_PARAMETERS)
{
    // One more element a row than needed: columns then lie in different banks.
    __local NUMBER left[SLICE][SIDE + 1];
    __local NUMBER right[SLICE][SIDE + 1];
    FIND_MATRICES
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const int worker = y * 16 + x;
    const long m0 = get_group_id(1) * SIDE;
    const long n0 = get_group_id(0) * SIDE;
    NUMBER sum[EACH][EACH];
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) sum[i][j] = 0;

    for (long k0 = 0; k0 < depth; k0 += SLICE) {
        for (int item = worker; item < SLICE * SIDE; item += 256) {
            const int ka = item % SLICE;
            const long m = m0 + item / SLICE;
            left[ka][item / SLICE] = (m < rows && k0 + ka < depth)
                ? (NUMBER)LOAD(TA, a, a_from + m * a_row + (k0 + ka) * a_column) A_SHIFT(m)
                : (NUMBER)0;
            const int kb = item / SIDE;
            const long n = n0 + item % SIDE;
            right[kb][item % SIDE] = (n < columns && k0 + kb < depth)
                ? (NUMBER)LOAD(TB, b, b_from + (k0 + kb) * b_row + n * b_column) B_SHIFT(n)
                : (NUMBER)0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < SLICE; k++) {
            NUMBER mine[EACH];
            NUMBER yours[EACH];
            for (int i = 0; i < EACH; i++) mine[i] = left[k][y + 16 * i];
            for (int j = 0; j < EACH; j++) yours[j] = right[k][x + 16 * j];
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = MULTIPLY_ADD(mine[i], yours[j], sum[i][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const long m = m0 + y + 16 * i;
            const long n = n0 + x + 16 * j;
            if (m < rows && n < columns) {
                const long at = start.s2 + (get_global_id(2) * rows + m) * columns + n;
                STORE(TC, c, at, TAIL(sum[i][j], m, n, at));
            }
        }
}
#endif
