"""Removes casts to the type a value has already, and skips casts that lose nothing.

`Cast(Cast(x, B), C)` reads x directly only where no step could round, overflow or wrap in another
way than the direct cast does.
"""

from __future__ import annotations

import numpy as np

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import FLOATS
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType, TensorType

__all__ = ["PASS"]

_INTEGERS = tuple(kind for kind in DataType if kind.is_integer and kind.bits >= 8)


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Cast", "CastLike"):
        source = node.inputs[0]
        target = _target(editor, node)
        if target is not None and _dtype(editor, source) is target:
            editor.forward(key, source)
        elif node.op_type == "Cast" and target is not None:
            _skip_inner(editor, key, node, target)


def _skip_inner(editor: GraphEditor, key: int, node: Node, target: DataType) -> None:
    inner = editor.made_by(node.inputs[0], "Cast")
    if inner is None:
        return
    original = _dtype(editor, inner.inputs[0])
    middle = _target(editor, inner)
    if original is None or middle is None or not _may_skip(original, middle, target):
        return
    source = inner.inputs[0]
    if original is not target or not editor.forward(key, source):
        editor.replace(key, node.replace(inputs=(source,)))


def _may_skip(original: DataType, middle: DataType, target: DataType) -> bool:
    """True if casting by way of `middle` gives the same bits as casting directly."""
    if not _lossless(original, middle):
        return False
    if _lossless(original, target):
        return True
    if target is DataType.BOOL:
        return True
    if original in _INTEGERS and middle in _INTEGERS:
        return target in _INTEGERS or target in FLOATS
    return original in FLOATS and middle in FLOATS and target in FLOATS


def _lossless(source: DataType, target: DataType) -> bool:
    """True if `target` represents every value of `source` exactly; False for uncommon types."""
    common = (DataType.BOOL, *_INTEGERS, *FLOATS)
    if source not in common or target not in common:
        return False
    if source is target or source is DataType.BOOL:
        return True
    if source in _INTEGERS and target in _INTEGERS:
        small, large = np.iinfo(source.numpy), np.iinfo(target.numpy)
        return bool(large.min <= small.min and small.max <= large.max)
    if target not in FLOATS:
        return False
    significand, exponent = FLOATS[target]
    if source in _INTEGERS:
        return bool(np.iinfo(source.numpy).max < 2**significand)
    return FLOATS[source][0] <= significand and FLOATS[source][1] <= exponent


def _dtype(editor: GraphEditor, name: str) -> DataType | None:
    kind = editor.type_of(name)
    return kind.dtype if isinstance(kind, TensorType) else None


def _target(editor: GraphEditor, node: Node) -> DataType | None:
    if node.op_type == "CastLike":
        return _dtype(editor, node.inputs[1])
    to = node.attributes.get("to")
    return DataType(to) if isinstance(to, int) and to in set(DataType) else None


PASS = Pass(
    "CastElimination",
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    _rewrite,
    aliases=("CastChainElimination",),
)
