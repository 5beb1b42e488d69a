"""Makes one LayerNormalization of its formula.

    (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias

Also in the form with the mean pulled out, which batch normalisation code leaves behind:
x * r + (bias - mean(x) * r), where r = scale / sqrt(...).
Source: Ba, Kiros & Hinton 2016, "Layer Normalization", arXiv 1607.06450.
"""

from __future__ import annotations

from dataclasses import dataclass

from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._match import last_axes_mean
from ep_core.passes._normalization import (
    Deviation,
    find_deviation,
    find_scaled,
    is_affine,
    reciprocal,
)
from ep_core.passes._schema import version_at

__all__ = ["PASS"]


@dataclass(frozen=True)
class _Match:
    root: int
    scale: str
    bias: str
    keys: tuple[int, ...]


@dataclass(frozen=True)
class _Centered:
    """`source - mean(source)`; `keys` are the two nodes."""

    source: str
    mean: str
    keys: tuple[int, ...]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    if version_at("LayerNormalization", editor.opsets) is None:
        return
    for _, node in editor.find("Sqrt"):
        found = find_deviation(editor, node)
        centered = _centered(editor, found) if found is not None else None
        if found is None or centered is None:
            continue
        match = _affine_form(editor, found) or _pulled_out_form(editor, found, centered)
        if match is None:
            continue
        keys = {*found.keys, *centered.keys, *match.keys, match.root}
        if not editor.closed(keys, match.root):
            continue
        old = editor.node(match.root)
        inputs = [centered.source, match.scale, *filter(None, [match.bias])]
        attributes = {"axis": -found.axes, "epsilon": found.epsilon}
        editor.replace(
            match.root, editor.make_node("LayerNormalization", inputs, old.outputs, attributes)
        )
        editor.remove_unused(old.inputs)


def _centered(editor: GraphEditor, found: Deviation) -> _Centered | None:
    difference = editor.producer(found.operand)
    node = editor.made_by(found.operand, "Sub")
    if difference is None or node is None:
        return None
    source, mean = node.inputs
    key = editor.producer(mean)
    averaged = last_axes_mean(editor, editor.made_by(mean, "ReduceMean"))
    if key is None or averaged != (source, found.axes):
        return None
    return _Centered(source, mean, (difference, key))


def _affine_form(editor: GraphEditor, found: Deviation) -> _Match | None:
    """Match `d / deviation * scale`, with or without a bias added."""
    scaled = find_scaled(editor, found)
    if scaled is None:
        return None
    output = editor.node(scaled.key).outputs[0]
    key = editor.only_reader(output)
    node = editor.node(key) if key is not None else None
    if key is not None and node is not None and node.domain == "" and node.op_type == "Add":
        bias = node.inputs[1] if node.inputs[0] == output else node.inputs[0]
        if is_affine(editor, found, bias):
            return _Match(key, scaled.scale, bias, scaled.all_keys)
    return _Match(scaled.key, scaled.scale, "", scaled.keys)


def _pulled_out_form(editor: GraphEditor, found: Deviation, centered: _Centered) -> _Match | None:
    """Match `x * r + (bias - mean * r)`."""
    inverse = reciprocal(editor, found.value)
    rate = _sole_product(editor, editor.node(inverse).outputs[0]) if inverse is not None else None
    if inverse is None or rate is None or not is_affine(editor, found, rate[1]):
        return None
    factor = editor.node(rate[0]).outputs[0]
    products = {_other(editor, key, factor, "Mul"): key for key in editor.readers(factor)}
    if set(products) != {centered.source, centered.mean}:
        return None
    moved = editor.node(products[centered.mean]).outputs[0]
    scaled = editor.node(products[centered.source]).outputs[0]
    shift = editor.only_reader(moved)
    root = editor.only_reader(scaled)
    if shift is None or root is None or editor.node(shift).op_type != "Sub":
        return None
    bias, subtracted = editor.node(shift).inputs
    shifted = editor.node(shift).outputs[0]
    if subtracted != moved or not is_affine(editor, found, bias):
        return None
    if _other(editor, root, scaled, "Add") != shifted:
        return None
    return _Match(root, rate[1], bias, (inverse, rate[0], *products.values(), shift))


def _sole_product(editor: GraphEditor, name: str) -> tuple[int, str] | None:
    key = editor.only_reader(name)
    other = _other(editor, key, name, "Mul") if key is not None else None
    return (key, other) if key is not None and other is not None else None


def _other(editor: GraphEditor, key: int, name: str, op_type: str) -> str | None:
    """The operand beside `name` of a Mul or Add, None for other nodes."""
    node = editor.node(key)
    if node.domain != "" or node.op_type != op_type:
        return None
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


PASS = Pass(
    "LayerNormFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
