"""Questions: attention and rotation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from contrib_cases.asking import Array, Asked, Values, question

__all__: list[str] = []

_BATCH, _LENGTH, _HEADS = 2, 3, 2


def _lengths(*values: int) -> Array:
    return np.array(values, np.int32)


@question
def packed() -> Iterator[Asked]:
    """One matrix of weights for query, key and value; masks of every form; a past."""
    v = Values("packed attention")
    x, weight, bias = (
        v.floats(_BATCH, _LENGTH, 8),
        v.floats(8, 24, low=-0.5, high=0.5),
        v.floats(24),
    )
    first = {"num_heads": _HEADS}
    yield Asked("Attention", "plain", [x, weight, bias], attributes=first, constants=(1, 2))
    yield Asked("Attention", "no bias", [x, weight], attributes=first)
    squares = v.bits(_BATCH, _LENGTH, _LENGTH)
    squares[:, :, 0] = 1
    masks = {
        "lengths": _lengths(2, 3),
        "ends and starts": _lengths(3, 2, 1, 0),
        "columns": np.array([[1, 0, 1], [1, 1, 0]], np.int32),
        "squares": squares,
        "placeholder": np.zeros((_BATCH, 1), np.int32),
    }
    added = {"own": v.floats(_BATCH, _HEADS, 3, 3), "one": v.floats(1, 1, 3, 3)}
    for ahead, (name, mask) in itertools.product((0, 1), masks.items()):
        given = {**first, "unidirectional": ahead}
        inputs = [x, weight, bias, mask]
        yield Asked("Attention", f"{name} {ahead}", inputs, attributes=given)
    for ahead, (name, extra) in itertools.product((0, 1), added.items()):
        given = {**first, "unidirectional": ahead}
        inputs = [x, weight, bias, masks["columns"], None, extra]
        yield Asked("Attention", f"added {name} {ahead}", inputs, attributes=given)
    past = v.floats(2, _BATCH, _HEADS, 4, 4)
    open_columns = v.bits(_BATCH, 7)
    open_columns[:, 0] = 1
    two = (True, True)
    for ahead in (0, 1):
        given = {**first, "unidirectional": ahead}
        yield Asked("Attention", f"past {ahead}", [x, weight, bias, None, past], two, given)
        soft = {**given, "mask_filter_value": -5.0, "scale": 0.25}
        inputs = [x, weight, bias, open_columns, past]
        yield Asked("Attention", f"past and mask {ahead}", inputs, two, soft)
    yield Asked("Attention", "present", [x, weight, bias], two, first)
    wide = [x, v.floats(8, 28, low=-0.5, high=0.5), v.floats(28)]
    sizes = {**first, "qkv_hidden_sizes": [8, 8, 12]}
    yield Asked("Attention", "wide values", wide, attributes=sizes)


@question
def quantized() -> Iterator[Asked]:
    """Codes times codes, in the combinations that exist."""
    v = Values("quantized attention")
    past = v.floats(2, _BATCH, _HEADS, 4, 4)
    for kind in ("uint8", "int8"):
        codes, weight = v.codes(_BATCH, _LENGTH, 8, kind="uint8"), v.codes(8, 24, kind=kind)
        bias, scale = v.floats(24), np.array(2.0**-6, np.float32)
        columns = v.positive(24, low=0.015625, high=0.0625)
        zero, one = np.array(3, np.uint8), np.array(1, np.dtype(kind))
        several = v.integers(24, kind=kind, low=0, high=9)
        for name, (steps, zeros) in {"one": (scale, one), "columns": (columns, several)}.items():
            for masked, state in ((None, None), (_lengths(2, 3), None), (None, past)):
                inputs = [codes, weight, bias, scale, steps, masked, zero, zeros, state]
                with_mask = "no mask" if masked is None else "lengths"
                with_past = "" if state is None else " past"
                yield Asked(
                    "QAttention",
                    f"{kind} {name} {with_mask}{with_past}",
                    inputs[: 8 if state is None else 9],
                    (True,) if state is None else (True, True),
                    {"num_heads": _HEADS, "unidirectional": 1},
                    constants=(1, 2, 3, 4, 6, 7),
                )
        bare = [codes, weight, bias, scale, scale]
        yield Asked("QAttention", f"{kind} bare", bare, attributes={"num_heads": _HEADS})
        mask = v.bits(_BATCH, 7)
        mask[:, 0] = 1
        inputs = [codes, weight, bias, scale, scale, mask, zero, one, past]
        yield Asked("QAttention", f"{kind} everything", inputs, (True, True), {"num_heads": _HEADS})


@question
def separate() -> Iterator[Asked]:
    """Query, key and value apart, or as heads."""
    v = Values("separate attention")
    name, keys, first = "MultiHeadAttention", 4, {"num_heads": _HEADS}
    query, key, value = v.floats(_BATCH, 3, 8), v.floats(_BATCH, keys, 8), v.floats(_BATCH, keys, 8)
    bias = v.floats(24)
    yield Asked(name, "plain", [query, key, value], attributes=first)
    wide = [query, key, v.floats(_BATCH, keys, 12), v.floats(28)]
    yield Asked(name, "wide values", wide, attributes={**first, "scale": 0.25})
    squares = v.bits(_BATCH, 3, keys)
    squares[:, :, 1] = 1
    masks = {
        "lengths": _lengths(2, 3),
        "columns": np.array([[1, 0, 1, 1], [0, 1, 1, 0]], np.int32),
        "squares": squares,
    }
    every = (True, True, True, True)
    for what, mask in masks.items():
        inputs = [query, key, value, bias, mask, v.floats(_BATCH, _HEADS, 3, keys)]
        yield Asked(name, what, inputs, every, first)
        inputs = [*inputs[:5], v.floats(1, _HEADS, 3, keys)]
        yield Asked(name, f"{what} soft", inputs, every, {**first, "mask_filter_value": -7.0})
    cached = [query, v.floats(_BATCH, _HEADS, keys, 4), v.floats(_BATCH, _HEADS, keys, 4)]
    yield Asked(name, "cached", cached, attributes=first)
    yield Asked(name, "cached bias", [*cached, bias], every[:3], first)
    own = [query, v.floats(_BATCH, 3, 8), v.floats(_BATCH, 3, 8), bias]
    past = [v.floats(_BATCH, _HEADS, 5, 4), v.floats(_BATCH, _HEADS, 5, 4)]
    for ahead in (0, 1):
        given = {**first, "unidirectional": ahead}
        yield Asked(name, f"self {ahead}", own, every[:3], given)
        yield Asked(name, f"past {ahead}", [*own, None, None, *past], every[:3], given)
        mask = v.bits(_BATCH, 8)
        mask[:, 0] = 1
        inputs = [*own, mask, v.floats(_BATCH, _HEADS, 3, 8), *past]
        # What the scores of keys are that nobody may see isn't defined.
        yield Asked(name, f"everything {ahead}", inputs, every[: 3 if ahead else 4], given)


_GROUPED = {"num_heads": 4, "kv_num_heads": 2}
_SIZE = 16


def _grouped_inputs(
    v: Values, batch: int, new: int, past: int | None, lengths: list[int], longest: int
) -> list[Any]:
    widths = (4 * _SIZE, 2 * _SIZE, 2 * _SIZE)
    parts: list[Any] = [v.floats(batch, new, width) for width in widths]
    cache: list[Any] = [None, None]
    if past is not None:
        cache = [v.floats(batch, 2, past, _SIZE) for _ in range(2)]
    return [*parts, *cache, _lengths(*lengths), np.array([longest], np.int32)]


@question
def grouped() -> Iterator[Asked]:
    """Prompts, single tokens and chunks over a cache."""
    v = Values("grouped attention")
    name, three, none = "GroupQueryAttention", (True, True, True), [None] * 3
    cos, sin = v.floats(32, _SIZE // 2), v.floats(32, _SIZE // 2)

    def prompt() -> list[Any]:
        return _grouped_inputs(v, 2, 3, None, [2, 2], 3)

    def chunk(past: int = 4) -> list[Any]:
        return _grouped_inputs(v, 1, 3, past, [6], 7)

    def ragged() -> list[Any]:
        return _grouped_inputs(v, 2, 1, 8, [6, 3], 7)

    yield Asked(name, "prompt", prompt(), three, _GROUPED)
    yield Asked(name, "empty past", _grouped_inputs(v, 2, 3, 0, [2, 2], 3), three, _GROUPED)
    yield Asked(name, "token", _grouped_inputs(v, 2, 1, 6, [6, 6], 7), three, _GROUPED)
    yield Asked(name, "chunk", chunk(), three, _GROUPED)
    yield Asked(name, "ragged", ragged(), three, _GROUPED)
    yield Asked(name, "large cache", chunk(past=9), three, _GROUPED)
    packed = prompt()
    packed[:3] = [np.concatenate(packed[:3], axis=-1), None, None]
    yield Asked(name, "packed", packed, three, _GROUPED)
    yield Asked(name, "smooth", prompt(), three, {**_GROUPED, "smooth_softmax": 1})
    for window in (1, 3):
        given = {**_GROUPED, "local_window_size": window, "softcap": 2.0, "scale": 0.25}
        yield Asked(name, f"window {window}", chunk(), three, given)
    for turned in (0, 1):
        given = {**_GROUPED, "do_rotary": 1, "rotary_interleaved": turned}
        yield Asked(name, f"turned prompt {turned}", [*prompt(), cos, sin], three, given)
        yield Asked(name, f"turned chunk {turned}", [*chunk(), cos, sin], three, given)
        yield Asked(name, f"turned token {turned}", [*ragged(), cos, sin], three, given)
        places = v.integers(1, 3, high=31)
        yield Asked(name, f"places {turned}", [*chunk(), cos, sin, places], three, given)
    sink = [*prompt(), *none, None, v.floats(4)]
    yield Asked(name, "sink", sink, three, _GROUPED)
    yield Asked(name, "added", [*prompt(), *none, v.floats(2, 4, 3, 3)], three, _GROUPED)
    added = [*chunk(), *none, v.floats(1, 1, 3, 7)]
    yield Asked(name, "added chunk", added, three, _GROUPED)
    for shown in (1, 2):
        given = {**_GROUPED, "qk_output": shown, "softcap": 1.5}
        yield Asked(name, f"scores {shown}", chunk(), (*three, True), given)
    places = v.integers(1, 3, high=31)
    everything = [*chunk(), cos, sin, places, v.floats(1, 4, 3, 7), v.floats(4)]
    given = {**_GROUPED, "do_rotary": 1}
    yield Asked(name, "everything", everything, three, given)


@question
def rotary() -> Iterator[Asked]:
    """Pairs of values turned by an angle of their place."""
    v = Values("rotation")
    cos, sin = v.floats(12, 4), v.floats(12, 4)
    for turned, shape in itertools.product((0, 1), ((2, 3, 16), (2, 2, 3, 8))):
        name, given = f"rank{len(shape)} {turned}", {"interleaved": turned}
        places = v.integers(2, 3, high=11)
        inputs = [v.floats(*shape), np.array([4]), cos, sin]
        yield Asked("RotaryEmbedding", f"{name} from", inputs, attributes=given, constants=(2, 3))
        inputs = [v.floats(*shape), places, cos, sin]
        yield Asked("RotaryEmbedding", f"{name} places", inputs, attributes=given)
        inputs = [v.floats(*shape), places, cos[:, :2].copy(), sin[:, :2].copy()]
        part = {**given, "rotary_embedding_dim": 4, "num_heads": 2}
        yield Asked("RotaryEmbedding", f"{name} part", inputs, attributes=part)
