"""Scaling and shifting the weights of a convolution: what the passes that fold into them share.

Factors are computed in double precision and rounded once, to the type of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.passes._constants import FLOATS
from ep_core.passes._editor import GraphEditor

__all__ = ["Convolution", "find_convolution", "fold_into"]

Float64s = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Convolution:
    """A Conv or ConvTranspose with constant weights and bias, whose output one node reads.

    Attributes:
        channels: channels of the output.
        rank: rank of input and output.
    """

    key: int
    node: Node
    channels: int
    rank: int


def find_convolution(editor: GraphEditor, name: str) -> Convolution | None:
    """The convolution that makes `name`, if its weights can be changed without a trace."""
    node = editor.made_by(name, "Conv", "ConvTranspose")
    if node is None or not editor.used_once(name):
        return None
    weights = editor.constant(node.inputs[1])
    if weights is None or len(weights.shape) < 3 or weights.dtype not in FLOATS:
        return None
    channels = weights.shape[0]
    if node.op_type == "ConvTranspose":
        if _groups(node) < 1 or weights.shape[0] % _groups(node):
            return None
        channels = weights.shape[1] * _groups(node)
    if _has_bias(node):
        bias = editor.constant(node.inputs[2])
        if bias is None or bias.shape != (channels,):
            return None
    key = editor.producer(name)
    assert key is not None
    return Convolution(key, node, channels, len(weights.shape))


def _has_bias(node: Node) -> bool:
    return len(node.inputs) > 2 and bool(node.inputs[2])


def _groups(node: Node) -> int:
    return int(node.attributes.get("group", 1))


def fold_into(
    editor: GraphEditor,
    found: Convolution,
    key: int,
    factor: Float64s | None,
    shift: Float64s | None,
) -> bool:
    """Let the convolution compute `factor * convolution + shift`; both are per output channel.

    The node `key` that did so until now is removed, and its output is the convolution's. Returns
    False, with nothing done, where a weight would be infinite or NaN.
    """
    node = found.node
    inputs = list(node.inputs)
    weights = editor.constant(node.inputs[1])
    assert weights is not None
    new: dict[int, np.ndarray[Any, Any]] = {}
    with np.errstate(all="ignore"):
        if factor is not None:
            doubles = _doubles(editor, node.inputs[1])
            new[1] = doubles * _spread(node, factor, doubles.shape)
        if shift is not None or _has_bias(node):
            bias = _doubles(editor, node.inputs[2]) if _has_bias(node) else np.zeros(found.channels)
            scaled = bias if factor is None else bias * factor
            new[2] = scaled if shift is None else scaled + shift
        rounded = {index: array.astype(weights.dtype.numpy) for index, array in new.items()}
    if not all(_finite(array) for array in rounded.values()):
        return False
    inputs += [""] * (3 - len(inputs)) if 2 in rounded else []
    for index, array in rounded.items():
        hint = f"{node.name}_{'weights' if index == 1 else 'bias'}"
        inputs[index] = editor.add_constant(hint, array)
    output = editor.node(key).outputs[0]
    editor.remove(key)
    editor.replace(found.key, node.replace(inputs=tuple(inputs), outputs=(output,)))
    return True


def _doubles(editor: GraphEditor, name: str) -> Float64s:
    constant = editor.constant(name)
    assert constant is not None
    return constant.numpy().astype(np.float64)


def _spread(node: Node, factor: Float64s, shape: tuple[int, ...]) -> Float64s:
    """The factors in a form that multiplies weights of `shape`.

    Conv has the output's channels on axis 0; ConvTranspose has those of one group on axis 1, and
    the input's channels, group after group, on axis 0.
    """
    spatial = (1,) * (len(shape) - 2)
    if node.op_type == "Conv":
        return factor.reshape(shape[0], 1, *spatial)
    groups = _groups(node)
    by_group = np.repeat(factor.reshape(groups, shape[1]), shape[0] // groups, axis=0)
    return by_group.reshape(shape[0], shape[1], *spatial)


def _finite(array: np.ndarray[Any, Any]) -> bool:
    return bool(np.isfinite(array.astype(np.float64)).all())
