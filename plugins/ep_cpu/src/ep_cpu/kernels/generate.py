"""Tensors made from little: Range, ConstantOfShape, EyeLike, windows, random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.cast import cast
from ep_cpu.kernels.support import Array, attribute_dtype, int_list, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


@TABLE.kernel("ConstantOfShape", since=9)
def _constant_of_shape(node: KernelNode) -> Kernel:
    value = node.attr("value")
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)

    def run(shape: Array) -> Array:
        lengths = int_list(shape)
        if min(lengths, default=0) < 0 or fill.size != 1:
            raise RunError(
                "ConstantOfShape needs lengths of at least 0 and one value",
                got=(lengths, fill.shape),
            )
        return np.full(lengths, fill.reshape(-1)[0], fill.dtype)

    return run


@TABLE.kernel("Range", since=11)
def _range(node: KernelNode) -> Kernel:
    def run(start: Array, limit: Array, delta: Array) -> Array:
        for value in (start, limit, delta):
            scalar(value, "an input of Range")
        kind = start.dtype
        read: Any = int if kind.kind in "iu" else float
        first, last, step = (read(value.item()) for value in (start, limit, delta))
        if step == 0:
            raise RunError("delta of Range must not be 0")
        if kind.kind in "iu":
            count = max(0, -((first - last) // step))
            whole: Array = np.arange(count, dtype=np.int64) * step + first
            return whole.astype(kind)
        quotient = (last - first) / step
        if not math.isfinite(quotient):
            raise RunError("Range would not end", got=(first, last, step))
        wide = widen(start).reshape(())
        numbers = np.arange(max(0, math.ceil(quotient)), dtype=wide.dtype)
        return np.asarray(wide + numbers * widen(delta).reshape(())).astype(kind, copy=False)

    return run


@TABLE.kernel("EyeLike", since=9)
def _eye_like(node: KernelNode) -> Kernel:
    offset = int(node.attr("k", 0))
    dtype = node.attr("dtype")

    def run(x: Array) -> Array:
        if x.ndim != 2:
            raise RunError("EyeLike needs a matrix", got=f"shape {x.shape}")
        kind = x.dtype if dtype is None else attribute_dtype(int(dtype))
        return np.eye(x.shape[0], x.shape[1], k=offset).astype(kind)

    return run


# ---------------------------------------------------------------- windows


def _window(node: KernelNode, coefficients: tuple[float, ...]) -> Kernel:
    """A sum of cosines: a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N) ..."""
    dtype = attribute_dtype(int(node.attr("output_datatype", 1)))
    periodic = bool(node.attr("periodic", 1))

    def run(size: Array) -> Array:
        count = int(scalar(size, "size"))
        if count < 0:
            raise RunError("size of a window must not be negative", got=count)
        span = count if periodic else count - 1
        angle = 2 * np.pi * np.arange(count) / max(span, 1)
        total = np.zeros(count)
        for order, coefficient in enumerate(coefficients):
            total += (-1) ** order * coefficient * np.cos(order * angle)
        return cast(total, dtype)

    return run


@TABLE.kernel("HannWindow", since=17)
def _hann(node: KernelNode) -> Kernel:
    return _window(node, (0.5, 0.5))


@TABLE.kernel("HammingWindow", since=17)
def _hamming(node: KernelNode) -> Kernel:
    return _window(node, (25 / 46, 21 / 46))


@TABLE.kernel("BlackmanWindow", since=17)
def _blackman(node: KernelNode) -> Kernel:
    return _window(node, (0.42, 0.5, 0.08))


# ---------------------------------------------------------------- random numbers


def _generator(node: KernelNode) -> np.random.RandomState:
    """Seeded by the node if it says so; a seed gives the same numbers in every run.

    The legacy generator, because its stream is the same in every version of numpy.
    """
    seed = node.attr("seed")
    return np.random.RandomState(None if seed is None else int(seed) & 0xFFFFFFFF)


def _numbers(node: KernelNode, shape: tuple[int, ...], normal: bool) -> Any:
    generator = _generator(node)
    if normal:
        mean, scale = float(node.attr("mean", 0.0)), float(node.attr("scale", 1.0))
        return mean + scale * generator.standard_normal(shape)
    low, high = float(node.attr("low", 0.0)), float(node.attr("high", 1.0))
    return low + (high - low) * generator.random_sample(shape)


def _register_random(op_type: str, normal: bool) -> None:
    @TABLE.kernel(op_type)
    def make(node: KernelNode) -> Kernel:
        shape = tuple(int(length) for length in node.attr("shape"))
        dtype = attribute_dtype(int(node.attr("dtype", 1)))
        return lambda: np.asarray(_numbers(node, shape, normal)).astype(dtype)

    @TABLE.kernel(f"{op_type}Like")
    def make_like(node: KernelNode) -> Kernel:
        number = node.attr("dtype")

        def run(x: Array) -> Array:
            dtype = x.dtype if number is None else attribute_dtype(int(number))
            return np.asarray(_numbers(node, x.shape, normal)).astype(dtype)

        return run


_register_random("RandomNormal", normal=True)
_register_random("RandomUniform", normal=False)


@TABLE.kernel("Bernoulli", since=15)
def _bernoulli(node: KernelNode) -> Kernel:
    number = node.attr("dtype")

    def run(x: Array) -> Array:
        dtype = x.dtype if number is None else attribute_dtype(int(number))
        return np.asarray(_generator(node).random_sample(x.shape) < widen(x)).astype(dtype)

    return run


@TABLE.kernel("Multinomial", since=7)
def _multinomial(node: KernelNode) -> Kernel:
    dtype = attribute_dtype(int(node.attr("dtype", 6)))
    count = int(node.attr("sample_size", 1))

    def run(x: Array) -> Array:
        if x.ndim != 2 or x.shape[1] == 0:
            raise RunError("Multinomial needs [batch, classes]", got=f"shape {x.shape}")
        logits = x.astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        edges = np.cumsum(weights, axis=1)
        draws = _generator(node).random_sample((x.shape[0], count)) * edges[:, -1:]
        chosen = np.asarray((draws[:, :, None] >= edges[:, None, :]).sum(axis=2))
        return chosen.astype(dtype)

    return run


@TABLE.kernel("Dropout", until=11, view=True)
def _dropout_attribute(node: KernelNode) -> Kernel:
    """Before version 12 nothing says that a graph trains (is_test of versions 1 to 6 aside)."""
    with_mask = node.wants_output(1)
    # Version 7 to 9 give the mask in the input's type, later ones as bool.
    mask_as_input = node.version < 10

    def run(x: Array) -> Any:
        if not with_mask:
            return x
        return x, np.ones(x.shape, x.dtype if mask_as_input else np.bool_)

    return run


@TABLE.kernel("Dropout", since=12, view=True)
def _dropout(node: KernelNode) -> Kernel:
    with_mask = node.wants_output(1)

    def run(x: Array, ratio: Array | None = None, training: Array | None = None) -> Any:
        rate = 0.5 if ratio is None else float(scalar(ratio, "ratio"))
        if training is None or not scalar(training, "training_mode") or rate == 0:
            return (x, np.ones(x.shape, np.bool_)) if with_mask else x
        if not 0 < rate < 1:
            raise RunError("ratio of Dropout out of range", expected="0 <= ratio < 1", got=rate)
        mask = _generator(node).random_sample(x.shape) >= rate
        # A view kernel sees to warnings itself: an infinity that is dropped is NaN.
        with np.errstate(all="ignore"):
            result = np.asarray(widen(x) * mask / (1 - rate)).astype(x.dtype)
        return (result, mask) if with_mask else result

    return run
