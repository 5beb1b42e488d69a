"""Merges nodes that compute the same from the same inputs."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._schema import repeatable

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    first: dict[Hashable, int] = {}
    numbers: dict[str, int] = {}
    for key, node in editor.find():
        if not repeatable(node):
            continue
        # Names may change under way (an output of the graph keeps its own), numbers don't.
        inputs = tuple(numbers.setdefault(name, len(numbers)) for name in node.inputs)
        earlier = first.setdefault((inputs, *_signature(node)), key)
        if earlier != key:
            for mine, theirs in zip(editor.node(earlier).outputs, node.outputs, strict=True):
                numbers[theirs] = numbers.setdefault(mine, len(numbers))
            _merge(editor, earlier, key)


def _merge(editor: GraphEditor, earlier: int, later: int) -> None:
    """Let the readers of `later` read the outputs of `earlier`."""
    kept = editor.node(earlier)
    doomed = editor.node(later)
    pairs = [(a, b) for a, b in zip(kept.outputs, doomed.outputs, strict=True) if b]
    both = [(a, b) for a, b in pairs if a in editor.outputs and b in editor.outputs]
    if both and (doomed.op_type == "Identity" or len(pairs) > 1):
        return
    editor.remove(later)
    for mine, theirs in pairs:
        if theirs not in editor.outputs:
            editor.set_type(mine, editor.type_of(theirs))
            editor.redirect(theirs, mine)
        elif mine not in editor.outputs:
            editor.rename_output(mine, theirs)
        else:
            # One value with two names in the signature: computing it once and copying is cheaper.
            editor.redirect(theirs, mine)
            editor.add(editor.make_node("Identity", (mine,), (theirs,)))


def _signature(node: Node) -> tuple[Hashable, ...]:
    return (
        node.domain,
        node.op_type,
        node.since_version,
        tuple(bool(name) for name in node.outputs),
        tuple(sorted((name, _frozen(value)) for name, value in node.attributes.items())),
    )


def _frozen(value: Any) -> tuple[str, Hashable]:
    """A hashable stand-in that is equal exactly where the attributes are the same, bit by bit."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, np.ndarray):
        data = tuple(value.reshape(-1).tolist()) if value.dtype == object else value.tobytes()
        return "tensor", (str(value.dtype), value.shape, data)
    if isinstance(value, tuple):
        kinds = set(map(type, value))
        if kinds == {float}:
            return "floats", struct.pack(f"<{len(value)}d", *value)
        if kinds in ({int}, {str}):
            return "plain", value
        return "tuple", tuple(_frozen(item) for item in value)
    return type(value).__name__, value


PASS = Pass("CommonSubexpressionElimination", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
