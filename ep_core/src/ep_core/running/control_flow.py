"""If, Loop and Scan as steps over the plans of their bodies.

Used when no provider claims the whole node. Values are host values. Semantics follow the operator
documentation of onnx (If-1..25, Loop-1..25, Scan-8 with its batch axis, Scan-9..25).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.contracts import HostArray, Value
from ep_core.errors import InvalidModelError, RunError
from ep_core.graph import Node
from ep_core.memory import copy_value
from ep_core.running.executor import execute, isolate
from ep_core.running.plan import Plan, RunState, Step
from ep_core.types import TensorType, ValueType

__all__ = ["Body", "bodies_of", "control_flow_step"]


@dataclass(frozen=True, slots=True)
class Body:
    """A body's plan. Its inputs are the body's own, followed by the captured values.

    Attributes:
        captures: names of the outer values it needs, in the order of the plan's last inputs.
        types: types of the body's own outputs.
    """

    plan: Plan
    captures: tuple[str, ...]
    types: tuple[ValueType | None, ...]


@dataclass(frozen=True, slots=True)
class _BoundBody:
    """A body together with the slots of its captures in the outer plan."""

    plan: Plan
    captured: tuple[int, ...]

    def run(self, own: Sequence[Value], values: list[Any], state: RunState) -> list[Value]:
        return execute(self.plan, [*own, *(values[slot] for slot in self.captured)], state)


def control_flow_step(
    node: Node,
    bodies: Mapping[str, Body],
    slots: Mapping[str, int],
    outputs: tuple[int | None, ...],
    types: tuple[ValueType | None, ...],
) -> Step:
    """Make the step that runs a control-flow node.

    Args:
        bodies: by attribute name.
        slots: where the node's inputs and captures are.
        outputs: where the results go, None for those nobody asked for.
        types: types of the outputs, as far as they are known.
    """
    inputs = tuple(slots[name] if name else None for name in node.inputs)
    bound = {
        name: _BoundBody(body.plan, tuple(slots[n] for n in body.captures))
        for name, body in bodies.items()
    }
    if node.op_type == "If":
        condition = _required(node, inputs, 0)
        return _If(node.name, condition, bound["then_branch"], bound["else_branch"], outputs)
    own = bodies["body"].types
    if node.op_type == "Loop":
        states = len(node.inputs) - 2
        known = _scan_types(types[states:], own[1 + states :], axes=[0] * len(own))
        return _Loop(node.name, inputs, bound["body"], outputs, known)
    return _scan_step(node, inputs, bound["body"], own, outputs, types)


def bodies_of(step: Step) -> tuple[tuple[Plan, ...], int]:
    """The plans of which a step runs one, and how often it holds its outputs while it does.

    That is once in a branch, whose own outputs they are. What repeats a body keeps what the rounds
    gave, and then joins it; in Scan-8 that is done for each batch, and then for all.
    """
    if isinstance(step, _If):
        return (step.then_branch.plan, step.else_branch.plan), 0
    if isinstance(step, _Loop | _Scan):
        return (step.body.plan,), 2
    return ((step.body.plan,), 3) if isinstance(step, _BatchedScan) else ((), 0)


def _required(node: Node, inputs: tuple[int | None, ...], index: int) -> int:
    slot = inputs[index] if index < len(inputs) else None
    if slot is None:
        raise InvalidModelError(f"{node.key} {node.name!r} lacks its input {index}")
    return slot


def _store(values: list[Any], outputs: tuple[int | None, ...], results: Sequence[Value]) -> None:
    for slot, result in zip(outputs, results, strict=False):
        if slot is not None:
            values[slot] = result


def _flag(value: Value, where: str) -> bool:
    if not isinstance(value, np.ndarray) or value.size != 1:
        shape = getattr(value, "shape", None)
        raise RunError(f"condition of {where}", expected="one bool", got=f"shape {shape}")
    return bool(value.reshape(())[()])


@dataclass(frozen=True, slots=True)
class _If:
    name: str
    condition: int
    then_branch: _BoundBody
    else_branch: _BoundBody
    outputs: tuple[int | None, ...]

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"If {self.name!r}"

    def execute(self, values: list[Any], state: RunState) -> None:
        chosen = _flag(values[self.condition], self.label)
        body = self.then_branch if chosen else self.else_branch
        _store(values, self.outputs, isolate(body.plan, body.run((), values, state)))


@dataclass(frozen=True, slots=True)
class _Loop:
    """Loop. `inputs`: trip count and condition, both optional, then the loop-carried values."""

    name: str
    inputs: tuple[int | None, ...]
    body: _BoundBody
    outputs: tuple[int | None, ...]
    scan_types: tuple[TensorType | None, ...]

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"Loop {self.name!r}"

    def execute(self, values: list[Any], state: RunState) -> None:
        trips, condition, *states = [None if s is None else values[s] for s in self.inputs]
        limit = None if trips is None else self._trip_count(trips)
        going = condition is None or _flag(condition, self.label)
        scans: list[list[HostArray]] = [[] for _ in self.scan_types]
        done = 0
        while going and (limit is None or done < limit):
            state.check()
            counter = np.array(done, np.int64)
            results = self.body.run([counter, np.array(True), *states], values, state)
            going = _flag(results[0], self.label)
            states = results[1 : 1 + len(states)]
            for kept, item in zip(scans, results[1 + len(states) :], strict=True):
                kept.append(item)
            done += 1
        # A carried value may still be the initial one, a captured one or a constant.
        carried = [copy_value(value) for value in states]
        stacked = [
            _stack(items, 0, kind, self.label)
            for items, kind in zip(scans, self.scan_types, strict=True)
        ]
        _store(values, self.outputs, [*carried, *stacked])

    def _trip_count(self, trips: HostArray) -> int:
        if trips.size != 1:
            where = f"trip count of {self.label}"
            raise RunError(where, expected="one int64", got=f"shape {trips.shape}")
        return int(trips.reshape(())[()])


def _stack(items: list[HostArray], axis: int, kind: TensorType | None, where: str) -> HostArray:
    """Join what each round gave along a new axis; without rounds, an empty tensor of the type."""
    if items:
        try:
            return np.stack(items, axis=axis)
        except np.exceptions.AxisError as error:
            raise RunError(f"axis of a scan output of {where}", got=error) from error
        except ValueError as error:
            shapes = sorted({item.shape for item in items})
            raise RunError(
                f"scan output of {where}", expected="one shape in all rounds", got=shapes
            ) from error
    if kind is None:
        raise RunError(
            f"scan output of {where} is empty and its type is unknown",
            fix="Declare the type of the body's output in the model.",
        )
    return np.empty(kind.static_shape or (0,), kind.dtype.numpy)


def _scan_types(
    outer: Sequence[ValueType | None], inner: Sequence[ValueType | None], axes: Sequence[int]
) -> tuple[TensorType | None, ...]:
    """Types of empty scan outputs: of length 0 along `axes`, the other lengths as far as known."""
    found: list[TensorType | None] = []
    for position, own in enumerate(inner):
        kinds = [outer[position] if position < len(outer) else None]
        if isinstance(own, TensorType) and own.shape is not None:
            axis = axes[position] % (len(own.shape) + 1)
            kinds.append(TensorType(own.dtype, (*own.shape[:axis], 0, *own.shape[axis:])))
        known = [kind for kind in kinds if isinstance(kind, TensorType) and kind.shape]
        if not known:
            found.append(None)
            continue
        shapes = [kind.shape or () for kind in known]
        rank = len(shapes[0])
        lengths = zip(*(shape for shape in shapes if len(shape) == rank), strict=True)
        shape = [next((n for n in dims if isinstance(n, int)), 0) for dims in lengths]
        shape[axes[position] % rank] = 0
        found.append(TensorType(known[0].dtype, tuple(shape)))
    return tuple(found)


def _scan_step(
    node: Node,
    inputs: tuple[int | None, ...],
    body: _BoundBody,
    own: tuple[ValueType | None, ...],
    outputs: tuple[int | None, ...],
    types: tuple[ValueType | None, ...],
) -> Step:
    batched = node.since_version < 9
    values = inputs[1:] if batched else inputs
    scanned = int(node.attributes["num_scan_inputs"])
    states = len(values) - scanned
    results = len(own) - states
    if states < 0 or results < 0:
        raise InvalidModelError(
            f"Scan {node.name!r}: num_scan_inputs {scanned} doesn't fit {len(values)} inputs "
            f"and {len(own)} body outputs"
        )
    attributes = node.attributes
    directions = "directions" if batched else "scan_input_directions"
    for name, count in (
        ("scan_input_axes", scanned),
        (directions, scanned),
        ("scan_output_axes", results),
        ("scan_output_directions", results),
    ):
        given = attributes.get(name, ())
        if len(given) not in (0, count):
            raise InvalidModelError(
                f"{name} of Scan {node.name!r}", expected=f"{count} entries", got=tuple(given)
            )
    in_reverse = attributes.get(directions, ())
    out_axes = tuple(attributes.get("scan_output_axes", ())) or (0,) * results
    layout = _ScanLayout(
        states=states,
        in_axes=tuple(attributes.get("scan_input_axes", ())) or (0,) * scanned,
        out_axes=out_axes,
        in_reverse=tuple(map(bool, in_reverse)) or (False,) * scanned,
        out_reverse=tuple(map(bool, attributes.get("scan_output_directions", ())))
        or (False,) * results,
        types=_scan_types((None,) * results if batched else types[states:], own[states:], out_axes),
    )
    if batched:
        lengths = inputs[0] if inputs else None
        return _BatchedScan(node.name, lengths, values, body, layout, outputs)
    return _Scan(node.name, values, body, layout, outputs)


@dataclass(frozen=True, slots=True)
class _ScanLayout:
    """How a Scan cuts its inputs and joins its outputs."""

    states: int
    in_axes: tuple[int, ...]
    out_axes: tuple[int, ...]
    in_reverse: tuple[bool, ...]
    out_reverse: tuple[bool, ...]
    types: tuple[TensorType | None, ...]


def _scan(
    body: _BoundBody,
    layout: _ScanLayout,
    given: Sequence[HostArray],
    where: str,
    values: list[Any],
    state: RunState,
) -> list[HostArray]:
    """Scan over one set of inputs; returns final states, then joined outputs."""
    states = list(given[: layout.states])
    moved = []
    for array, axis, reverse in zip(
        given[layout.states :], layout.in_axes, layout.in_reverse, strict=True
    ):
        if not -array.ndim <= axis < array.ndim:
            raise RunError(f"scan axis of {where}", expected=f"rank {array.ndim}", got=axis)
        rolled = np.moveaxis(array, axis, 0)
        moved.append(rolled[::-1] if reverse else rolled)
    lengths = {len(array) for array in moved}
    if len(lengths) > 1:
        raise RunError(f"scan inputs of {where}", expected="one length", got=sorted(lengths))
    kept: list[list[HostArray]] = [[] for _ in layout.out_axes]
    for position in range(lengths.pop() if lengths else 0):
        state.check()
        slices = [array[position, ...] for array in moved]
        results = body.run([*states, *slices], values, state)
        states = results[: layout.states]
        for items, item in zip(kept, results[layout.states :], strict=True):
            items.append(item)
    joined = []
    for items, axis, reverse, kind in zip(
        kept, layout.out_axes, layout.out_reverse, layout.types, strict=True
    ):
        joined.append(_stack(items[::-1] if reverse else items, axis, kind, where))
    return [*(copy_value(value) for value in states), *joined]


@dataclass(frozen=True, slots=True)
class _Scan:
    name: str
    inputs: tuple[int | None, ...]
    body: _BoundBody
    layout: _ScanLayout
    outputs: tuple[int | None, ...]

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"Scan {self.name!r}"

    def execute(self, values: list[Any], state: RunState) -> None:
        given = [values[slot] for slot in self.inputs if slot is not None]
        results = _scan(self.body, self.layout, given, self.label, values, state)
        _store(values, self.outputs, results)


@dataclass(frozen=True, slots=True)
class _BatchedScan:
    """Scan-8: every input has a batch axis in front, sequences may have different lengths."""

    name: str
    lengths: int | None
    inputs: tuple[int | None, ...]
    body: _BoundBody
    layout: _ScanLayout
    outputs: tuple[int | None, ...]

    @property
    def label(self) -> str:
        """What it does, for messages."""
        return f"Scan {self.name!r}"

    def execute(self, values: list[Any], state: RunState) -> None:
        given = [values[slot] for slot in self.inputs if slot is not None]
        where = self.label
        if any(array.ndim < 1 + (i >= self.layout.states) for i, array in enumerate(given)):
            expected = "a batch axis, then in scan inputs a sequence axis"
            shapes = [array.shape for array in given]
            raise RunError(f"inputs of {where}", expected=expected, got=shapes)
        batch = {len(array) for array in given}
        if len(batch) != 1 or 0 in batch:
            told = sorted(batch)
            raise RunError(f"inputs of {where}", expected="one batch size above 0", got=told)
        longest = max((array.shape[1] for array in given[self.layout.states :]), default=0)
        lengths = None if self.lengths is None else values[self.lengths]
        if lengths is not None and lengths.shape != (len(given[0]),):
            expected = f"{len(given[0])} lengths, one per batch"
            raise RunError(f"sequence_lens of {where}", expected=expected, got=lengths.shape)
        rows = []
        for position in range(batch.pop()):
            length = longest if lengths is None else int(lengths[position])
            if not 0 <= length <= longest:
                raise RunError(f"sequence_lens of {where}", expected=f"0..{longest}", got=length)
            row = [array[position] for array in given]
            row[self.layout.states :] = [a[:length] for a in row[self.layout.states :]]
            results = _scan(self.body, self.layout, row, where, values, state)
            rows.append([self._padded(item, i, longest) for i, item in enumerate(results)])
        _store(values, self.outputs, [np.stack(items) for items in zip(*rows, strict=True)])

    def _padded(self, item: HostArray, index: int, longest: int) -> HostArray:
        """Fill a scan output of a shorter sequence up with zeros."""
        if index < self.layout.states or len(item) == longest:
            return item
        full = np.zeros((longest, *item.shape[1:]), item.dtype)
        full[: len(item)] = item
        return full
