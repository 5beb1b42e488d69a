"""Finding the row of the kernel table that computes a node, or the reason why there is none.

The single place where a node is matched with rows: capability and compilation both ask here.
Knows graphs, tables and operator schemas; knows nothing of memory or of running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import onnx

from ep_core.graph import Graph, Initializer, Node
from ep_core.types import (
    DataType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)
from ep_sdk.kernels import KernelNode, KernelRow, KernelTable

__all__ = ["Positions", "describe_node", "find_row", "handles_containers", "type_positions"]

Positions = tuple[Sequence[int], Sequence[int]]
"""Positions of inputs and of outputs that share one type parameter."""

_SCHEMA_CACHE: dict[tuple[str, str, int], onnx.defs.OpSchema] = {}
_POSITION_CACHE: dict[tuple[str, str, int, str, int, int], Positions] = {}


class _Constants(Sequence["np.ndarray[Any, Any] | None"]):
    """The constant inputs of a node, each decoded when it is looked at."""

    __slots__ = ("_initializers",)

    def __init__(self, initializers: Sequence[Initializer | None]) -> None:
        self._initializers = initializers

    @overload
    def __getitem__(self, index: int) -> np.ndarray[Any, Any] | None: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray[Any, Any] | None]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return _Constants(self._initializers[index])
        initializer = self._initializers[index]
        return None if initializer is None else initializer.numpy()

    def __len__(self) -> int:
        return len(self._initializers)


def describe_node(
    graph: Graph, node: Node, options: Mapping[str, Any] | None = None, provider: Any = None
) -> KernelNode:
    """Collect what is known of a node before the first run."""
    return KernelNode(
        node=node,
        input_types=tuple(graph.type_of(name) if name else None for name in node.inputs),
        output_types=tuple(graph.type_of(name) if name else None for name in node.outputs),
        constants=_Constants(tuple(graph.constant(name) if name else None for name in node.inputs)),
        options=options if options is not None else {},
        provider=provider,
    )


def find_row(
    table: KernelTable,
    kernel_node: KernelNode,
    *,
    accept_unknown_types: bool = False,
    non_tensor_values: bool = False,
) -> KernelRow | str:
    """Return the first row that takes the node, or the reason for a no, for a person.

    Never raises for a strange node; a predicate that raises counts as a no.

    Args:
        table: the rows, tried in order.
        kernel_node: the node, from `describe_node`.
        accept_unknown_types: take inputs whose type inference couldn't tell.
        non_tensor_values: take sequences, optionals and maps.
    """
    node = kernel_node.node
    rows = table.rows(node.domain, node.op_type)
    if not rows:
        where = f" of domain {node.domain!r}" if node.domain else ""
        return f"operator {node.op_type}{where} has no kernel"
    if node.bodies:
        return f"{node.op_type} has a body graph, which kernels don't run"
    fitting = [row for row in rows if row.since <= node.since_version <= row.until]
    if not fitting:
        ranges = dict.fromkeys(f"{row.since}..{row.until}" for row in rows)
        covered = ", ".join(ranges)
        return f"version {node.since_version} of {node.op_type}: kernels cover {covered}"
    reason = _strange_value(kernel_node, accept_unknown_types, non_tensor_values)
    if reason is not None:
        return reason
    return _first_match(fitting, kernel_node)


def _first_match(rows: Sequence[KernelRow], kernel_node: KernelNode) -> KernelRow | str:
    """The first row whose types and predicate agree; else the most telling reason."""
    type_reasons: list[str] = []
    other_reasons: list[str] = []
    for row in rows:
        reason = _type_mismatch(row, kernel_node)
        if reason is not None:
            type_reasons.append(reason)
            continue
        reason = _ask_predicate(row, kernel_node)
        if reason is None:
            return row
        other_reasons.append(reason)
    # A row whose types agree came closest.
    return (other_reasons or type_reasons)[0]


def _ask_predicate(row: KernelRow, kernel_node: KernelNode) -> str | None:
    if row.predicate is None:
        return None
    try:
        return row.predicate(kernel_node)
    except Exception as error:  # noqa: BLE001 - a claim must not raise, whatever the graph
        return f"the condition on {row.op_type} failed: {type(error).__name__}: {error}"


def _strange_value(
    kernel_node: KernelNode, accept_unknown_types: bool, non_tensor_values: bool
) -> str | None:
    node = kernel_node.node
    for name, kind in zip(node.inputs, kernel_node.input_types, strict=True):
        if not name or type(kind) is TensorType:
            continue
        if kind is None:
            if not accept_unknown_types:
                return f"type of input {name!r} is unknown"
        elif not non_tensor_values or isinstance(kind, SparseTensorType):
            return f"input {name!r} is {kind}; only dense tensors are handled"
    for name, kind in zip(node.outputs, kernel_node.output_types, strict=True):
        if not name or kind is None or type(kind) is TensorType:
            continue
        if not non_tensor_values or isinstance(kind, SparseTensorType):
            return f"output {name!r} is {kind}; only dense tensors are handled"
    return None


def _type_mismatch(row: KernelRow, kernel_node: KernelNode) -> str | None:
    node = kernel_node.node
    for parameter, allowed in row.types.items():
        if isinstance(parameter, int):
            inputs: Sequence[int] = (parameter,)
            outputs: Sequence[int] = ()
        else:
            found = type_positions(node, parameter)
            if found is None:
                return (
                    f"the kernel of {node.key} constrains type {parameter!r}, which no schema "
                    "of the operator defines; the provider should name input positions instead"
                )
            inputs, outputs = found
        for index in inputs:
            dtype = _element_type(kernel_node.input_types, index)
            if dtype is not None and dtype not in allowed:
                return f"dtype {dtype.text} of input {node.inputs[index]!r}"
        for index in outputs:
            dtype = _element_type(kernel_node.output_types, index)
            if dtype is not None and dtype not in allowed:
                return f"dtype {dtype.text} of output {node.outputs[index]!r}"
    return None


def _element_type(types: Sequence[ValueType | None], index: int) -> DataType | None:
    kind = types[index] if index < len(types) else None
    while isinstance(kind, SequenceType | OptionalType):
        kind = kind.element
    return kind.dtype if isinstance(kind, TensorType) else None


def type_positions(node: Node, parameter: str) -> Positions | None:
    """Which inputs and outputs of a node have the schema's type parameter, such as `"T"`.

    `parameter` may also be a fixed type as the schema spells it, such as `"tensor(int64)"`.
    Returns None if the operator has no schema or the schema no such parameter.
    """
    key = (
        node.domain,
        node.op_type,
        node.since_version,
        parameter,
        len(node.inputs),
        len(node.outputs),
    )
    found = _POSITION_CACHE.get(key)
    if found is not None:
        return found
    schema = _schema(node)
    if schema is None:
        return None
    formal = (*schema.inputs, *schema.outputs)
    if not any(item.type_str == parameter for item in formal):
        return None
    found = (
        tuple(_expand(schema.inputs, parameter, len(node.inputs))),
        tuple(_expand(schema.outputs, parameter, len(node.outputs))),
    )
    _POSITION_CACHE[key] = found
    return found


def _expand(formal: Sequence[Any], parameter: str, count: int) -> Iterator[int]:
    """Positions below `count` with the parameter; a variadic one repeats to the end."""
    for index in range(count):
        item = formal[min(index, len(formal) - 1)] if formal else None
        if item is not None and item.type_str == parameter:
            yield index


def handles_containers(node: Node) -> bool:
    """True if an input or output can be a sequence, optional or map, which hold other values.

    Operators without a schema are taken to handle tensors only.
    """
    schema = _schema(node)
    if schema is None:
        return False
    prefixes = ("seq(", "optional(", "map(")
    formal = (*schema.inputs, *schema.outputs)
    return any(kind.startswith(prefixes) for item in formal for kind in item.types)


def _schema(node: Node) -> onnx.defs.OpSchema | None:
    key = (node.domain, node.op_type, node.since_version)
    found = _SCHEMA_CACHE.get(key)
    if found is None:
        try:
            found = onnx.defs.get_schema(node.op_type, node.since_version, node.domain)
        except onnx.defs.SchemaError:
            # Not remembered: the schema of a custom domain may be registered later.
            return None
        _SCHEMA_CACHE[key] = found
    return found
