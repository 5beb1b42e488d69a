"""Sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.subjects import element_in

__all__: list[str] = []


def _three(ask: Ask) -> list[Any]:
    return [ask.random(2, 3), ask.random(1, 3), ask.random(4, 3)]


@recipe("SequenceConstruct")
def construct(ask: Ask) -> Iterator[Sample]:
    """Parts of different shapes."""
    yield Sample("one", [ask.random(2)], core=True)
    yield Sample("three", _three(ask), core=True)


@recipe("SequenceAt SequenceErase")
def at(ask: Ask) -> Iterator[Sample]:
    """Positions from both ends, of both types."""
    for place in (0, 1, -1):
        yield Sample(f"at {place}", [_three(ask), np.array(place, np.int64)], core=True)
    yield Sample("int32", [_three(ask), np.array(2, np.int32)], core=True)
    if ask.op_type == "SequenceErase":
        yield Sample("last", [_three(ask)])


@recipe("SequenceInsert")
def insert(ask: Ask) -> Iterator[Sample]:
    """At the end and elsewhere."""
    new = ask.random(5, 3)
    yield Sample("end", [_three(ask), new], core=True)
    for place in (0, 2, 3, -1):
        yield Sample(f"at {place}", [_three(ask), new, np.array(place, np.int64)])
    yield Sample("int32", [_three(ask), new, np.array(1, np.int32)], core=True)


@recipe("SequenceLength")
def length(ask: Ask) -> Iterator[Sample]:
    """Full and empty."""
    yield Sample("three", [_three(ask)], core=True)
    inner = helper.make_tensor_type_proto(int(ask.dtype), None)
    kind = helper.make_sequence_type_proto(inner)
    yield Sample("empty", [[]], types={0: kind})


@recipe("SequenceEmpty")
def empty(ask: Ask) -> Iterator[Sample]:
    """Every type."""
    for text in sorted(t for c in ask.schema.type_constraints for t in c.allowed_type_strs):
        kind = element_in(text)
        yield Sample(f"type {kind.text}", [], {"dtype": int(kind)}, core=True)


@recipe("ConcatFromSequence")
def concat_from_sequence(ask: Ask) -> Iterator[Sample]:
    """Along an old and a new axis."""
    same = [ask.random(2, 3) for _ in range(3)]
    yield Sample("plain", [_three(ask)], {"axis": 0}, core=True)
    yield Sample("new axis", [same], {"axis": 1, "new_axis": 1})
    yield Sample("negative", [same], {"axis": -1})


@recipe("SplitToSequence")
def split_to_sequence(ask: Ask) -> Iterator[Sample]:
    """Single slices, equal parts, given parts."""
    x = ask.random(4, 6)
    yield Sample("slices", [x], {"axis": 0}, core=True)
    yield Sample("squeezed", [x], {"axis": 1, "keepdims": 0}, core=True)
    yield Sample("equal", [x, np.array(3, np.int64)], {"axis": 1}, core=True)
    yield Sample("uneven", [x, np.array(4, np.int64)], {"axis": 1})
    yield Sample("given", [x, ask.ints(1, 2, 3)], {"axis": 1}, core=True)
    yield Sample("int32", [x, np.array([2, 2], np.int32)], core=True)


@recipe("OptionalHasElement OptionalGetElement")
def of_optional(ask: Ask) -> Iterator[Sample]:
    """Tensors and sequences, as such where the version allows it, and optional."""
    tensor = helper.make_tensor_type_proto(int(ask.dtype), None)
    is_sequence = "seq(" in ask.kind
    inner = helper.make_sequence_type_proto(tensor) if is_sequence else tensor
    value = _three(ask) if is_sequence else ask.random(2, 3)
    name = "sequence" if is_sequence else "tensor"
    if ask.kind.startswith("optional("):
        kind = helper.make_optional_type_proto(inner)
        yield Sample(f"optional {name}", [value], types={0: kind}, core=True)
        if ask.op_type == "OptionalHasElement":
            yield Sample(f"no {name}", [None], types={0: kind}, core=True)
    else:
        yield Sample(name, [value], types={0: inner}, core=True)


@recipe("Optional")
def optional(ask: Ask) -> Iterator[Sample]:
    """Tensors and sequences."""
    if ask.kind.startswith("seq("):
        yield Sample("sequence", [_three(ask)], core=True)
    else:
        yield Sample("tensor", [ask.random(2, 3)], core=True)
