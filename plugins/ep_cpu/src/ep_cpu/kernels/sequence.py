"""Sequences and optionals: host values that are lists, or None for an empty optional."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.shape import split
from ep_cpu.kernels.support import Array, check_axis, int_list, scalar
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _position(position: Array, length: int) -> int:
    index = int(scalar(position, "position"))
    if not -length <= index < length:
        raise RunError(
            "position outside the sequence", expected=f"-{length} <= i < {length}", got=index
        )
    return index


@TABLE.kernel("SequenceEmpty", since=11)
def _sequence_empty(node: KernelNode) -> Kernel:
    return list


@TABLE.kernel("SequenceConstruct", since=11, view=True)
def _sequence_construct(node: KernelNode) -> Kernel:
    return lambda *items: list(items)


@TABLE.kernel("SequenceLength", since=11)
def _sequence_length(node: KernelNode) -> Kernel:
    return lambda items: np.array(len(items), np.int64)


@TABLE.kernel("SequenceAt", since=11, view=True)
def _sequence_at(node: KernelNode) -> Kernel:
    return lambda items, position: items[_position(position, len(items))]


@TABLE.kernel("SequenceInsert", since=11, view=True)
def _sequence_insert(node: KernelNode) -> Kernel:
    def run(items: list[Any], item: Any, position: Array | None = None) -> list[Any]:
        # One place more than there are items: the end.
        index = len(items)
        if position is not None:
            index = int(scalar(position, "position"))
            if not -len(items) <= index <= len(items):
                raise RunError(
                    "position outside the sequence",
                    expected=f"-{len(items)} to {len(items)}",
                    got=index,
                )
        result = list(items)
        result.insert(index, item)
        return result

    return run


@TABLE.kernel("SequenceErase", since=11, view=True)
def _sequence_erase(node: KernelNode) -> Kernel:
    def run(items: list[Any], position: Array | None = None) -> list[Any]:
        if not items:
            raise RunError("nothing to erase from an empty sequence")
        result = list(items)
        del result[-1 if position is None else _position(position, len(items))]
        return result

    return run


@TABLE.kernel("ConcatFromSequence", since=11)
def _concat_from_sequence(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis"))
    new_axis = bool(node.attr("new_axis", 0))

    def run(items: list[Array]) -> Array:
        if not items:
            raise RunError("can't concatenate an empty sequence")
        if new_axis:
            return np.stack(items, axis=check_axis(axis, items[0].ndim + 1))
        return np.concatenate(items, axis=check_axis(axis, items[0].ndim))

    return run


@TABLE.kernel("SplitToSequence", since=11, view=True)
def _split_to_sequence(node: KernelNode) -> Kernel:
    axis = int(node.attr("axis", 0))
    keep = bool(node.attr("keepdims", 1))

    def run(x: Array, lengths: Array | None = None) -> list[Array]:
        along = check_axis(axis, x.ndim)
        total = x.shape[along]
        if lengths is None:
            parts = split(x, along, [1] * total)
            return list(parts) if keep else [part.squeeze(along) for part in parts]
        if lengths.ndim > 0:
            return list(split(x, along, int_list(lengths)))
        step = int(scalar(lengths, "split"))
        if step < 1:
            raise RunError("split must be positive", got=step)
        counts = [min(step, total - start) for start in range(0, total, step)]
        return list(split(x, along, counts))

    return run


# ---------------------------------------------------------------- optionals


@TABLE.kernel("Optional", since=15, view=True)
def _optional(node: KernelNode) -> Kernel:
    return lambda value=None: value


@TABLE.kernel("OptionalHasElement", since=15)
def _optional_has_element(node: KernelNode) -> Kernel:
    return lambda value=None: np.array(value is not None)


@TABLE.kernel("OptionalGetElement", since=15, view=True)
def _optional_get_element(node: KernelNode) -> Kernel:
    def run(value: Any) -> Any:
        if value is None:
            raise RunError("the optional is empty", fix="Test it with OptionalHasElement first.")
        return value

    return run
