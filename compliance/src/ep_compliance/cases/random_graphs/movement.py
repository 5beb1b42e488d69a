"""Steps that move elements about."""

from __future__ import annotations

import numpy as np

from ep_compliance.cases.random_graphs.elementwise import is_number
from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Shape, Value, size_of
from ep_core.types import DataType

__all__ = ["moved"]

_FAR = 2**31 - 1
"""An end of a slice that means `to the end`."""


def moved(
    grower: Grower,
    x: Value,
    shape: Shape | list[int],
    others: tuple[float, float, float] | None = None,
) -> Value:
    """A draft of x's elements in another shape.

    Args:
        others: lower and upper bound and grain of what stands beside them.
    """
    low, high, grain = others or (x.low, x.high, x.grain)
    return grower.draft(shape, x.dtype, min(x.low, low), max(x.high, high), min(x.grain, grain))


def _anything(grower: Grower, least_rank: int = 1) -> Value | None:
    return grower.pick(lambda v: v.rank >= least_rank)


def _axis(grower: Grower, x: Value) -> tuple[int, int]:
    """An axis, and the number that names it."""
    axis = grower.draws.below(x.rank)
    return axis, axis - x.rank if grower.draws.chance(30) else axis


@step("Transpose")
def transpose(grower: Grower, op_type: str) -> bool:
    x = _anything(grower)
    if x is None:
        return False
    if grower.draws.chance(20):
        return grower.emit(op_type, [x], moved(grower, x, x.shape[::-1]))
    order = grower.draws.some(range(x.rank), x.rank)
    return grower.emit(op_type, [x], moved(grower, x, [x.shape[i] for i in order]), perm=order)


@step("Reshape")
def reshape(grower: Grower, op_type: str) -> bool:
    x = _anything(grower, 0)
    if x is None:
        return False
    shape = _another_shape(grower, x.shape)
    target = list(shape)
    if size_of(shape) and shape and grower.draws.chance(40):
        target[grower.draws.below(len(shape))] = -1
    elif shape and x.shape and shape[0] == x.shape[0] and x.size and grower.draws.chance(40):
        target[0] = 0
    allow = {} if x.size else {"allowzero": 1}
    return grower.emit(op_type, [x, grower.indices(*target)], moved(grower, x, shape), **allow)


def _another_shape(grower: Grower, shape: Shape) -> Shape:
    """A shape of as many elements."""
    kind = grower.draws.below(4)
    if kind == 0:
        return (size_of(shape),)
    if kind == 1:
        return shape[::-1]
    if kind == 2 and len(shape) > 1:
        place = grower.draws.below(len(shape) - 1)
        return (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
    place = grower.draws.below(len(shape) + 1)
    return (*shape[:place], 1, *shape[place:])


@step("Flatten")
def flatten(grower: Grower, op_type: str) -> bool:
    x = _anything(grower)
    if x is None:
        return False
    axis = grower.draws.below(x.rank + 1)
    shape = (size_of(x.shape[:axis]), size_of(x.shape[axis:]))
    return grower.emit(op_type, [x], moved(grower, x, shape), axis=axis)


@step("Squeeze")
def squeeze(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: 1 in v.shape)
    if x is None:
        return False
    if grower.draws.chance(30):
        shape = [length for length in x.shape if length != 1]
        return grower.emit(op_type, [x], moved(grower, x, shape))
    axis = grower.draws.choose([i for i, length in enumerate(x.shape) if length == 1])
    shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
    return grower.emit(op_type, [x, grower.indices(axis)], moved(grower, x, shape))


@step("Unsqueeze")
def unsqueeze(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: v.rank < 4)
    if x is None:
        return False
    axis = grower.draws.below(x.rank + 1)
    named = axis - x.rank - 1 if grower.draws.chance(30) else axis
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return grower.emit(op_type, [x, grower.indices(named)], moved(grower, x, shape))


@step("Concat")
def concat(grower: Grower, op_type: str) -> bool:
    x = _anything(grower)
    if x is None:
        return False
    axis, named = _axis(grower, x)

    def joins(value: Value) -> bool:
        same = value.dtype is x.dtype and value.rank == x.rank
        return same and _without(value.shape, axis) == _without(x.shape, axis)

    parts = [x]
    for _ in range(grower.draws.between(1, 2)):
        other = grower.pick(joins)
        if other is None or grower.draws.chance(30):
            shape = list(x.shape)
            shape[axis] = grower.draws.between(0, 3)
            other = grower.fresh(shape, x.dtype)
        parts.append(other)
    parts = grower.draws.some(parts, len(parts))
    shape = list(x.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    bounds = [min(p.low for p in parts), max(p.high for p in parts), min(p.grain for p in parts)]
    result = moved(grower, x, shape, (bounds[0], bounds[1], bounds[2]))
    return grower.emit(op_type, parts, result, axis=named)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


@step("Split")
def split(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: max(v.shape, default=0) > 1)
    if x is None:
        return False
    axis = grower.draws.choose([i for i, length in enumerate(x.shape) if length > 1])
    first = grower.draws.below(x.shape[axis] + 1)
    sizes = [first, x.shape[axis] - first]
    parts = []
    for size in sizes:
        shape = list(x.shape)
        shape[axis] = size
        parts.append(moved(grower, x, shape))
    return grower.emit(op_type, [x, grower.indices(*sizes)], *parts, axis=axis)


@step("Slice")
def slice_(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: max(v.shape, default=0) > 0)
    if x is None:
        return False
    starts, ends, axes, steps = [], [], [], []
    shape = list(x.shape)
    for axis in grower.draws.some(range(x.rank), grower.draws.between(1, min(2, x.rank))):
        length = x.shape[axis]
        start = grower.draws.between(-length, length) if length else 0
        stride = grower.draws.choose([1, 1, 2, -1, -2])
        end = _FAR if stride > 0 else -_FAR
        if grower.draws.chance(40):
            end = grower.draws.between(-length - 1, length + 1)
        starts.append(start)
        ends.append(end)
        axes.append(axis - x.rank if grower.draws.chance(30) else axis)
        steps.append(stride)
        shape[axis] = len(range(*slice(start, end, stride).indices(length)))
    parameters = [grower.indices(*numbers) for numbers in (starts, ends, axes, steps)]
    return grower.emit(op_type, [x, *parameters], moved(grower, x, shape))


@step("Pad")
def pad(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and v.rank > 0 and min(v.shape) > 2)
    mode = grower.draws.choose(["constant", "constant", "reflect", "edge"])
    if x is None:
        x = grower.pick(lambda v: is_number(v) and v.rank > 0)
        mode = "constant"
    if x is None:
        return False
    amounts = [grower.draws.choose([0, 0, 1, 2]) for _ in range(2 * x.rank)]
    pairs = zip(x.shape, amounts[: x.rank], amounts[x.rank :], strict=True)
    shape = [length + before + after for length, before, after in pairs]
    inputs: list[Value | None] = [x, grower.indices(*amounts)]
    beside = (0.0, 0.0, x.grain) if mode == "constant" else None
    if mode == "constant" and grower.draws.chance(50):
        filler = float(grower.draws.between(1, 3))
        inputs.append(grower.scalar(filler, x.dtype))
        beside = (0.0, filler, min(x.grain, 1.0))
    return grower.emit(op_type, inputs, moved(grower, x, shape, beside), mode=mode)


@step("Gather")
def gather(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: max(v.shape, default=0) > 0)
    if x is None:
        return False
    axis = grower.draws.choose([i for i, length in enumerate(x.shape) if length > 0])
    length = x.shape[axis]
    chosen = grower.draws.choose([(), (1,), (3,), (2, 2), (0,)])
    places = grower.draws.integers(chosen, -length, length - 1)
    dtype = grower.draws.choose([DataType.INT64, DataType.INT32])
    shape = (*x.shape[:axis], *chosen, *x.shape[axis + 1 :])
    return grower.emit(
        op_type, [x, grower.given(places, dtype)], moved(grower, x, shape), axis=axis
    )


@step("Expand")
def expand(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: v.rank < 4)
    if x is None:
        return False
    leading = [grower.draws.between(1, 2)] if grower.draws.chance(50) else []
    wide = [grower.draws.between(2, 3) if length == 1 else length for length in x.shape]
    pairs = zip(wide, x.shape, strict=True)
    # A length of 1 in the target leaves the value's own.
    target = [1 if new == old and grower.draws.chance(20) else new for new, old in pairs]
    shape = [*leading, *wide]
    return grower.emit(op_type, [x, grower.indices(*leading, *target)], moved(grower, x, shape))


@step("Tile")
def tile(grower: Grower, op_type: str) -> bool:
    x = _anything(grower)
    if x is None:
        return False
    repeats = [grower.draws.choose([1, 1, 2, 3]) for _ in x.shape]
    shape = [length * count for length, count in zip(x.shape, repeats, strict=True)]
    return grower.emit(op_type, [x, grower.indices(*repeats)], moved(grower, x, shape))


@step("DepthToSpace")
def depth_to_space(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and v.rank == 4 and v.shape[1] in (4, 8, 12))
    if x is None:
        x = grower.fresh((grower.draws.between(1, 2), 4, 2, 3))
    shape = (x.shape[0], x.shape[1] // 4, 2 * x.shape[2], 2 * x.shape[3])
    mode = grower.draws.choose(["DCR", "CRD"])
    return grower.emit(op_type, [x], moved(grower, x, shape), blocksize=2, mode=mode)


@step("SpaceToDepth")
def space_to_depth(grower: Grower, op_type: str) -> bool:
    def halves(value: Value) -> bool:
        if not is_number(value) or value.rank != 4:
            return False
        return not any(length % 2 or not length for length in value.shape[2:])

    x = grower.pick(halves)
    if x is None:
        return False
    shape = (x.shape[0], 4 * x.shape[1], x.shape[2] // 2, x.shape[3] // 2)
    return grower.emit(op_type, [x], moved(grower, x, shape), blocksize=2)


@step("GatherElements")
def gather_elements(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: v.rank > 0 and min(v.shape) > 0)
    if x is None:
        return False
    axis, named = _axis(grower, x)
    shape = list(x.shape)
    shape[axis] = grower.draws.between(1, 3)
    places = grower.draws.integers(shape, -x.shape[axis], x.shape[axis] - 1)
    chosen = grower.given(places, DataType.INT64)
    return grower.emit(op_type, [x, chosen], moved(grower, x, shape), axis=named)


@step("Shape")
def shape_of(grower: Grower, op_type: str) -> bool:
    x = _anything(grower, 0)
    if x is None:
        return False
    most = max(x.shape, default=0)
    return grower.emit(op_type, [x], grower.draft((x.rank,), DataType.INT64, 0, most, 1.0))


@step("Trilu")
def triangle(grower: Grower, op_type: str) -> bool:
    x = _anything(grower, 2)
    if x is None:
        return False
    inputs = [x]
    if grower.draws.chance(50):
        inputs.append(grower.given(np.array(grower.draws.between(-2, 2)), DataType.INT64))
    upper = grower.draws.below(2)
    return grower.emit(op_type, inputs, moved(grower, x, x.shape, (0, 0, x.grain)), upper=upper)
