"""RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_HIDDEN = 3


def _parameters(ask: Ask, directions: int = 1, width: int = 2) -> list[Any]:
    rows = _GATES[ask.op_type] * _HIDDEN
    return [
        ask.random(directions, rows, width, low=-0.5, high=0.5),
        ask.random(directions, rows, _HIDDEN, low=-0.5, high=0.5),
        ask.random(directions, 2 * rows, low=-0.5, high=0.5),
    ]


@recipe("RNN GRU LSTM")
def recurrent(ask: Ask) -> Iterator[Sample]:
    """Directions, lengths, initial states, layouts, peepholes, everything, all outputs."""
    steps, batch = 4, 2
    x = ask.random(steps, batch, 2, low=-1, high=1)
    w, r, b = _parameters(ask)
    size = {"hidden_size": _HIDDEN}
    outputs = 3 if ask.op_type == "LSTM" else 2
    if ask.version == 1 and ask.op_type == "GRU":
        # Its Y is optional by an attribute.
        size["output_sequence"] = 1
    yield Sample("plain", [x, w, r], size, outputs=outputs, core=True)
    yield Sample("bias", [x, w, r, b], size, outputs=outputs, core=True)
    yield Sample("constant", [x, w, r, b], size, outputs=outputs, constants=[1, 2, 3])
    yield Sample("reverse", [x, w, r, b], {**size, "direction": "reverse"}, outputs=outputs)
    both = {**size, "direction": "bidirectional"}
    yield Sample("bidirectional", [x, *_parameters(ask, 2)], both, outputs=outputs, core=True)
    lengths = np.array([4, 2], np.int32)
    yield Sample("lengths", [x, w, r, b, lengths], size, outputs=outputs)
    states = [ask.random(1, batch, _HIDDEN) for _ in range(outputs - 1)]
    yield Sample("initial", [x, w, r, b, None, *states], size, outputs=outputs, core=True)
    yield Sample("one step", [x[:1], w, r, b], size, outputs=outputs)
    wide = ask.random(steps, batch, 2, low=-4, high=4)
    yield Sample("clip", [wide, w, r, b], {**size, "clip": 0.3}, outputs=outputs)
    if ask.op_type == "GRU" and ask.has("linear_before_reset"):
        attributes = {**size, "linear_before_reset": 1}
        yield Sample("linear before reset", [x, w, r, b], attributes, outputs=2, core=True)
    everything = [x, w, r, b, lengths, *states]
    if ask.op_type == "LSTM":
        peepholes = ask.random(1, 3 * _HIDDEN, low=-0.5, high=0.5)
        inputs = [x, w, r, b, None, *states, peepholes]
        yield Sample("peepholes", inputs, size, outputs=3, core=True)
        everything.append(peepholes)
    yield Sample("everything", everything, size, outputs=outputs, core=True)
    if ask.has("layout"):
        first = np.ascontiguousarray(np.swapaxes(x, 0, 1))
        yield Sample("batch first", [first, w, r, b], {**size, "layout": 1}, outputs=outputs)
