"""Quantised operators of com.microsoft, held against ONNX Runtime's kernels."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from onnxruntime_oracle import Cases

RNG = np.random.default_rng(22)
EXACT = {"atol": 0}
ONE_STEP = {"atol": 1}  # both round the quotient of two float32 numbers that differ in the last bit
CASES = Cases()
add = CASES.add


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def scale(value):
    return np.array(value, np.float32)


def i8(*shape):
    return RNG.integers(-128, 128, shape, dtype=np.int8)


# ---------------------------------------------------------------- weights of few bits


def packed(codes, bits):
    missing = -codes.shape[-1] % (8 // bits)
    filled = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    groups = filled.reshape(*codes.shape[:-1], -1, 8 // bits)
    return (groups << (bits * np.arange(8 // bits))).sum(axis=-1).astype(np.uint8)


def packed_products():
    rows = 5
    for bits, (columns, block) in itertools.product((2, 4, 8), ((64, 32), (40, 32), (96, 16))):
        blocks = -(-columns // block)
        codes = RNG.integers(0, 1 << bits, (rows, blocks, block))
        x, scales, bias = f32(2, 3, columns), np.abs(f32(rows, blocks)) * 0.1, f32(rows)
        zeros = RNG.integers(0, 1 << bits, (rows, blocks))
        options = {"None": None, "packed": packed(zeros, bits)}
        if bits < 8:  # ONNX Runtime takes no others of 8 bits
            options["floats"] = zeros.astype(np.float32) + 0.5
        size = {"K": columns, "N": rows, "bits": bits, "block_size": block}
        for name, given in options.items():
            for constants in ((1, 2, 3, 5), ()):
                add(
                    f"MatMulNBits {bits} {columns} {block} {name} {constants}",
                    [x, packed(codes, bits), scales, given, None, bias],
                    tolerance={"rtol": 1e-3, "atol": 2e-3}, model={"constants": constants}, **size,
                )  # fmt: skip
        half = [x.astype(np.float16), packed(codes, bits), scales.astype(np.float16)]
        add(
            f"MatMulNBits {bits} {columns} {block} half", half, model={"constants": (1, 2)},
            tolerance={"rtol": 1e-2, "atol": 5e-2}, **size,
        )  # fmt: skip
    # With packed zero points ONNX Runtime leaves them out where columns have groups.
    groups = RNG.permutation(np.arange(64) // 16).astype(np.int32)
    codes, scales = RNG.integers(0, 16, (rows, 4, 16)), np.abs(f32(rows, 4))
    inputs = [f32(2, 64), packed(codes, 4), scales, f32(rows, 4), groups]
    add("MatMulNBits groups", inputs, K=64, N=rows, block_size=16, tolerance={"atol": 1e-3})
    for kind, (rows, columns) in itertools.product((0, 1), ((5, 64), (3, 32))):
        data = RNG.integers(0, 256, rows * columns // 2, dtype=np.uint8)
        add(
            f"MatMulBnb4 {kind} {rows}",
            [f32(2, columns), data, np.abs(f32(rows * columns // 32))],
            K=columns, N=rows, block_size=32, quant_type=kind, model={"constants": (1, 2)},
            tolerance={"atol": 1e-4},
        )  # fmt: skip


def gathered_blocks():
    places = {
        "line": np.array([0, 3, -1]),
        "plane": np.array([[1, 2], [4, 0]], np.int32),
        "point": np.array(2),
        "outside": np.array([0, 9, -9]),
    }
    for kind, bits in (("uint8", 2), ("uint8", 4), ("uint8", 8), ("int4", 4), ("uint4", 4)):
        codes, zeros = (RNG.integers(0, 1 << bits, (6, width)) for width in (48, 3))
        if kind == "uint8":
            data, points = packed(codes, bits), packed(zeros, bits)
        else:
            shift = 8 if kind == "int4" else 0
            data, points = (
                (values - shift).astype(getattr(ml_dtypes, kind)) for values in (codes, zeros)
            )
        for (name, index), zero in itertools.product(places.items(), (None, points)):
            add(
                f"GatherBlockQuantized {kind} {bits} {name} {zero is None}",
                [data, index, np.abs(f32(6, 3)), zero],
                bits=bits, block_size=16, model={"constants": (0, 2, 3)},
            )  # fmt: skip
    data = RNG.integers(0, 16, (3, 32, 4)).astype(ml_dtypes.uint4)
    for gather in (0, 1, 2):
        add(
            f"GatherBlockQuantized axis {gather}",
            [data, np.array([[0, 2]]), np.abs(f32(3, 2, 4))],
            gather_axis=gather, quantize_axis=1, block_size=16, model={"constants": (0, 2)},
        )  # fmt: skip


# ---------------------------------------------------------------- 8-bit operators


def elementwise(kind, codes, zero):
    a, b = codes(2, 3, 4), codes(3, 4)
    pair = [a, scale(0.1), zero(5), b, scale(0.2), zero(100), scale(0.3), zero(10)]
    for op_type in ("QLinearAdd", "QLinearMul"):
        add(f"{op_type} {kind}", pair, tolerance=ONE_STEP)
        add(f"{op_type} {kind} constant", pair, tolerance=ONE_STEP, model={"constants": (3,)})
    every = [codes(2, 300), scale(0.04), zero(20), scale(1 / 256), zero(0)]
    add(f"QLinearSigmoid {kind}", every, tolerance=EXACT)
    add(f"QLinearSigmoid {kind} bare", [every[0], *(every[1], None) * 2], tolerance=EXACT)
    every[3:] = [scale(0.05), zero(3)]
    add(f"QLinearLeakyRelu {kind}", every, alpha=0.1, tolerance=EXACT)
    parts = [codes(2, 3), scale(0.1), zero(7), codes(2, 5), scale(0.05), zero(9)]
    add(f"QLinearConcat {kind}", [scale(0.1), zero(7), *parts], axis=1, tolerance=EXACT)
    chosen = [RNG.random((2, 3)) > 0.5, codes(2, 3), scale(0.1), zero(3), codes(1, 3)]
    chosen += [scale(0.2), zero(9), scale(0.15), zero(20)]
    add(f"QLinearWhere {kind}", chosen, tolerance=EXACT)
    lowest = zero(0 if kind == "uint8" else -128)
    for axis, opset in itertools.product((-1, 0, 1), (12, 13)):
        add(
            f"QLinearSoftmax {kind} {axis} {opset}",
            [codes(2, 3, 6), scale(0.05), zero(9), scale(1 / 256), lowest],
            axis=axis, opset=opset, tolerance=ONE_STEP,
        )  # fmt: skip


def pools(kind, codes, zero):
    variants = {
        "plain": {},
        "padded": {"pads": [1, 1, 1, 1]},
        "counted": {"pads": [1, 0, 1, 1], "count_include_pad": 1},
        "ceiling": {"strides": [2, 2], "ceil_mode": 1},
        "same": {"auto_pad": "SAME_UPPER"},
    }
    scales = [scale(0.1), zero(9), scale(0.08), zero(4)]
    for name, attributes in variants.items():
        given = {"kernel_shape": [3, 3], "tolerance": ONE_STEP, **attributes}
        add(f"QLinearAveragePool {kind} {name}", [codes(1, 3, 7, 8), *scales], **given)
        last = [codes(1, 7, 8, 3), *scales]
        add(f"QLinearAveragePool {kind} {name} last", last, channels_last=1, **given)
        given.pop("count_include_pad", None)
        given["tolerance"] = EXACT
        add(f"NhwcMaxPool {kind} {name}", last[:1], **given)
    add(f"NhwcMaxPool {kind} dilated", [codes(1, 9, 8, 3)], kernel_shape=[3, 2], dilations=[2, 1])
    for last in (0, 1):
        add(
            f"QLinearGlobalAveragePool {kind} {last}", [codes(2, 3, 5, 6), *scales],
            channels_last=last, tolerance=ONE_STEP,
        )  # fmt: skip


def products(kind, codes, zero):
    for trans_a, trans_b in itertools.product((0, 1), repeat=2):
        a, b = codes(*((4, 3) if trans_a else (3, 4))), i8(*((5, 4) if trans_b else (4, 5)))
        flags = {"transA": trans_a, "transB": trans_b, "alpha": 0.7}
        c = RNG.integers(-500, 500, 5).astype(np.int32)
        inputs = [a, scale(0.1), zero(3), b, scale(0.02), np.array(1, np.int8), c]
        name = f"QGemm {kind} {trans_a}{trans_b}"
        add(f"{name} floats", inputs, **flags)
        add(f"{name} codes", [*inputs, scale(0.3), zero(9)], tolerance=ONE_STEP, **flags)
        columns = [*inputs[:4], np.abs(f32(5)) * 0.05, i8(5), None, scale(0.3), zero(9)]
        add(f"{name} columns", columns, tolerance=ONE_STEP, **flags)
    for name, attributes in {
        "plain": {},
        "padded": {"pads": [1] * 4},
        "grouped": {"group": 2},
    }.items():
        weight, bias = i8(4, 4 // attributes.get("group", 1), 3, 3), c[:4]
        rest = [scale(0.1), zero(9), weight, np.abs(f32(4)) * 0.01, np.zeros(4, np.int8)]
        rest += [scale(0.2), zero(4), bias]
        model = {"constants": (3, 4, 5, 8)}
        for last in (0, 1):
            x = codes(*((1, 7, 8, 4) if last else (1, 4, 7, 8)))
            add(
                f"QLinearConv {kind} {name} {last}", [x, *rest], channels_last=last,
                tolerance=ONE_STEP, model=model, **attributes,
            )  # fmt: skip
    zeros = {"none": (None, scale(0.02)), "one": (np.array(2, np.int8), scale(0.02))}
    zeros["columns"] = (i8(5), np.abs(f32(5)) * 0.02)
    for (name, (b_zero, b_scale)), constants in itertools.product(zeros.items(), ((), (1, 3, 5))):
        a, b, bias = codes(2, 3, 4), i8(4, 5), f32(5)
        for a_zero in (None, zero(3)):
            add(
                f"MatMulIntegerToFloat {kind} {name} {constants} {a_zero is None}",
                [a, b, scale(0.1), b_scale, a_zero, b_zero, bias], model={"constants": constants},
            )  # fmt: skip
        if kind == "uint8":
            add(
                f"DynamicQuantizeMatMul {name} {constants}",
                [f32(2, 3, 4), b, b_scale, b_zero, bias],
                model={"constants": constants}, tolerance={"atol": 1e-3},
            )  # fmt: skip


def conversions(kind, codes, zero):
    add(f"DequantizeLinear {kind}", [codes(2, 3, 4), scale(0.1), zero(3)])
    add(f"DequantizeLinear {kind} axis", [codes(2, 3, 4), np.abs(f32(3)), codes(3)], axis=1)
    half = [codes(2, 3, 4), np.array(0.1, np.float16), zero(3)]
    add(f"DequantizeLinear {kind} half", half, tolerance={"atol": 1e-2})
    add(f"QuantizeLinear {kind}", [f32(2, 3, 4), scale(0.1), zero(3)], tolerance=EXACT)
    steps = np.abs(f32(3)) + 0.01
    add(f"QuantizeLinear {kind} axis", [f32(2, 3, 4), steps, codes(3)], axis=1, tolerance=EXACT)


def wide_conversions():
    for dtype in (np.int16, np.uint16):
        kind, zero = np.dtype(dtype).name, np.array(3, dtype)
        add(f"QuantizeLinear {kind}", [f32(2, 3), scale(0.001), zero], tolerance=EXACT)
        codes = RNG.integers(0, 30000, (2, 3)).astype(dtype)
        add(f"DequantizeLinear {kind}", [codes, scale(0.001), zero])
    add("QuantizeLinear default", [f32(2, 3, 4), scale(0.1)], tolerance=EXACT)


packed_products()
gathered_blocks()
wide_conversions()
for dtype in (np.uint8, np.int8):
    info = np.iinfo(dtype)
    for build in (elementwise, pools, products, conversions):
        build(
            np.dtype(dtype).name,
            lambda *shape, info=info: RNG.integers(info.min, info.max + 1, shape, dtype=info.dtype),
            lambda value, info=info: np.array(value, info.dtype),
        )


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_onnxruntime(name):
    CASES[name].check()
