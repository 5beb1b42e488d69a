"""Questions: weights of few bits, and 8-bit operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from contrib_cases.asking import Array, Asked, Values, question
from ep_core.types import DataType

__all__: list[str] = []

_KINDS = ("uint8", "int8")
_NONE: list[Any] = [None] * 5


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _zero(value: int, kind: str) -> Array:
    return np.array(value, DataType[kind.upper()].numpy)


def _packed(codes: Array, bits: int) -> Array:
    """Codes of few bits in bytes, the first one lowest."""
    per_byte = 8 // bits
    missing = -codes.shape[-1] % per_byte
    filled = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    groups = filled.reshape(*codes.shape[:-1], -1, per_byte)
    shifted = groups << (bits * np.arange(per_byte))
    return np.asarray(shifted.sum(axis=-1)).astype(np.uint8)


# ---------------------------------------------------------------- weights of few bits


@question
def packed_products() -> Iterator[Asked]:
    """Blocks of 2, 4 and 8 bits, with zero points of every kind."""
    v = Values("packed products")
    rows = 3
    for bits, (columns, block) in itertools.product((4, 2, 8), ((32, 16), (40, 32))):
        blocks = -(-columns // block)
        codes = v.integers(rows, blocks, block, high=(1 << bits) - 1)
        zeros = v.integers(rows, blocks, high=(1 << bits) - 1)
        x, bias = v.floats(2, 2, columns), v.floats(rows)
        scales = v.positive(rows, blocks, low=0.015625, high=0.125)
        options: dict[str, Array | None] = {"none": None, "packed": _packed(zeros, bits)}
        if bits < 8:
            options["floats"] = zeros.astype(np.float32) + np.float32(0.5)
        size = {"K": columns, "N": rows, "bits": bits, "block_size": block}
        for name, points in options.items():
            yield Asked(
                "MatMulNBits",
                f"{bits} bits {columns} {name}",
                [x, _packed(codes, bits), scales, points, None, bias],
                attributes=size,
                constants=(1, 2, 3, 5),
            )
        bare = [x, _packed(codes, bits), scales]
        yield Asked("MatMulNBits", f"{bits} bits {columns} bare", bare, attributes=size)
    groups = np.array([place * 7 % 32 // 16 for place in range(32)], np.int32)
    codes, scales = v.integers(rows, 2, 16, high=15), v.positive(rows, 2)
    size = {"K": 32, "N": rows, "bits": 4, "block_size": 16}
    zeros = v.integers(rows, 2, high=15).astype(np.float32) + np.float32(0.5)
    inputs = [v.floats(2, 32), _packed(codes, 4), scales, zeros, groups]
    yield Asked("MatMulNBits", "groups", inputs, attributes=size)
    for kind, (rows, columns) in itertools.product((0, 1), ((5, 32), (3, 64))):
        data = v.codes(rows * columns // 2, kind="uint8")
        size = {"K": columns, "N": rows, "block_size": 32, "quant_type": kind}
        inputs = [v.floats(2, columns), data, v.positive(rows * columns // 32)]
        name = f"type {kind} {rows}"
        yield Asked("MatMulBnb4", name, inputs, attributes=size, constants=(1, 2))


@question
def gathered_blocks() -> Iterator[Asked]:
    """Rows of quantised tables."""
    v = Values("gathered blocks")
    places = {"line": np.array([0, 3, -1]), "plane": np.array([[1, 2], [4, 0]], np.int32)}
    places["point"] = np.array(2)
    for kind, bits in (("uint8", 4), ("uint8", 2), ("uint8", 8), ("int4", 4), ("uint4", 4)):
        codes = v.integers(5, 32, high=(1 << bits) - 1)
        zeros = v.integers(5, 2, high=(1 << bits) - 1)
        if kind == "uint8":
            data, points = _packed(codes, bits), _packed(zeros, bits)
        else:
            shift, narrow = (8 if kind == "int4" else 0), DataType[kind.upper()].numpy
            data, points = (codes - shift).astype(narrow), (zeros - shift).astype(narrow)
        size = {"bits": bits, "block_size": 16}
        scales = v.positive(5, 2)
        for name, index in places.items():
            for what, inputs in {
                "": [data, index, scales],
                " zero points": [data, index, scales, points],
            }.items():
                yield Asked(
                    "GatherBlockQuantized",
                    f"{kind} {bits} bits {name}{what}",
                    inputs,
                    attributes=size,
                    constants=(0, 2, 3)[: len(inputs) - 1],
                )
    for kind in ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1"):
        data = v.floats(5, 32, low=-4, high=4).astype(DataType[kind.upper()].numpy)
        size = {"block_size": 16}
        for name in ("line", "plane"):
            inputs = [data, places[name], v.positive(5, 2)]
            constants = (0, 2)
            yield Asked(
                "GatherBlockQuantized",
                f"{kind} {name}",
                inputs,
                attributes=size,
                constants=constants,
            )
    data = v.integers(3, 32, 4, kind="uint4", high=15)
    for axis in (0, 1, 2):
        size = {"gather_axis": axis, "quantize_axis": 1, "block_size": 16}
        inputs = [data, np.array([[0, 2]]), v.positive(3, 2, 4)]
        yield Asked(
            "GatherBlockQuantized", f"axis {axis}", inputs, attributes=size, constants=(0, 2)
        )


@question
def quantized_embeddings() -> Iterator[Asked]:
    """Tables of codes, and recurrent networks with weights of codes."""
    v = Values("quantized embeddings")
    for kind in _KINDS:
        ids, kinds = v.integers(2, 4, kind="int32"), v.bits(2, 4)
        tables = [v.codes(rows, 8, kind=kind) for rows in (10, 6, 2)]
        rows = [v.codes(8, kind=kind) for _ in range(2)]
        scales = [_scale(2.0**-power) for power in (6, 7, 6, 7, 6)]
        zeros = [_zero(value, kind) for value in (3, 5, 7, 1, 2)]
        mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
        inputs = [ids, kinds, *tables, *rows, mask, *scales, *zeros]
        name, two = "QEmbedLayerNormalization", (True, True)
        yield Asked(name, f"{kind} whole", inputs, two, constants=(2, 3, 4, 5, 6, *range(8, 18)))
        without = [*inputs[:7], None, *inputs[8:]]
        yield Asked(name, f"{kind} no mask", without, two)
        bare = list(without)
        for place in (1, 4, 10, 15):
            bare[place] = None
        yield Asked(name, f"{kind} no segments", bare, two)
    for kind, direction in itertools.product(_KINDS, ("forward", "bidirectional")):
        count = 2 if direction == "bidirectional" else 1
        weight, recurrence = v.codes(count, 5, 16, kind=kind), v.codes(count, 4, 16, kind=kind)
        step, middle = v.positive(count, low=0.0078125, high=0.015625), _zeros(v, count, kind)
        bias, peepholes = v.floats(count, 32), v.floats(count, 12)
        states = [v.floats(count, 2, 4) for _ in range(2)]
        lengths = np.array([3, 2], np.int32)
        x = v.floats(3, 2, 5)
        given = {"hidden_size": 4, "direction": direction}
        tail = [step, middle, step.copy(), middle.copy()]
        every, weights = (True, True, True), (1, 2, 8, 9, 10, 11)
        inputs = [x, weight, recurrence, bias, lengths, *states, peepholes, *tail]
        yield Asked("DynamicQuantizeLSTM", f"{kind} {direction}", inputs, every, given, weights)
        inputs = [x, weight, recurrence, *_NONE, *tail]
        yield Asked(
            "DynamicQuantizeLSTM", f"{kind} {direction} bare", inputs, every, given, weights
        )


def _zeros(v: Values, count: int, kind: str) -> Array:
    return v.integers(count, kind=kind, high=9)


# ---------------------------------------------------------------- 8-bit operators


@question
def elementwise() -> Iterator[Asked]:
    """Arithmetic on codes."""
    v = Values("codes")
    for kind in _KINDS:
        a, b = v.codes(2, 3, 4, kind=kind), v.codes(3, 4, kind=kind)
        scales = [_scale(value) for value in (0.125, 0.25, 0.375)]
        zeros = [_zero(value, kind) for value in (5, 100, 10)]
        pair = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
        for name in ("QLinearAdd", "QLinearMul"):
            yield Asked(name, f"{kind} plain", pair, constants=(3,))
        x = v.codes(2, 40, kind=kind)
        unary = [x, _scale(0.0390625), _zero(20, kind), _scale(2.0**-8), _zero(0, kind)]
        yield Asked("QLinearSigmoid", f"{kind} plain", unary, constants=(1, 2, 3, 4))
        yield Asked("QLinearSigmoid", f"{kind} bare", [x, unary[1], None, unary[3], None])
        unary = [x, _scale(0.0390625), _zero(20, kind), _scale(0.046875), _zero(3, kind)]
        slope = {"alpha": 0.125}
        yield Asked(
            "QLinearLeakyRelu", f"{kind} plain", unary, attributes=slope, constants=(1, 2, 3, 4)
        )
        yield Asked("QLinearLeakyRelu", f"{kind} bare", [x, unary[1], None, unary[3], None])
        mean = [v.codes(2, 3, 4, kind=kind), *unary[1:3], _scale(0.03125), _zero(7, kind)]
        for keeps, axes in ((1, [1]), (0, [0, 2])):
            given: dict[str, Any] = {"axes": axes, "keepdims": keeps}
            yield Asked("QLinearReduceMean", f"{kind} keeps {keeps}", mean, attributes=given)
        bare = [mean[0], mean[1], None, mean[3]]
        yield Asked("QLinearReduceMean", f"{kind} bare", bare, attributes=given)
        parts = [v.codes(2, 3, kind=kind), scales[0], _zero(7, kind)]
        parts += [v.codes(2, 5, kind=kind), scales[1], _zero(9, kind)]
        inputs = [_scale(0.1875), _zero(7, kind), *parts]
        yield Asked("QLinearConcat", f"{kind} plain", inputs, attributes={"axis": 1})
        chosen = [v.bits(2, 3, kind="bool"), v.codes(2, 3, kind=kind), scales[0], _zero(3, kind)]
        chosen += [v.codes(1, 3, kind=kind), scales[1], _zero(9, kind), scales[2], _zero(20, kind)]
        yield Asked("QLinearWhere", f"{kind} plain", chosen)
        lowest = _zero(0 if kind == "uint8" else -128, kind)
        for axis, opset in itertools.product((-1, 0, 1), (12, 13)):
            inputs = [v.codes(2, 3, 6, kind=kind), _scale(0.0625), _zero(9, kind)]
            inputs += [_scale(2.0**-8), lowest]
            given = {"axis": axis, "opset": opset}
            yield Asked("QLinearSoftmax", f"{kind} {axis} {opset}", inputs, attributes=given)
        bare = [inputs[0], inputs[1], None, *inputs[3:]]
        yield Asked("QLinearSoftmax", f"{kind} no zero point", bare, attributes={"opset": 13})


@question
def pools() -> Iterator[Asked]:
    """Means and maxima of codes, in both layouts."""
    v = Values("pools of codes")
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "padded": {"pads": [1, 1, 1, 1]},
        "counted": {"pads": [1, 0, 1, 1], "count_include_pad": 1},
        "ceiling": {"strides": [2, 2], "ceil_mode": 1},
        "same": {"auto_pad": "SAME_UPPER"},
    }
    for kind, (name, attributes) in itertools.product(_KINDS, variants.items()):
        given = {"kernel_shape": [3, 3], **attributes}
        scales = [_scale(0.09375), _zero(9, kind), _scale(0.078125), _zero(4, kind)]
        x, last = v.codes(1, 2, 5, 6, kind=kind), v.codes(1, 5, 6, 2, kind=kind)
        yield Asked("QLinearAveragePool", f"{kind} {name}", [x, *scales], attributes=given)
        turned = {**given, "channels_last": 1}
        inputs = [last, *scales]
        yield Asked("QLinearAveragePool", f"{kind} {name} last", inputs, attributes=turned)
        largest = {key: value for key, value in given.items() if key != "count_include_pad"}
        yield Asked("NhwcMaxPool", f"{kind} {name}", [last], attributes=largest)
        if name == "plain":
            dilated = {"kernel_shape": [3, 2], "dilations": [2, 1]}
            inputs = [v.codes(1, 7, 6, 2, kind=kind)]
            yield Asked("NhwcMaxPool", f"{kind} dilated", inputs, attributes=dilated)
            for flag in (0, 1):
                inputs = [v.codes(2, 3, 4, 5, kind=kind), *scales]
                flags = {"channels_last": flag}
                what = f"{kind} {flag}"
                yield Asked("QLinearGlobalAveragePool", what, inputs, attributes=flags)


@question
def code_products() -> Iterator[Asked]:
    """Products of codes: per tensor and per column, to codes and to floats."""
    v = Values("products of codes")
    for first, second in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        kinds = f"{first} {second}"
        zero, other = _zero(3, first), _zero(1, second)
        c = v.integers(5, kind="int32", low=-500, high=500)
        for trans_a, trans_b in itertools.product((0, 1), repeat=2):
            a = v.codes(*((4, 3) if trans_a else (3, 4)), kind=first)
            b = v.codes(*((5, 4) if trans_b else (4, 5)), kind=second)
            flags = {"transA": trans_a, "transB": trans_b, "alpha": 0.75}
            inputs = [a, _scale(0.125), zero, b, _scale(0.03125), other, c]
            name, tail = f"{kinds} {trans_a}{trans_b}", [_scale(0.3125), _zero(9, first)]
            yield Asked("QGemm", f"{name} floats", inputs, attributes=flags, constants=(3,))
            yield Asked("QGemm", f"{name} codes", [*inputs, *tail], attributes=flags)
            columns = [v.positive(5), v.integers(5, kind=second, high=5), None, *tail]
            yield Asked("QGemm", f"{name} columns", [*inputs[:4], *columns], attributes=flags)
        yield from _convolutions(v, first, second, c[:4])
        a, b, bias = v.codes(2, 3, 4, kind=first), v.codes(4, 5, kind=second), v.floats(5)
        zeros: dict[str, tuple[Array | None, Array]] = {
            "none": (None, _scale(0.015625)),
            "one": (other, _scale(0.015625)),
            "columns": (v.integers(5, kind=second, high=9), v.positive(5, high=0.0625)),
        }
        for (name, (b_zero, b_scale)), a_zero in itertools.product(zeros.items(), (None, zero)):
            shifted: list[Array | None] = [a, b, _scale(0.125), b_scale, a_zero, b_zero, bias]
            what = f"{kinds} {name}{'' if a_zero is None else ' shifted'}"
            yield Asked("MatMulIntegerToFloat", what, shifted, constants=(1, 3, 5))
            if a_zero is None and first == "uint8":
                floats: list[Array | None] = [v.floats(2, 3, 4), b, b_scale, b_zero, bias]
                what = f"{second} {name}"
                yield Asked("DynamicQuantizeMatMul", what, floats, constants=(1, 2, 3))
        bare = [a, b, _scale(0.125), _scale(0.015625)]
        yield Asked("MatMulIntegerToFloat", f"{kinds} bare", bare)


def _convolutions(v: Values, first: str, second: str, bias: Array) -> Iterator[Asked]:
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "padded": {"pads": [1] * 4},
        "grouped": {"group": 2},
    }
    for (name, attributes), last in itertools.product(variants.items(), (0, 1)):
        weight = v.codes(4, 4 // attributes.get("group", 1), 3, 3, kind=second)
        x = v.codes(*((1, 5, 4, 4) if last else (1, 4, 5, 4)), kind=first)
        inputs = [x, _scale(0.125), _zero(9, first), weight, v.positive(4, high=0.0625)]
        zeros = np.full(4, 0 if second == "int8" else 7, DataType[second.upper()].numpy)
        inputs += [zeros, _scale(0.75), _zero(4, first)]
        given = {**attributes, "channels_last": last}
        what = f"{first} {second} {name} {last}"
        constants = (3, 4, 5, 8)
        yield Asked("QLinearConv", what, [*inputs, bias], attributes=given, constants=constants)
        if name == "plain":
            yield Asked("QLinearConv", f"{what} no bias", inputs, attributes=given)


@question
def conversions() -> Iterator[Asked]:
    """To codes of every type and back."""
    v = Values("conversions")
    for kind in ("uint8", "int8", "uint16", "int16", "uint4", "int4"):
        # Divided by the scale these are odd numbers of quarters or less: none is near a tie.
        odd = 2 * v.integers(2, 3, 4, low=-12, high=11) + 1
        x = odd.astype(np.float32) / np.float32(32)
        zero = _zero(3, kind)
        yield Asked("QuantizeLinear", f"{kind} plain", [x, _scale(0.125), zero], constants=(1, 2))
        steps = np.array([0.125, 0.25, 0.5], np.float32)
        zeros = v.integers(3, kind=kind, high=7)
        yield Asked("QuantizeLinear", f"{kind} axis", [x, steps, zeros], attributes={"axis": 1})
    yield Asked("QuantizeLinear", "default", [x, _scale(0.125)])
    for kind in ("uint8", "int8", "uint16", "int16", "uint4", "int4", "int32"):
        codes = v.integers(2, 3, 4, kind=kind, low=-8, high=7)
        inputs = [codes, _scale(0.125), _zero(0 if kind == "int32" else 3, kind)]
        yield Asked("DequantizeLinear", f"{kind} plain", inputs, constants=(1, 2))
        yield Asked("DequantizeLinear", f"{kind} bare", inputs[:2])
        steps, zeros = v.positive(3), v.integers(3, kind=kind, high=7)
        if kind == "int32":
            zeros = np.zeros_like(zeros)
        yield Asked(
            "DequantizeLinear", f"{kind} axis", [codes, steps, zeros], attributes={"axis": 1}
        )
