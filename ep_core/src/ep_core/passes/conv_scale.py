"""Folds a multiplication or addition by a constant per channel into the convolution before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.graph import Initializer
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._convolution import Convolution, find_convolution, fold_into
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor

__all__ = ["PASS"]

_ALIGNED_BROADCAST_SINCE = 7


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Add", "Mul"):
        if node.since_version < _ALIGNED_BROADCAST_SINCE:
            continue
        for source, other in (node.inputs, node.inputs[::-1]):
            convolution = find_convolution(editor, source)
            constant = editor.constant(other)
            if convolution is None or constant is None:
                continue
            values = _per_channel(convolution, constant)
            if values is None:
                continue
            factor, shift = (values, None) if node.op_type == "Mul" else (None, values)
            fold_into(editor, convolution, key, factor, shift)
            break


def _per_channel(
    convolution: Convolution, constant: Initializer
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The constant as one number per channel, None where it differs within a channel."""
    if len(constant.shape) > convolution.rank:
        return None
    full = (1,) * (convolution.rank - len(constant.shape)) + constant.shape
    if full[1] not in (1, convolution.channels) or any(n != 1 for n in (full[0], *full[2:])):
        return None
    values = constant.numpy().astype(np.float64).reshape(full[1])
    return np.broadcast_to(values, (convolution.channels,))


PASS = Pass(
    "ConvScaleFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
    aliases=("ConvAddFusion", "ConvMulFusion"),
)
