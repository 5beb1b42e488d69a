// One step of RNN, GRU or LSTM for a batch of sequences.
//
// A work-item computes one element of the new state of one sequence: the products of the old state
// with its columns of the recurrent weights, and what the gates make of them, so that a step is one
// launch. The weights lie as [hidden][GATES * hidden], in which neighbours read neighbours. The
// input's part of all steps comes from one product before the first.
//
// T is the code of the tensors' type, NUMBER what is computed and kept in. `activation0` to
// `activation2` and `bounded` come with the node. Old and new state are different memory, as other
// work-items still read the old one.
//
// `place` says where things of this direction begin: gates, bias, y, peepholes; `step_by` the steps
// in gates between times and between sequences, and those in y.

#define HIDDEN get_global_size(0)
#define LENGTH_OUT_OF_RANGE 2

#ifdef GATES
#define PARAMETERS \
    __global const NUMBER *restrict gates, \
    __global const STORED(T) *restrict weight, \
    const long weight_start, \
    __global const NUMBER *restrict old_state, \
    __global NUMBER *restrict new_state, \
    const long4 place, \
    const long4 step_by, \
    const int step, \
    const int backwards \
    BIAS_PARAMETER \
    LENGTHS_PARAMETER \
    Y_PARAMETER

#ifdef HAS_BIAS
#define BIAS_PARAMETER , __global const STORED(T) *restrict bias
#define INPUT_BIAS(g) LOAD(T, bias, place.s1 + (g) * hidden + j)
#define STATE_BIAS(g) LOAD(T, bias, place.s1 + (GATES + (g)) * hidden + j)
#else
#define BIAS_PARAMETER
#define INPUT_BIAS(g) (NUMBER)0
#define STATE_BIAS(g) (NUMBER)0
#endif

#ifdef HAS_LENGTHS
#define LENGTHS_PARAMETER , __global const int *restrict lengths, const int steps
#define FIND_TIME \
    const int length = clamp(lengths[n], 0, steps); \
    const bool alive = step < length; \
    const long time = alive && backwards ? length - 1 - step : step;
#else
#define LENGTHS_PARAMETER , const int steps
#define FIND_TIME \
    const bool alive = true; \
    const long time = backwards ? steps - 1 - step : step;
#endif

#ifdef HAS_Y
#define Y_PARAMETER , __global STORED(T) *restrict y
#define WRITE_Y(value) \
    STORE(T, y, place.s2 + time * step_by.s2 + n * step_by.s3 + j, alive ? (value) : (NUMBER)0);
#else
#define Y_PARAMETER
#define WRITE_Y(value)
#endif

#define BEGIN \
    const size_t j = get_global_id(0); \
    const long n = get_global_id(1); \
    const long hidden = HIDDEN; \
    FIND_TIME \
    const size_t here = n * hidden + j; \
    __global const NUMBER *gate = gates + place.s0 + time * step_by.s0 + n * step_by.s1 + j;

// Sums of the products of a state with columns of some gates, from FIRST to END, into `sum`.
#define MULTIPLY(state, FIRST, END) \
    for (long k = 0; k < hidden; k++) { \
        const NUMBER left = state[n * hidden + k]; \
        const size_t row = weight_start + k * GATES * hidden + j; \
        UNROLL \
        for (int g = FIRST; g < END; g++) \
            sum[g] = fma(left, (NUMBER)LOAD(T, weight, row + g * hidden), sum[g]); \
    }

#define FINISH(value) \
    const NUMBER result = value; \
    new_state[here] = alive ? result : old_state[here]; \
    WRITE_Y(result)

__kernel void rnn_step(PARAMETERS)
{
    BEGIN
    NUMBER sum[GATES] = {0};
    MULTIPLY(old_state, 0, 1)
    FINISH(activation0(bounded(gate[0] + INPUT_BIAS(0) + (sum[0] + STATE_BIAS(0)))))
}

#if GATES == 3
// Gates are update, reset, hidden.
__kernel void gru_step(PARAMETERS)
{
    BEGIN
    NUMBER sum[GATES] = {0};
    MULTIPLY(old_state, 0, 3)
    const NUMBER update =
        activation0(bounded(gate[0] + INPUT_BIAS(0) + (sum[0] + STATE_BIAS(0))));
    const NUMBER reset =
        activation0(bounded(gate[hidden] + INPUT_BIAS(1) + (sum[1] + STATE_BIAS(1))));
    const NUMBER carried = reset * (sum[2] + STATE_BIAS(2));
    const NUMBER candidate =
        activation1(bounded(gate[2 * hidden] + INPUT_BIAS(2) + carried));
    FINISH((1 - update) * candidate + update * old_state[here])
}

// The reset applies to the state before its product: two launches, with the reset state and the
// update gate in memory between them.
__kernel void gru_reset(PARAMETERS, __global NUMBER *restrict updates)
{
    BEGIN
    NUMBER sum[GATES] = {0};
    MULTIPLY(old_state, 0, 2)
    updates[here] = activation0(bounded(gate[0] + INPUT_BIAS(0) + (sum[0] + STATE_BIAS(0))));
    const NUMBER reset =
        activation0(bounded(gate[hidden] + INPUT_BIAS(1) + (sum[1] + STATE_BIAS(1))));
    new_state[here] = reset * old_state[here];
}

__kernel void gru_update(
    PARAMETERS, __global const NUMBER *restrict updates, __global const NUMBER *restrict scaled)
{
    BEGIN
    NUMBER sum[GATES] = {0};
    MULTIPLY(scaled, 2, 3)
    const NUMBER update = updates[here];
    const NUMBER candidate =
        activation1(bounded(gate[2 * hidden] + INPUT_BIAS(2) + (sum[2] + STATE_BIAS(2))));
    FINISH((1 - update) * candidate + update * old_state[here])
}
#endif

#if GATES == 4
#ifdef HAS_PEEPHOLES
#define PEEPHOLE_PARAMETER , __global const STORED(T) *restrict peepholes
#define PEEPHOLE(number, cell) + LOAD(T, peepholes, place.s3 + (number) * hidden + j) * cell
#else
#define PEEPHOLE_PARAMETER
#define PEEPHOLE(number, cell)
#endif

// Gates are input, output, forget, cell. The cell state is read and written by one work-item only.
__kernel void lstm_step(PARAMETERS, __global NUMBER *restrict cells PEEPHOLE_PARAMETER)
{
    BEGIN
    NUMBER sum[GATES] = {0};
    MULTIPLY(old_state, 0, 4)
    UNROLL
    for (int g = 0; g < GATES; g++)
        sum[g] = gate[g * hidden] + INPUT_BIAS(g) + (sum[g] + STATE_BIAS(g));
    const NUMBER old_cell = cells[here];
    const NUMBER enter = activation0(bounded(sum[0] PEEPHOLE(0, old_cell)));
#ifdef COUPLED
    const NUMBER forget = 1 - enter;
#else
    const NUMBER forget = activation0(bounded(sum[2] PEEPHOLE(2, old_cell)));
#endif
    const NUMBER cell = forget * old_cell + enter * activation1(bounded(sum[3]));
    const NUMBER leave = activation0(bounded(sum[1] PEEPHOLE(1, cell)));
    if (alive) cells[here] = cell;
    FINISH(leave * activation2(cell))
}
#endif
#endif

// A state before the first step: zeros, or the initial one.
__kernel void take_state(
    __global NUMBER *restrict state,
    __global const STORED(T) *restrict initial,
    const long start,
    const long step_by,
    const int is_given)
{
    const size_t j = get_global_id(0);
    const long n = get_global_id(1);
    NUMBER value = 0;
    if (is_given) value = LOAD(T, initial, start + n * step_by + j);
    state[n * HIDDEN + j] = value;
}

__kernel void give_state(
    __global const NUMBER *restrict state,
    __global STORED(T) *restrict target,
    const long start,
    const long step_by)
{
    const size_t j = get_global_id(0);
    const long n = get_global_id(1);
    STORE(T, target, start + n * step_by + j, state[n * HIDDEN + j]);
}

__kernel void check_lengths(
    __global const int *restrict lengths, const int steps, __global int *fault)
{
    const int length = lengths[get_global_id(0)];
    if (length < 0 || length > steps) *fault = LENGTH_OUT_OF_RANGE;
}
