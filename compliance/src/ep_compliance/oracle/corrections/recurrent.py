"""RNN, GRU and LSTM, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.corrections import NodeCall, correct
from ep_compliance.oracle.precision import Array

__all__: list[str] = []

_REASON = "clip, sequence_lens and version 1 are ignored or fail"
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@correct("RNN", reason=_REASON)
@correct("GRU", reason=_REASON)
@correct("LSTM", reason=_REASON)
def recurrent(call: NodeCall) -> Sequence[Any] | None:
    """Every direction by itself; steps beyond a sequence's length give 0 and keep the state."""
    names = call.attr("activations") or _DEFAULTS[call.node.op_type]
    lower = [(n.decode() if isinstance(n, bytes) else n).lower() for n in names]
    if any(name not in _ACTIVATIONS for name in lower):
        return None
    x = call.inputs[0]
    batch_first = bool(call.attr("layout", 0))
    x = np.swapaxes(x, 0, 1) if batch_first else x
    direction = call.attr("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    per = len(lower) // count if len(lower) > len(_DEFAULTS[call.node.op_type]) else len(lower)
    results = []
    for number in range(count):
        chosen = lower[number * per : (number + 1) * per] or lower[:per]
        backwards = direction == "reverse" or number == 1
        results.append(_one_direction(call, x, number, backwards, chosen, batch_first))
    return _outputs(call, results, batch_first)


def _outputs(
    call: NodeCall, results: list[tuple[Array, Array, Array]], batch_first: bool
) -> Sequence[Any]:
    y = np.stack([steps for steps, _, _ in results], axis=1)
    states = [np.stack([result[i] for result in results]) for i in (1, 2)]
    if batch_first:
        y = np.transpose(y, (2, 0, 1, 3))
        states = [np.swapaxes(state, 0, 1) for state in states]
    return [y, *states][: len(call.node.output)]


def _one_direction(
    call: NodeCall, x: Array, number: int, backwards: bool, names: list[str], batch_first: bool
) -> tuple[Array, Array, Array]:
    """All hidden states of shape `(steps, batch, hidden)`, the last one, the last cell state."""
    cell = _Cell(call, number, names)
    steps, batch = x.shape[:2]
    lengths = call.input(4)
    lengths = np.full(batch, steps) if lengths is None else lengths
    h, c = (_initial(call, i, number, batch, cell.hidden, batch_first) for i in (5, 6))
    y = np.zeros((steps, batch, cell.hidden), x.dtype)
    for row in range(batch):
        order = range(int(lengths[row]))
        for step in reversed(order) if backwards else order:
            h[row], c[row] = cell.step(x[step, row], h[row], c[row])
            y[step, row] = h[row]
    return y, h, c


def _initial(
    call: NodeCall, index: int, number: int, batch: int, hidden: int, batch_first: bool
) -> Array:
    given = call.input(index)
    if given is None or (index == 6 and call.node.op_type != "LSTM"):
        return np.zeros((batch, hidden), call.inputs[0].dtype)
    return np.array(given[:, number] if batch_first else given[number])


class _Cell:
    """One step of one direction, for one sequence."""

    def __init__(self, call: NodeCall, number: int, names: list[str]) -> None:
        self._kind = call.node.op_type
        self._functions = [_ACTIVATIONS[name] for name in names]
        self._clip = call.attr("clip")
        self._linear = bool(call.attr("linear_before_reset", 0))
        w, r, b = call.inputs[1][number], call.inputs[2][number], call.input(3)
        gates = _GATES[self._kind]
        self.hidden = r.shape[1]
        both = np.zeros(2 * len(w), w.dtype) if b is None else b[number]
        self._w, self._r = np.split(w, gates), np.split(r, gates)
        self._wb, self._rb = np.split(both[: len(w)], gates), np.split(both[len(w) :], gates)
        peephole = call.input(7)
        empty = np.zeros(3 * self.hidden, w.dtype)
        self._p = np.split(empty if peephole is None else peephole[number], 3)

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """The next hidden and cell state."""
        if self._kind == "RNN":
            return self._apply(0, self._gate(0, x, h)), c
        if self._kind == "GRU":
            return self._gru(x, h), c
        return self._lstm(x, h, c)

    def _gate(self, gate: int, x: Array, h: Array) -> Array:
        both = self._w[gate] @ x + self._r[gate] @ h
        return np.asarray(both + self._wb[gate] + self._rb[gate])

    def _apply(self, function: int, value: Array) -> Array:
        if self._clip is not None:
            value = np.clip(value, -self._clip, self._clip)
        return self._functions[function](value)

    def _gru(self, x: Array, h: Array) -> Array:
        z, r = (self._apply(0, self._gate(gate, x, h)) for gate in (0, 1))
        if self._linear:
            recurrent_part = r * (self._r[2] @ h + self._rb[2])
        else:
            recurrent_part = self._r[2] @ (r * h) + self._rb[2]
        new = self._apply(1, self._w[2] @ x + recurrent_part + self._wb[2])
        return np.asarray((1 - z) * new + z * h)

    def _lstm(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        # Gates are stored in the order i, o, f, c; peepholes in the order i, o, f.
        i = self._apply(0, self._gate(0, x, h) + self._p[0] * c)
        f = self._apply(0, self._gate(2, x, h) + self._p[2] * c)
        c = f * c + i * self._apply(1, self._gate(3, x, h))
        o = self._apply(0, self._gate(1, x, h) + self._p[1] * c)
        return np.asarray(o * self._functions[2](c)), np.asarray(c)
