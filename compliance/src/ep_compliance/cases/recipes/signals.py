"""Signal processing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.oracle.precision import Array

__all__: list[str] = []


@recipe("DFT")
def dft(ask: Ask) -> Iterator[Sample]:
    """Real and complex, one-sided, inverse, other lengths; the axis is an input since 20."""
    real, both = ask.random(2, 9, 1), ask.random(2, 8, 2)
    by_input = ask.version >= 20

    def sample(name: str, x: Array, length: int | None, axis: int, **more: int) -> Sample:
        size = None if length is None else np.array(length, np.int64)
        if by_input:
            return Sample(name, [x, size, np.array(axis, np.int64)], more, core=True)
        inputs = [x] if size is None else [x, size]
        return Sample(name, inputs, {"axis": axis, **more}, core=True)

    yield sample("real", real, None, 1)
    yield sample("complex", both, None, 1)
    yield sample("one-sided", real, None, 1, onesided=1)
    yield sample("inverse", both, None, 1, inverse=1)
    yield sample("padded", real, 12, 1)
    yield sample("cut", both, 5, 1)
    yield sample("axis 0", both, None, 0)
    narrow = np.array(5, np.int32)
    if by_input:
        yield Sample("length int32", [both, narrow, np.array(1, np.int64)], core=True)
    else:
        yield Sample("length int32", [both, narrow], {"axis": 1}, core=True)


@recipe("STFT")
def stft(ask: Ask) -> Iterator[Sample]:
    """With a window, with a length, both; both types of lengths."""
    x = ask.random(1, 32, 1)
    step, length = np.array(8, np.int64), np.array(16, np.int64)
    window = ask.random(16, low=0.1, high=1)
    yield Sample("window", [x, step, window], core=True)
    yield Sample("length", [x, step, None, length], core=True)
    yield Sample("two-sided", [x, step, window, length], {"onesided": 0})
    narrow = [value.astype(np.int32) for value in (step, length)]
    yield Sample("int32", [x, narrow[0], window, narrow[1]], core=True)


@recipe("MelWeightMatrix")
def mel(ask: Ask) -> Iterator[Sample]:
    """Every type of integers, edges and weights."""
    ints = [np.array(value, ask.dtype.numpy) for value in (8, 16, 8192)]
    for kind in ask.types(3):
        edges = [np.array(value, kind.numpy) for value in (0.0, 4096.0)]
        yield Sample(f"edges {kind.text}", [*ints, *edges], core=True)
        for target in ask.output_types():
            attributes = {"output_datatype": int(target)}
            yield Sample(f"{kind.text} to {target.text}", [*ints, *edges], attributes, core=True)
