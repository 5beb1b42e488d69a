"""Folds an inference BatchNormalization into the weights of the convolution before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._convolution import find_convolution, fold_into
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor

__all__ = ["PASS"]

_DEFAULT_EPSILON = float(np.float32(1e-5))


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("BatchNormalization"):
        convolution = find_convolution(editor, node.inputs[0])
        statistics = _statistics(editor, node)
        if convolution is None or statistics is None or not _inference(node):
            continue
        scale, shift, mean, variance = statistics
        if any(item.shape != (convolution.channels,) for item in statistics):
            continue
        with np.errstate(all="ignore"):
            deviation = np.sqrt(variance + node.attributes.get("epsilon", _DEFAULT_EPSILON))
            factor = scale / deviation
            moved = shift - mean * factor
        fold_into(editor, convolution, key, factor, moved)


def _inference(node: Node) -> bool:
    if any(node.outputs[1:]) or not node.attributes.get("spatial", 1):
        return False
    if node.since_version < 7:
        return bool(node.attributes.get("is_test", 0))
    return not node.attributes.get("training_mode", 0)


def _statistics(editor: GraphEditor, node: Node) -> list[np.ndarray[Any, Any]] | None:
    """Scale, shift, mean and variance in double precision, None unless all are constant."""
    found = [editor.constant(name) for name in node.inputs[1:5]]
    arrays = [item.numpy().astype(np.float64) for item in found if item is not None]
    return arrays if len(arrays) == 4 else None


PASS = Pass(
    "ConvBNFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
