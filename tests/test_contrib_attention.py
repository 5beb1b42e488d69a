"""Attention operators of com.microsoft, held against ONNX Runtime's kernels."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnxruntime_oracle import Cases

RNG = np.random.default_rng(23)
TOLERANCE = {"rtol": 1e-4, "atol": 5e-5}
MASKED = {"rtol": 1e-3, "atol": 1e-3}
"""A query that may see nothing compares scores that all had 10000 taken off, in float32."""
HALF = {"rtol": 4e-3, "atol": 4e-3}
CASES = Cases()
BATCH, LENGTH, HEADS = 2, 3, 2


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def add(name, inputs, *, outputs=1, tolerance=TOLERANCE, constants=(), **attributes):
    names = tuple(f"y{i}" for i in range(outputs))
    # ONNX Runtime doesn't tell the type of this output.
    typed = {"y3": onnx.TensorProto.FLOAT} if name.startswith("MultiHead") else {}
    model = {"outputs": names, "constants": constants, "typed": typed}
    CASES.add(name, inputs, tolerance=tolerance, model=model, **attributes)


def zeros_and_ones(*shape):
    return RNG.integers(0, 2, shape).astype(np.int32)


# ---------------------------------------------------------------- packed weights


def packed():
    x, weight, bias = f32(BATCH, LENGTH, 8), f32(8, 24), f32(24)
    masks = {
        "none": None,
        "lengths": i32(2, 0),
        "ends and starts": i32(3, 2, 1, 2),
        "columns": zeros_and_ones(BATCH, LENGTH),
        "squares": zeros_and_ones(BATCH, LENGTH, LENGTH),
        "placeholder": np.zeros((BATCH, 1), np.int32),
    }
    biases = {"": None, "own": f32(BATCH, HEADS, 3, 3), "one": f32(1, 1, 3, 3)}
    for (mask, given), (extra, added), ahead in itertools.product(
        masks.items(), biases.items(), (0, 1)
    ):
        add(
            f"Attention {mask} {extra} {ahead}", [x, weight, bias, given, None, added],
            num_heads=HEADS, unidirectional=ahead, constants=(1, 2),
            tolerance=TOLERANCE if mask in ("none", "placeholder") else MASKED,
        )  # fmt: skip
    past = f32(2, BATCH, HEADS, 4, 4)
    for ahead in (0, 1):
        options = {"num_heads": HEADS, "unidirectional": ahead, "outputs": 2}
        add(f"Attention past {ahead}", [x, weight, bias, None, past], **options)
        mask = zeros_and_ones(BATCH, 7)
        add(
            f"Attention past mask {ahead}", [x, weight, bias, mask, past], mask_filter_value=-5.0,
            scale=0.3, **options,
        )  # fmt: skip
    add("Attention present", [x, weight, bias], num_heads=HEADS, outputs=2)
    add("Attention no bias", [x, weight], num_heads=HEADS)
    wide = [x, f32(8, 28), f32(28)]
    add("Attention wide values", wide, num_heads=HEADS, qkv_hidden_sizes=[8, 8, 12])
    codes = RNG.integers(0, 256, (BATCH, LENGTH, 8), dtype=np.uint8)
    signed = RNG.integers(-128, 128, (8, 24), dtype=np.int8)
    for name, (scale, zero) in {
        "one": (np.array(0.03, np.float32), np.array(1, np.int8)),
        "columns": (np.abs(f32(24)) * 0.05, RNG.integers(-9, 9, 24, dtype=np.int8)),
    }.items():
        for mask, state in ((None, None), (i32(2, 3), None), (None, past)):
            inputs = [codes, signed, f32(24), np.array(0.02, np.float32), scale, mask]
            add(
                f"QAttention {name} {mask is None} {state is None}",
                [*inputs, np.array(3, np.uint8), zero, state], num_heads=HEADS, unidirectional=1,
                outputs=1 if state is None else 2, tolerance=MASKED, constants=(1,),
            )  # fmt: skip


# ---------------------------------------------------------------- separate query, key, value


def separate():
    keys = 4
    query, key, value, bias = f32(BATCH, 3, 8), f32(BATCH, keys, 8), f32(BATCH, keys, 8), f32(24)
    name = "MultiHeadAttention"
    add(f"{name} plain", [query, key, value], num_heads=HEADS)
    wide = [query, key, f32(BATCH, keys, 12), f32(8 + 8 + 12)]
    add(f"{name} wide values", wide, num_heads=HEADS, scale=0.2)
    masks = {"lengths": i32(2, 3), "columns": zeros_and_ones(BATCH, keys)}
    masks["squares"] = zeros_and_ones(BATCH, 3, keys)
    for mask, given in masks.items():
        inputs = [query, key, value, bias, given, f32(BATCH, HEADS, 3, keys)]
        add(f"{name} {mask}", inputs, num_heads=HEADS, outputs=4, tolerance=MASKED)
        inputs[5] = f32(1, HEADS, 3, keys)
        add(f"{name} {mask} soft", inputs, num_heads=HEADS, outputs=4, mask_filter_value=-7.0)
    cached = [query, f32(BATCH, HEADS, keys, 4), f32(BATCH, HEADS, keys, 4)]
    add(f"{name} cached", cached, num_heads=HEADS)
    add(f"{name} cached bias", [*cached, bias], num_heads=HEADS, outputs=3)
    own = [query, f32(BATCH, 3, 8), f32(BATCH, 3, 8), bias]
    past = [f32(BATCH, HEADS, 5, 4), f32(BATCH, HEADS, 5, 4)]
    for ahead in (0, 1):
        options = {"num_heads": HEADS, "unidirectional": ahead, "outputs": 3}
        add(f"{name} self {ahead}", own, **options)
        add(f"{name} past {ahead}", [*own, None, None, *past], **options)
        mask, added = zeros_and_ones(BATCH, 8), f32(BATCH, HEADS, 3, 8)
        mask[:, 0] = 1
        add(f"{name} past mask {ahead}", [*own, mask, added, *past], **options)


# ---------------------------------------------------------------- groups and rotation


def grouped():
    heads, key_heads, size = 4, 2, 16
    cos, sin = f32(32, 8), f32(32, 8)
    none = (None,) * 3

    def one(name, batch, new, *, past=None, lengths=None, longest=None, packed=False, others=(),
            dtype=np.float32, **options):  # fmt: skip
        widths = (heads * size, key_heads * size, key_heads * size)
        parts = [f32(batch, new, width) for width in widths]
        if packed:
            parts = [np.concatenate(parts, axis=-1), None, None]
        cache = [None, None]
        if past is not None:
            cache = [f32(batch, key_heads, past, size) for _ in range(2)]
        longest = longest or new
        lengths = lengths or [longest - 1] * batch
        inputs = [*parts, *cache, i32(*lengths), i32(longest), *others]
        inputs = [
            value.astype(dtype) if value is not None and value.dtype == np.float32 else value
            for value in inputs
        ]
        options = {"outputs": 3, "tolerance": TOLERANCE if dtype == np.float32 else HALF, **options}
        name = f"GroupQueryAttention {name}"
        add(name, inputs, num_heads=heads, kv_num_heads=key_heads, **options)

    one("prompt", 2, 5)
    one("packed", 2, 5, packed=True)
    one("empty past", 2, 5, past=0)
    one("all keys", 1, 5, causal=0)
    one("token", 2, 1, past=6, longest=7)
    one("chunk", 1, 5, past=6, longest=11)
    ragged = {"past": 8, "lengths": [6, 3], "longest": 7}
    for interleaved in (0, 1):
        turned = {"do_rotary": 1, "rotary_interleaved": interleaved, "others": (cos, sin)}
        one(f"turned prompt {interleaved}", 2, 5, **turned)
        one(f"turned packed {interleaved}", 2, 5, packed=True, **turned)
        one(f"turned chunk {interleaved}", 1, 5, past=6, longest=11, **turned)
        one(f"turned half {interleaved}", 2, 5, dtype=np.float16, **turned)
        places = {**turned, "others": (cos, sin, RNG.integers(0, 32, (1, 5)))}
        one(f"turned places {interleaved}", 1, 5, past=6, longest=11, **places)
        places["others"] = (cos, sin, RNG.integers(0, 20, (2, 5)))
        one(f"turned prompt places {interleaved}", 2, 5, **places)
    for window in (1, 3, 9):
        options = {"local_window_size": window, "softcap": 2.0, "scale": 0.3}
        one(f"window {window}", 1, 5, past=6, longest=11, **options)
    # Without its outputs for the cache ONNX Runtime doesn't look at a past that is a large buffer.
    one("ragged", 2, 1, **ragged)
    one("ragged window", 2, 1, local_window_size=3, **ragged)
    one("ragged turned", 2, 1, do_rotary=1, others=(cos, sin), **ragged)
    one("large cache", 1, 5, past=16, longest=11)
    one("large cache prompt", 2, 5, past=16)
    one("sink", 2, 5, others=(*none, None, f32(heads)))
    one("smooth", 2, 5, smooth_softmax=1)
    one("bias", 2, 5, others=(*none, f32(2, heads, 5, 5)))
    one("bias chunk", 1, 5, past=6, longest=11, others=(*none, f32(1, 1, 5, 11)))
    for shown in (1, 2):
        options = {"qk_output": shown, "outputs": 4, "softcap": 1.5}
        one(f"scores {shown}", 1, 5, others=(*none, f32(1, heads, 5, 5)), **options)
        one(f"scores chunk {shown}", 1, 5, past=6, longest=11, **options)


def rotary():
    cos, sin = f32(12, 4), f32(12, 4)
    part = {"rotary_embedding_dim": 4, "num_heads": 2}
    for interleaved, shape in itertools.product((0, 1), ((2, 3, 16), (2, 2, 3, 8))):
        name = f"RotaryEmbedding {interleaved} {len(shape)}"
        places = RNG.integers(0, 12, (2, 3))
        add(f"{name} from", [f32(*shape), np.array([4]), cos, sin], interleaved=interleaved)
        add(f"{name} places", [f32(*shape), places, cos, sin], interleaved=interleaved)
        inputs = [f32(*shape), places, cos[:, :2].copy(), sin[:, :2].copy()]
        add(f"{name} part", inputs, interleaved=interleaved, **part)
    half = [f32(2, 3, 16), np.array([4]), cos, sin]
    half = [value.astype(np.float16) if value.dtype == np.float32 else value for value in half]
    add("RotaryEmbedding half", half, tolerance=HALF)


for build in (packed, separate, grouped, rotary):
    build()


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_onnxruntime(name):
    CASES[name].check()
