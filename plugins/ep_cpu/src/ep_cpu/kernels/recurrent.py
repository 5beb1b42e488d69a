"""RNN, GRU and LSTM. The input's part of all steps is one product before the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.recurrent_support import Recurrence, Setup, split_activations
from ep_cpu.kernels.support import Array, from_constant, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["Project", "lstm_direction"]

Project = Callable[[Array], Array]
"""Multiplies states or inputs [..., I] with a weight into gates [..., G * H]."""


def _ready_weight(weight: Array) -> Array:
    """[D, G * H, I] as [D, I, G * H] in the compute type, contiguous for the product."""
    return np.ascontiguousarray(widen(weight).transpose(0, 2, 1))


def _times(matrix: Array) -> Project:
    return lambda values: np.matmul(values, matrix)


def _check_weights(x: Array, w: Array, r: Array, gates: int, directions: int) -> int:
    """Return the hidden size. Weights are as prepared: [D, I, G * H] and [D, H, G * H]."""
    if w.ndim != 3 or r.ndim != 3:
        raise RunError("weights of a recurrent layer need three axes", got=(w.shape, r.shape))
    hidden = r.shape[1]
    expected = ((directions, x.shape[-1], gates * hidden), (directions, hidden, gates * hidden))
    if (w.shape, r.shape) != expected:
        raise RunError(
            "weights of a recurrent layer don't fit (transposed shapes shown)",
            expected=expected,
            got=(w.shape, r.shape),
        )
    return int(hidden)


def _bias(bias: Array | None, direction: int, width: int) -> tuple[Array | None, Array | None]:
    """The input's and the state's half of the bias of one direction."""
    if bias is None:
        return None, None
    if bias.shape[-1] != 2 * width:
        raise RunError("wrong length of the bias", expected=2 * width, got=bias.shape[-1])
    row = widen(bias)[direction]
    return row[:width], row[width:]


def _keep(new: Array, old: Array, alive: Array | None) -> Array:
    return new if alive is None else np.where(alive, new, old)


def _wanted(node: KernelNode, results: tuple[Array, ...], dtype: np.dtype[Any]) -> Any:
    count = max(len(node.node.outputs), 1)
    kept = tuple(value.astype(dtype, copy=False) for value in results[:count])
    return kept if count > 1 else kept[0]


# ---------------------------------------------------------------- LSTM


def lstm_direction(
    walk: Recurrence,
    setup: Setup,
    gates: Array,
    project: Project,
    state: tuple[Array, Array],
    peephole: Array | None,
    activations: Sequence[Callable[[Array], Array]],
    couple: bool,
) -> tuple[Array, Array, Array]:
    """Run one direction.

    Args:
        walk: the batch of sequences.
        setup: attributes of the node.
        gates: the input's part with all biases, [T, N, 4 H], in the order of the direction.
        project: state [N, H] to gates [N, 4 H], in the order input, output, forget, cell.
        state: hidden and cell state before the first step, [N, H] each.
        peephole: [3, H] for input, output and forget gate, or None.
        activations: of the gates, of the candidate, of the output.
        couple: the forget gate is 1 - the input gate.

    Returns:
        Hidden states of all steps [T, N, H], 0 behind a sequence's end; last h; last c.
    """
    gate, squash, shape = activations
    h, c = state
    hidden = h.shape[1]
    outputs = np.zeros((walk.steps, walk.batch, hidden), gates.dtype)
    for step in range(walk.steps):
        total = project(h)
        np.add(total, gates[step], out=total)
        if peephole is None:
            setup.bounded(total)
            opened = gate(total[:, : 3 * hidden])
            enter, leave, forget = (opened[:, i * hidden : (i + 1) * hidden] for i in range(3))
        else:
            enter = gate(setup.bounded(total[:, :hidden] + peephole[0] * c))
            forget = gate(setup.bounded(total[:, 2 * hidden : 3 * hidden] + peephole[2] * c))
        if couple:
            forget = 1 - enter
        candidate = squash(setup.bounded(total[:, 3 * hidden :]))
        new_c = forget * c
        new_c += enter * candidate
        if peephole is not None:
            leave = gate(setup.bounded(total[:, hidden : 2 * hidden] + peephole[1] * new_c))
        new_h = leave * shape(new_c)
        alive = walk.alive(step)
        outputs[step] = new_h if alive is None else np.where(alive, new_h, 0)
        h = _keep(new_h, h, alive)
        c = _keep(new_c, c, alive)
    return outputs, h, c


@TABLE.kernel("LSTM")
def _lstm(node: KernelNode) -> Kernel:
    setup = Setup.of(node)
    count = len(setup.directions)
    activations = split_activations(node, ("Sigmoid", "Tanh", "Tanh"), count)
    couple = bool(node.attr("input_forget", 0))
    ready_w = from_constant(node, 1, _ready_weight)
    ready_r = from_constant(node, 2, _ready_weight)

    def run(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
    ) -> Any:
        walk = Recurrence(setup, widen(x), lengths)
        weights, recurrent = ready_w(w), ready_r(r)
        hidden = _check_weights(walk.x, weights, recurrent, 4, count)
        outputs, last_h, last_c = [], [], []
        for d, backwards in enumerate(setup.directions):
            gates = np.matmul(walk.ordered(walk.x, backwards), weights[d])
            for half in _bias(b, d, 4 * hidden):
                if half is not None:
                    gates += half
            y, h, c = lstm_direction(
                walk,
                setup,
                gates,
                _times(recurrent[d]),
                (walk.initial(initial_h, d, hidden), walk.initial(initial_c, d, hidden)),
                None if p is None else widen(p)[d].reshape(3, hidden),
                activations[d],
                couple,
            )
            outputs.append(walk.ordered(y, backwards))
            last_h.append(h)
            last_c.append(c)
        return _wanted(node, walk.results(outputs, [last_h, last_c]), x.dtype)

    return run


# ---------------------------------------------------------------- GRU


def _gru_direction(
    walk: Recurrence,
    setup: Setup,
    gates: Array,
    recurrent: Array,
    recurrent_bias: Array | None,
    h: Array,
    activations: Sequence[Callable[[Array], Array]],
    reset_after: bool,
) -> tuple[Array, Array]:
    """Gates are in the order update, reset, hidden; `recurrent` is [H, 3 H]."""
    gate, squash = activations
    hidden = h.shape[1]
    both, last = slice(0, 2 * hidden), slice(2 * hidden, None)
    matrix, hidden_matrix = recurrent, recurrent[:, last]
    bias = np.zeros(3 * hidden, gates.dtype) if recurrent_bias is None else recurrent_bias
    outputs = np.zeros((walk.steps, walk.batch, hidden), gates.dtype)
    for step in range(walk.steps):
        if reset_after:
            product = np.matmul(h, matrix) + bias
        else:
            product = np.matmul(h, matrix[:, both]) + bias[both]
        opened = gate(setup.bounded(gates[step, :, both] + product[:, both]))
        update, reset = opened[:, :hidden], opened[:, hidden:]
        if reset_after:
            carried = reset * product[:, last]
        else:
            carried = np.matmul(reset * h, hidden_matrix) + bias[last]
        candidate = squash(setup.bounded(gates[step, :, last] + carried))
        new_h = (1 - update) * candidate + update * h
        alive = walk.alive(step)
        outputs[step] = new_h if alive is None else np.where(alive, new_h, 0)
        h = _keep(new_h, h, alive)
    return outputs, h


@TABLE.kernel("GRU")
def _gru(node: KernelNode) -> Kernel:
    setup = Setup.of(node)
    count = len(setup.directions)
    activations = split_activations(node, ("Sigmoid", "Tanh"), count)
    reset_after = bool(node.attr("linear_before_reset", 0))
    ready_w = from_constant(node, 1, _ready_weight)
    ready_r = from_constant(node, 2, _ready_weight)

    def run(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
    ) -> Any:
        walk = Recurrence(setup, widen(x), lengths)
        weights, recurrent = ready_w(w), ready_r(r)
        hidden = _check_weights(walk.x, weights, recurrent, 3, count)
        outputs, last = [], []
        for d, backwards in enumerate(setup.directions):
            gates = np.matmul(walk.ordered(walk.x, backwards), weights[d])
            input_bias, recurrent_bias = _bias(b, d, 3 * hidden)
            if input_bias is not None:
                gates += input_bias
            first = walk.initial(initial_h, d, hidden)
            y, h = _gru_direction(
                walk,
                setup,
                gates,
                recurrent[d],
                recurrent_bias,
                first,
                activations[d],
                reset_after,
            )
            outputs.append(walk.ordered(y, backwards))
            last.append(h)
        return _wanted(node, walk.results(outputs, [last]), x.dtype)

    return run


# ---------------------------------------------------------------- RNN


@TABLE.kernel("RNN")
def _rnn(node: KernelNode) -> Kernel:
    setup = Setup.of(node)
    count = len(setup.directions)
    activations = split_activations(node, ("Tanh",), count)
    ready_w = from_constant(node, 1, _ready_weight)
    ready_r = from_constant(node, 2, _ready_weight)

    def run(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        initial_h: Array | None = None,
    ) -> Any:
        walk = Recurrence(setup, widen(x), lengths)
        weights, recurrent = ready_w(w), ready_r(r)
        hidden = _check_weights(walk.x, weights, recurrent, 1, count)
        outputs, last = [], []
        for d, backwards in enumerate(setup.directions):
            gates = np.matmul(walk.ordered(walk.x, backwards), weights[d])
            for half in _bias(b, d, hidden):
                if half is not None:
                    gates += half
            h = walk.initial(initial_h, d, hidden)
            y = np.zeros((walk.steps, walk.batch, hidden), gates.dtype)
            for step in range(walk.steps):
                total = setup.bounded(np.matmul(h, recurrent[d]) + gates[step])
                new_h = activations[d][0](total)
                alive = walk.alive(step)
                y[step] = new_h if alive is None else np.where(alive, new_h, 0)
                h = _keep(new_h, h, alive)
            outputs.append(walk.ordered(y, backwards))
            last.append(h)
        return _wanted(node, walk.results(outputs, [last]), x.dtype)

    return run
