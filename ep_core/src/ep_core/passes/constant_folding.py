"""Computes nodes whose inputs are all constant, and shapes that the types prove.

Arithmetic is done by the caller's `evaluate`, so that a fold has exactly the results of the
runtime. What it refuses or fails at stays in the graph, and the runtime reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ep_core.graph import Graph, Initializer, Node, ValueInfo
from ep_core.levels import GraphOptimizationLevel
from ep_core.loading.convert import value_type
from ep_core.passes._constants import integers, shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._schema import repeatable
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["PASS"]

_ALWAYS_ALLOWED = 1 << 20
"""Bytes that the outputs of a folded node may have whatever the size of its inputs."""

_ALLOWED_GROWTH = 4
"""Larger outputs may have this many times the bytes of the inputs: the model mustn't explode."""

_STRING_BYTES = 64
"""A guess at the size of one string in memory."""

_LARGEST_SHAPE_INPUT = 1 << 10
"""Elements. Shape inference looks at the contents of inputs up to this size only."""

_SMALLER_THAN_THE_INPUTS = frozenset({"Compress", "NonZero", "Unique"})
"""The size of their outputs depends on the data, within a bound that the inputs give."""

_KEPT_QUANTIZED = frozenset({"DequantizeLinear"})
"""Folding these would give up quantised weights, and the groups that providers look for."""


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find():
        values = _shape_value(editor, node)
        if values is None and node not in context.refused:
            values = _evaluated(editor, node, context)
        if values is not None:
            editor.remove(key)
            for name, value in zip(filter(None, node.outputs), values, strict=True):
                if not editor.unused(name):
                    editor.set_constant(Initializer.from_array(name, value))


# ---------------------------------------------------------------- shapes


def _shape_value(editor: GraphEditor, node: Node) -> list[np.ndarray[Any, Any]] | None:
    """The result of Shape, Size, or Gather of a Shape, where the lengths asked for are known."""
    if node.domain != "":
        return None
    lengths: Sequence[int | str | None] | None = None
    if node.op_type == "Shape":
        lengths = _shape_slice(editor, node)
    elif node.op_type == "Gather":
        return _gathered_lengths(editor, node)
    elif node.op_type == "Size":
        lengths = shape_of(editor, node.inputs[0])
    known = _all_known(lengths)
    if known is None:
        return None
    return [np.array(prod(known) if node.op_type == "Size" else known, np.int64)]


def _shape_slice(editor: GraphEditor, node: Node) -> Sequence[int | str | None] | None:
    shape = shape_of(editor, node.inputs[0])
    if shape is None:
        return None
    # ONNX clamps both to the rank and counts negative ones from the end, as Python does.
    start = int(node.attributes.get("start", 0))
    end = int(node.attributes.get("end", len(shape)))
    return shape[start:end]


def _gathered_lengths(editor: GraphEditor, node: Node) -> list[np.ndarray[Any, Any]] | None:
    maker = editor.made_by(node.inputs[0], "Shape")
    lengths = _shape_slice(editor, maker) if maker is not None else None
    indices = integers(editor, node.inputs[1]) if lengths is not None else None
    if lengths is None or indices is None:
        return None
    if not all(-len(lengths) <= index < len(lengths) for index in indices):
        return None
    known = _all_known([lengths[index] for index in indices])
    constant = editor.constant(node.inputs[1])
    assert constant is not None
    return None if known is None else [np.array(known, np.int64).reshape(constant.shape)]


def _all_known(lengths: Sequence[int | str | None] | None) -> list[int] | None:
    if lengths is None:
        return None
    known = [length for length in lengths if isinstance(length, int)]
    return known if len(known) == len(lengths) else None


# ---------------------------------------------------------------- evaluation


def _evaluated(
    editor: GraphEditor, node: Node, context: PassContext
) -> list[np.ndarray[Any, Any]] | None:
    if node.op_type in _KEPT_QUANTIZED or not repeatable(node):
        return None
    found = [editor.constant(name) if name else None for name in node.inputs]
    if any(name and item is None for name, item in zip(node.inputs, found, strict=True)):
        return None
    constants = {n: item for n, item in zip(node.inputs, found, strict=True) if item is not None}
    input_bytes = sum(_bytes(item.dtype, item.shape) for item in constants.values())
    limit = max(_ALWAYS_ALLOWED, _ALLOWED_GROWTH * input_bytes)
    alone = _alone(editor, node, constants)
    values: list[np.ndarray[Any, Any]] | None = None
    if _surely_within(alone, limit):
        inputs = [item.numpy() if item is not None else None for item in found]
        values = _call(context, alone, node, inputs)
    if values is None or not _plausible(alone, values, limit):
        context.refused.add(node)
        return None
    return values


def _call(
    context: PassContext,
    alone: Graph,
    node: Node,
    inputs: Sequence[np.ndarray[Any, Any] | None],
) -> list[np.ndarray[Any, Any]] | None:
    try:
        results = context.evaluate(alone, node, inputs)
    except Exception:  # noqa: BLE001 - whatever fails here fails again, and is reported, at run time
        return None
    if results is None or len(results) != len(alone.outputs):
        return None
    if not all(isinstance(item, (np.ndarray, np.generic)) for item in results):
        return None
    # A copy, because a kernel may return a view of a constant or of memory that it uses again.
    return [np.array(item, order="C") for item in results]


def _plausible(alone: Graph, values: Sequence[np.ndarray[Any, Any]], limit: int) -> bool:
    """True if the results have the types that are known of them, and don't exceed the limit."""
    total = 0
    for info, value in zip(alone.outputs, values, strict=True):
        dtype = DataType.from_numpy(value.dtype)
        if dtype.numpy != value.dtype:
            return False
        total += _bytes(dtype, value.shape)
        kind = info.type
        if kind is None:
            continue
        if not isinstance(kind, TensorType) or kind.dtype is not dtype:
            return False
        if kind.static_shape is not None and kind.static_shape != value.shape:
            return False
    return total <= limit


def _alone(editor: GraphEditor, node: Node, constants: dict[str, Initializer]) -> Graph:
    """A graph of the node and its constants."""
    outputs = [ValueInfo(name, editor.type_of(name)) for name in node.outputs if name]
    return Graph(
        name=node.name,
        inputs=(),
        outputs=tuple(outputs),
        nodes=(node,),
        initializers=constants,
        opsets=editor.opsets,
        values={info.name: info for info in outputs},
    )


# ---------------------------------------------------------------- sizes


def _bytes(dtype: DataType, shape: tuple[int, ...]) -> int:
    return prod(shape) * (_STRING_BYTES if dtype is DataType.STRING else max(1, dtype.bits // 8))


def _surely_within(alone: Graph, limit: int) -> bool:
    """True if the node's outputs are known not to exceed the limit, before computing them."""
    if alone.nodes[0].op_type in _SMALLER_THAN_THE_INPUTS:
        return True
    sizes = [_known_bytes(info.type) for info in alone.outputs]
    if None in sizes:
        sizes = [_known_bytes(kind) for kind in _inferred_types(alone)]
    return all(size is not None for size in sizes) and sum(filter(None, sizes)) <= limit


def _known_bytes(kind: ValueType | None) -> int | None:
    if not isinstance(kind, TensorType) or kind.static_shape is None:
        return None
    return _bytes(kind.dtype, kind.static_shape)


def _inferred_types(alone: Graph) -> list[ValueType | None]:
    """Output types of a graph of one node, as the contents of its small constants prove them."""
    import onnx.shape_inference

    large = {n: c for n, c in alone.initializers.items() if prod(c.shape) > _LARGEST_SHAPE_INPUT}
    small = {n: c for n, c in alone.initializers.items() if n not in large}
    inputs = tuple(ValueInfo(name, item.type) for name, item in large.items())
    model = alone.replace(inputs=inputs, initializers=small).to_model()
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return [None]
    return [value_type(output.type, output.name) for output in inferred.graph.output]


PASS = Pass("ConstantFolding", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
