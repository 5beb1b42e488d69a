"""Operators that move data by shape and attributes: reshape, transpose, concat, split, pad, ..."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.elementwise import unary_samples
from ep_compliance.cases.recipes.numbers import scattered, special_values
from ep_core.types import DataType

__all__: list[str] = []

_INT64 = np.dtype(np.int64)


@recipe("Shape Size")
def about_shape(ask: Ask) -> Iterator[Sample]:
    """Any tensor."""
    yield from unary_samples(ask)
    if ask.has("start"):
        x = ask.random(2, 3, 4)
        for name, attributes in {
            "start": {"start": 1},
            "end": {"end": 2},
            "both": {"start": -2, "end": -1},
            "far": {"start": -9, "end": 9},
            "nothing": {"start": 2, "end": 1},
        }.items():
            yield Sample(name, [x], attributes)


@recipe("Flatten")
def flatten(ask: Ask) -> Iterator[Sample]:
    """Every axis of a tensor."""
    x = ask.random(2, 3, 4)
    for axis in range(4):
        yield Sample(f"axis {axis}", [x], {"axis": axis}, core=axis == 1)
    if ask.version >= 11:
        yield Sample("negative", [x], {"axis": -2})
    yield Sample("rank1", [ask.random(5)], {"axis": 0})
    yield Sample("empty", [ask.random(2, 0, 3)], {"axis": 1})
    yield Sample("symbolic", [x], symbolic=True)
    yield Sample("strided", [scattered(x)])


@recipe("Reshape")
def reshape(ask: Ask) -> Iterator[Sample]:
    """The new shape as an attribute in version 1, as an input since."""
    x = ask.random(2, 3, 4)
    for name, shape in {
        "plain": [4, 6],
        "infer": [3, -1],
        "keep": [0, 2, -1],
        "flat": [-1],
        "more": [1, 2, 1, 3, 4, 1],
    }.items():
        core = name in ("plain", "keep")
        if ask.version < 5:
            yield Sample(name, [x], {"shape": shape}, core=core)
            continue
        yield Sample(name, [x, ask.ints(*shape)], core=core)
        yield Sample(f"{name}, constant", [x, ask.ints(*shape)], constants=[1])
    if ask.version < 5:
        return
    yield Sample("rank0", [ask.random(1, 1), np.zeros(0, _INT64)])
    yield Sample("from rank0", [ask.random(), ask.ints(1, 1)])
    yield Sample(
        "empty", [ask.random(0, 3), ask.ints(3, 0) if ask.version < 14 else ask.ints(0, 9)]
    )
    yield Sample("symbolic", [x, ask.ints(6, 4)], symbolic=True)
    yield Sample("strided", [scattered(x), ask.ints(24)])
    if ask.has("allowzero"):
        yield Sample("allowzero", [ask.random(0, 3), ask.ints(3, 0)], {"allowzero": 1})


@recipe("Transpose")
def transpose(ask: Ask) -> Iterator[Sample]:
    """All kinds of permutations."""
    x = ask.random(2, 3, 4)
    yield Sample("default", [x], core=True)
    for perm in ([0, 2, 1], [1, 0, 2], [2, 0, 1], [1, 2, 0], [0, 1, 2]):
        yield Sample("perm " + "".join(map(str, perm)), [x], {"perm": perm}, core=perm[0] == 2)
    yield Sample("rank0", [ask.random()])
    yield Sample("rank5", [ask.random(2, 3, 1, 2, 3)], {"perm": [4, 2, 0, 3, 1]})
    yield Sample("empty", [ask.random(2, 0, 3)], {"perm": [1, 2, 0]})
    yield Sample("odd", [ask.random(17, 33)])
    yield Sample("symbolic", [x], {"perm": [2, 0, 1]}, symbolic=True)
    yield Sample("strided", [scattered(x)], {"perm": [2, 0, 1]})
    yield Sample("special", [special_values(ask.dtype).reshape(1, -1)])


@recipe("Squeeze Unsqueeze")
def squeeze(ask: Ask) -> Iterator[Sample]:
    """Axes as an attribute before version 13, as an input since."""
    drops = ask.op_type == "Squeeze"
    x = ask.random(1, 3, 1, 2) if drops else ask.random(3, 2)

    def sample(name: str, axes: list[int], **more: Any) -> Sample:
        if ask.takes(1):
            return Sample(name, [x, ask.ints(*axes)], **more)
        return Sample(name, [x], {"axes": axes}, **more)

    yield sample("plain", [0], core=True)
    yield sample("two", [0, 2], core=True)
    if ask.version >= 11:
        yield sample("negative", [-2], core=True)
        yield sample("unsorted", [2, 0])
    if ask.takes(1):
        yield sample("constant", [2, 0], constants=[1], core=True)
    if drops:
        yield Sample("all", [x], core=True)
    else:
        yield Sample(
            "rank0",
            [ask.random(), ask.ints(0)] if ask.takes(1) else [ask.random()],
            {} if ask.takes(1) else {"axes": [0]},
        )
    yield sample("symbolic", [0], symbolic=True)


@recipe("Concat")
def concat(ask: Ask) -> Iterator[Sample]:
    """Along every axis, with empty parts, of one and of many."""
    x, y = ask.random(2, 3), ask.random(2, 3)
    yield Sample("axis 0", [x, y], {"axis": 0}, core=True)
    yield Sample("axis 1", [x, ask.random(2, 1)], {"axis": 1}, core=True)
    if ask.version >= 11:
        yield Sample("negative", [x, y], {"axis": -1})
    yield Sample("single", [x], {"axis": 1})
    yield Sample("many", [ask.random(1, 2) for _ in range(11)], {"axis": 0})
    yield Sample("empty part", [x, ask.random(2, 0)], {"axis": 1})
    yield Sample("symbolic", [x, y], {"axis": 1}, symbolic=True)
    yield Sample("strided", [scattered(x), y], {"axis": 1})
    yield Sample("special", [special_values(ask.dtype), special_values(ask.dtype)], {"axis": 0})


@recipe("Split")
def split(ask: Ask) -> Iterator[Sample]:
    """Equal parts, given parts, and since version 18 a number of parts."""
    x = ask.random(2, 6)
    parts = {"num_outputs": 3} if ask.has("num_outputs") else {}
    yield Sample("equal", [x], {"axis": 1, **parts}, outputs=3, core=True)
    if ask.takes(1):
        yield Sample("given", [x, ask.ints(1, 2, 3)], {"axis": 1}, outputs=3, core=True)
        yield Sample("constant", [x, ask.ints(4, 2)], {"axis": 1}, outputs=2, constants=[1])
        yield Sample("empty part", [x, ask.ints(0, 2)], {"axis": 0}, outputs=2)
    else:
        yield Sample("given", [x], {"axis": 1, "split": [1, 2, 3]}, outputs=3, core=True)
    if ask.version == 1:
        lengths = np.array([1, 2, 3]).astype(ask.dtype.numpy)
        yield Sample("given as input", [x, lengths], {"axis": 1}, outputs=3, core=True)
    if ask.version >= 11:
        yield Sample(
            "negative", [x], {"axis": -2, **({"num_outputs": 2} if parts else {})}, outputs=2
        )
    if parts:
        yield Sample("uneven", [ask.random(7)], {"axis": 0, "num_outputs": 3}, outputs=3)


@recipe("Slice")
def slices(ask: Ask) -> Iterator[Sample]:
    """Bounds as attributes before version 10, as inputs since; steps of both signs."""
    x = ask.random(5, 6, 7)
    yield _slice(ask, "plain", x, [1, 2], [4, 5], [0, 1], core=True)
    yield _slice(ask, "no axes", x, [1, 0, 2], [3, 2, 9], None, core=True)
    yield _slice(ask, "negative", x, [-3], [-1], [2], core=True)
    yield _slice(ask, "beyond", x, [-99], [99], [1], core=True)
    yield _slice(ask, "nothing", x, [3], [2], [0])
    yield _slice(ask, "symbolic", x, [1], [3], [1], symbolic=True)
    if ask.version < 10:
        return
    far = 2**63 - 1
    yield _slice(ask, "steps", x, [0, 1], [9, 9], [0, 2], steps=[2, 3], core=True)
    yield _slice(ask, "backwards", x, [-1], [-far - 1], [1], steps=[-2], core=True)
    yield _slice(ask, "int32", x, [1], [4], [1], steps=[2], kind=DataType.INT32, core=True)
    yield _slice(ask, "constant", x, [4], [0], [0], steps=[-1], constants=[1, 2, 3, 4])
    if ask.version >= 11:
        yield _slice(ask, "negative axes", x, [0, 1], [far, 3], [-1, -3])
    yield _slice(ask, "empty", ask.random(0, 3), [0], [1], [0])
    yield _slice(ask, "strided", scattered(x), [1], [6], [2], steps=[2])


def _slice(
    ask: Ask,
    name: str,
    x: Any,
    starts: list[int],
    ends: list[int],
    axes: list[int] | None,
    *,
    steps: list[int] | None = None,
    kind: DataType = DataType.INT64,
    **more: Any,
) -> Sample:
    if ask.version < 10:
        attributes = {"starts": starts, "ends": ends}
        if axes is not None:
            attributes["axes"] = axes
        return Sample(name, [x], attributes, **more)
    inputs = [x, *(np.array(v, kind.numpy) for v in (starts, ends))]
    if axes is not None or steps is not None:
        inputs.append(None if axes is None else np.array(axes, kind.numpy))
    if steps is not None:
        inputs.append(np.array(steps, kind.numpy))
    return Sample(name, inputs, **more)


@recipe("Tile")
def tile(ask: Ask) -> Iterator[Sample]:
    """Repeats per axis; version 1 repeats one axis."""
    x = ask.random(2, 3)
    if ask.version < 6:
        count = ask.numbers.random((), ask.dtype, 2, 2)
        axis = ask.numbers.random((), ask.dtype, 1, 1)
        yield Sample("plain", [x, count, axis], core=True)
        return
    yield Sample("plain", [x, ask.ints(2, 3)], core=True)
    yield Sample("ones", [x, ask.ints(1, 1)])
    yield Sample("zero", [x, ask.ints(0, 2)])
    yield Sample("constant", [x, ask.ints(1, 2)], constants=[1], core=True)
    yield Sample("symbolic", [x, ask.ints(2, 1)], symbolic=True)
    yield Sample("rank0", [ask.random(), np.zeros(0, _INT64)])


@recipe("Expand")
def expand(ask: Ask) -> Iterator[Sample]:
    """Both sides broadcast."""
    yield Sample("plain", [ask.random(3, 1), ask.ints(2, 3, 4)], core=True)
    yield Sample("both sides", [ask.random(3, 1), ask.ints(1, 4)], core=True)
    yield Sample("rank0", [ask.random(), ask.ints(2, 2)])
    yield Sample("nothing", [ask.random(2, 3), ask.ints(1)])
    yield Sample("empty", [ask.random(1, 3), ask.ints(0, 3)])
    yield Sample("constant", [ask.random(1), ask.ints(3, 2)], constants=[1])
    yield Sample("symbolic", [ask.random(2, 1), ask.ints(2, 3)], symbolic=True)


@recipe("Pad")
def pad(ask: Ask) -> Iterator[Sample]:
    """All modes; pads as an attribute before version 11, as an input since."""
    x = ask.random(3, 4)
    if ask.dtype is DataType.FLOAT8E8M0:
        # It has no zero to pad with.
        yield _pad(ask, "edge", x, [1, 2, 0, 1], "edge", core=True)
        yield from _padded_axes(ask, x, "edge")
        return
    modes = ["constant", "edge", "reflect"] + (["wrap"] if ask.version >= 19 else [])
    for mode in modes:
        yield _pad(ask, mode, x, [1, 2, 0, 1], mode, core=True)
    yield _pad(ask, "negative", x, [-1, 1, 0, -2], "constant", core=ask.version >= 2)
    yield _pad(ask, "nothing", x, [0, 0, 0, 0], "constant")
    yield _pad(ask, "symbolic", x, [1, 0, 0, 2], "constant", symbolic=True)
    if ask.version < 11:
        yield Sample("value", [x], {_pads_name(ask): [1, 0, 0, 1], "value": 1.5}, core=True)
        return
    value = ask.random(low=2, high=3)
    pads = ask.ints(1, 0, 0, 1)
    yield Sample("value", [x, pads, value], core=True)
    yield Sample("constant inputs", [x, pads, value], constants=[1, 2])
    yield _pad(ask, "empty", ask.random(0, 3), [1, 1, 0, 0], "constant")
    if ask.version >= 18:
        yield from _padded_axes(ask, x, "constant")


def _padded_axes(ask: Ask, x: Any, mode: str) -> Iterator[Sample]:
    """Axes of both types, with and without a value."""
    pads, value, attributes = ask.ints(1, 2), ask.random(low=2, high=3), {"mode": mode}
    for name, axes in (("axes", ask.ints(-1)), ("axes int32", np.array([0], np.int32))):
        yield Sample(name, [x, pads, None, axes], attributes, core=True)
        yield Sample(f"{name}, value", [x, pads, value, axes], attributes, core=True)


def _pads_name(ask: Ask) -> str:
    return "paddings" if ask.version == 1 else "pads"


def _pad(ask: Ask, name: str, x: Any, pads: list[int], mode: str, **more: Any) -> Sample:
    if ask.version < 11:
        return Sample(name, [x], {_pads_name(ask): pads, "mode": mode}, **more)
    return Sample(name, [x, ask.ints(*pads)], {"mode": mode}, **more)


@recipe("DepthToSpace SpaceToDepth")
def depth(ask: Ask) -> Iterator[Sample]:
    """Both modes."""
    x = ask.random(2, 8, 2, 3) if ask.op_type == "DepthToSpace" else ask.random(2, 2, 4, 6)
    yield Sample("plain", [x], {"blocksize": 2}, core=True)
    if ask.has("mode"):
        yield Sample("DCR", [x], {"blocksize": 2, "mode": "DCR"})
        yield Sample("CRD", [x], {"blocksize": 2, "mode": "CRD"}, core=True)
    yield Sample("one", [x], {"blocksize": 1})
    yield Sample("symbolic", [x], {"blocksize": 2}, symbolic=True)


@recipe("CenterCropPad")
def center_crop_pad(ask: Ask) -> Iterator[Sample]:
    """Crops, pads, both, odd differences."""
    x = ask.random(5, 6)
    yield Sample("crop", [x, ask.ints(3, 3)], core=True)
    if ask.dtype is DataType.STRING:
        return  # what fills a tensor of strings isn't specified
    yield Sample("pad", [x, ask.ints(8, 9)], core=True)
    yield Sample("both", [x, ask.ints(8, 3)])
    yield Sample("axes", [x, ask.ints(9)], {"axes": [1]})
    yield Sample("int32", [x, np.array([4, 7], np.int32)])


@recipe("Trilu")
def trilu(ask: Ask) -> Iterator[Sample]:
    """Both halves, with offsets."""
    x = ask.random(2, 3, 4)
    if ask.dtype is DataType.STRING:
        # What fills a tensor of strings isn't specified: nothing is cut off here.
        yield Sample("whole", [x, np.array(9, _INT64)], {"upper": 0}, core=True)
        return
    for upper in (0, 1):
        yield Sample(f"upper {upper}", [x], {"upper": upper}, core=True)
        for k in (-2, 1, 9):
            yield Sample(f"upper {upper} k {k}", [x, np.array(k, _INT64)], {"upper": upper})
    yield Sample("empty", [ask.random(0, 3)])


@recipe("Identity")
def identity(ask: Ask) -> Iterator[Sample]:
    """Any value; sequences and optionals where the version has them."""
    if ask.kind.startswith("tensor("):
        yield from unary_samples(ask)
        return
    tensor = helper.make_tensor_type_proto(int(ask.dtype), None)
    is_sequence = "seq(" in ask.kind
    inner = helper.make_sequence_type_proto(tensor) if is_sequence else tensor
    value = [ask.random(2), ask.random(3, 1)] if is_sequence else ask.random(2, 3)
    if ask.kind.startswith("optional("):
        kind = helper.make_optional_type_proto(inner)
        yield Sample("optional", [value], types={0: kind}, core=True)
    else:
        yield Sample("sequence", [value], core=True)


@recipe("Where")
def where(ask: Ask) -> Iterator[Sample]:
    """Every type of the branches."""
    for kind in ask.types(1):
        condition = ask.random(2, 3)
        x, y = (ask.random(2, 3, dtype=kind) for _ in range(2))
        yield Sample(f"{kind.text}", [condition, x, y], core=True)
        row = ask.random(3, dtype=kind)
        yield Sample(
            f"{kind.text} broadcast", [ask.random(4, 1, 1), ask.random(2, 1, dtype=kind), row]
        )
    special = special_values(DataType.FLOAT)
    mask = ask.random(special.size)
    yield Sample("special", [mask, special, special[::-1].copy()])
    yield Sample("rank0", [ask.random(), *(ask.random(dtype=DataType.FLOAT) for _ in "xy")])
    yield Sample("empty", [ask.random(0, 3), *(ask.random(3, dtype=DataType.FLOAT) for _ in "xy")])
