"""Operators that move elements or only change shapes."""

from __future__ import annotations

from typing import Any

from ep_cpu.native.steps import NativeStep, shape_of
from ep_cpu.native.table import (
    OLD_VERSION,
    Answer,
    integers,
    native_step,
    operator,
    rank_of,
)
from ep_sdk.kernels import KernelNode


@operator("Transpose")
def _transpose(node: KernelNode) -> Answer:
    rank = rank_of(node, 0)
    given = node.attr("perm")
    if given is None and rank is None:
        return "an unknown rank"
    order = [int(axis) for axis in given or reversed(range(rank or 0))]
    if sorted(order) != list(range(len(order))):
        return "a perm that is none"
    return native_step(node, "transpose", order=order)


@operator("Reshape")
def _reshape(node: KernelNode) -> Answer:
    if node.version < 5:
        return OLD_VERSION
    return native_step(node, "reshape", allow_zero=int(node.attr("allowzero", 0)))


@operator("Flatten")
def _flatten(node: KernelNode) -> Answer:
    return native_step(node, "flatten", axis=int(node.attr("axis", 1)))


@operator("Squeeze", "Unsqueeze")
def _squeeze(node: KernelNode) -> Answer:
    kind = node.node.op_type.lower()
    if node.version >= 13:
        return native_step(node, kind)
    return native_step(node, kind, axes=[int(axis) for axis in node.attr("axes", ())])


@operator("Identity")
def _identity(node: KernelNode) -> Answer:
    return native_step(node, "identity")


@operator("Dropout")
def _dropout(node: KernelNode) -> Answer:
    if node.version < 7 or node.wants_output(1) or node.has_input(2):
        return "a mask, or training"
    return NativeStep("identity", node.node.inputs[:1], node.node.outputs[:1], {}, (node.node,))


@operator("Shape")
def _shape(node: KernelNode) -> Answer:
    names = (name for name in ("start", "end") if node.attr(name) is not None)
    bounds: dict[str, Any] = {name: int(node.attr(name)) for name in names}
    return native_step(node, "shape", **bounds)


@operator("Gather")
def _gather(node: KernelNode) -> Answer:
    return native_step(node, "gather", axis=int(node.attr("axis", 0)))


@operator("Concat")
def _concat(node: KernelNode) -> Answer:
    if node.version < 4:
        return OLD_VERSION
    kinds = {node.input_dtype(i) for i in range(len(node.node.inputs))}
    if len(kinds) != 1 or None in kinds:
        return "an unknown type"
    return native_step(node, "concat", axis=int(node.attr("axis")))


@operator("Slice")
def _slice(node: KernelNode) -> Answer:
    if node.version < 10:
        return OLD_VERSION
    return native_step(node, "slice")


@operator("Expand")
def _expand(node: KernelNode) -> Answer:
    return native_step(node, "expand")


@operator("Split")
def _split(node: KernelNode) -> Answer:
    rank = rank_of(node, 0)
    shape = shape_of(node.input_types[0])
    if rank is None or shape is None or "" in node.node.outputs:
        return "an unknown shape"
    axis = int(node.attr("axis", 0))
    if node.has_input(1):
        value = node.constants[1]
        if value is None:
            return "lengths that aren't constant"
        lengths = integers(value)
    elif node.attr("split") is not None:
        lengths = [int(length) for length in node.attr("split")]
    else:
        whole, parts = shape[axis % rank], len(node.node.outputs)
        if not isinstance(whole, int) or whole % parts:
            return "parts that differ"
        lengths = [whole // parts] * parts
    return native_step(node, "split", inputs=node.node.inputs[:1], axis=axis, lengths=lengths)
