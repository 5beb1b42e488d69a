"""Attention without masks, and rotation, in standard operators; see `compositions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from contrib_cases.asking import Asked
from contrib_cases.compositions import Build, rule

__all__ = ["attends_plainly"]

_PLAIN = frozenset(
    {"num_heads", "kv_num_heads", "scale", "softcap", "unidirectional", "interleaved"}
)


def attends_plainly(question: Asked) -> bool:
    """True for forms of attention that the standard operator has too."""
    inputs, name = question.inputs, question.op_type
    given = [value is not None for value in (*inputs, *[None] * 17)][:17]
    if not set(question.attributes) <= _PLAIN or len(question.outputs) > 3:
        return False
    if name == "MultiHeadAttention":
        return all(given[:3]) and not any(given[3:6])
    # Its past may be a buffer that is larger than what it holds.
    whole = inputs[3] is None or inputs[6] is None or _length(inputs, 3) < int(inputs[6][0])
    return all(given[:3]) and not any(given[7:]) and whole


def _length(inputs: Sequence[Any], place: int) -> int:
    return int(inputs[place].shape[2])


@rule("MultiHeadAttention GroupQueryAttention")
def _attention(b: Build) -> Sequence[str]:
    grouped = b.question.op_type == "GroupQueryAttention"
    heads = b.attr("num_heads", 1)
    given: dict[str, Any] = {
        "q_num_heads": heads,
        "kv_num_heads": b.attr("kv_num_heads", heads),
        "is_causal": 1 if grouped else b.attr("unidirectional", 0),
    }
    for name in ("scale", "softcap"):
        if name in b.question.attributes:
            given[name] = b.question.attributes[name]
    places = (3, 4) if grouped else (6, 7)
    if len(b.shape(1)) == 4:
        # Keys and values as heads already, and no past.
        shape = b.constant([0, 0, -1], np.int64)
        key, value = (
            b("Reshape", b("Transpose", b.input(place), perm=[0, 2, 1, 3]), shape)
            for place in (1, 2)
        )
    else:
        key, value = b.input(1), b.input(2)
    inputs = [b.input(0), key, value, "", *(b.input(place) for place in places)]
    return b.many("Attention", inputs, 3, **given)


@rule("RotaryEmbedding")
def _rotation(b: Build) -> Sequence[str]:
    """A single place counts on from there."""
    shape, places = b.shape(0), b.input(1)
    batch, length = shape[0], shape[2] if len(shape) == 4 else shape[1]
    if b.shape(1) == (1,):
        steps = b.constant(np.arange(length)[None].repeat(batch, axis=0), np.int64)
        places = b("Add", b.input(1), steps)
    width = b.attr("rotary_embedding_dim", 0) or 2 * b.shape(2)[1]
    given: dict[str, Any] = {
        "interleaved": b.attr("interleaved", 0),
        "rotary_embedding_dim": b.attr("rotary_embedding_dim", 0),
    }
    if len(shape) == 3:
        given["num_heads"] = b.attr("num_heads", 0) or shape[2] // width
    return [b("RotaryEmbedding", b.input(0), b.input(2), b.input(3), places, **given)]
