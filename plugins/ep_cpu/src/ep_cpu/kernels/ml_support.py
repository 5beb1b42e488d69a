"""What the kernels of ai.onnx.ml share: rows of features, class labels, score transforms.

No kernel and no row belongs here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.support import Array, text
from ep_sdk.kernels import KernelNode

__all__ = [
    "DOMAIN",
    "apply_labels",
    "class_labels",
    "feature_rows",
    "floats",
    "float_rows",
    "logistic",
    "post_transform",
    "probit",
    "string_array",
]

DOMAIN = "ai.onnx.ml"


def feature_rows(x: Array) -> Array:
    """`x` as [rows, features]; one dimension is one row.

    Raises:
        RunError: the rank is neither 1 nor 2.
    """
    if x.ndim == 1:
        return x[None, :]
    if x.ndim != 2:
        raise RunError("features need shape [C] or [N, C]", got=f"shape {x.shape}")
    return x


def float_rows(x: Array) -> Array:
    """`feature_rows` in float64 for integers and doubles, which float32 couldn't hold exactly."""
    rows = feature_rows(x)
    return rows if rows.dtype == np.float32 else rows.astype(np.float64)


def floats(node: KernelNode, name: str) -> Array:
    """A FLOATS attribute as float32; empty where the model doesn't set it."""
    return np.array(node.attr(name, ()), np.float32)


def string_array(values: Sequence[str], shape: tuple[int, ...]) -> Array:
    """An object array of the given shape from a flat list of strings."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


# ---------------------------------------------------------------- labels


def class_labels(node: KernelNode, ints: str) -> Array:
    """The labels of a classifier as an int64 or string array; empty where there are none.

    Raises:
        InvalidModelError: both kinds are given.
    """
    strings = [text(label) for label in node.attr("classlabels_strings", ())]
    numbers = np.array(node.attr(ints, ()), np.int64)
    if strings and numbers.size:
        raise InvalidModelError(
            f"{node.node.op_type} has labels of two kinds", expected=f"{ints} or strings"
        )
    return string_array(strings, (len(strings),)) if strings else numbers


def apply_labels(labels: Array, chosen: Array) -> Array:
    """The label of each row from the number of its class."""
    return np.asarray(labels[chosen])


# ---------------------------------------------------------------- transforms of scores


def logistic(scores: Array) -> Array:
    """1 / (1 + exp(-s)), without overflow."""
    shrunk = np.exp(-np.abs(scores))
    return np.where(scores < 0, shrunk / (1 + shrunk), 1 / (1 + shrunk)).astype(scores.dtype)


def probit(probabilities: Array) -> Array:
    """The inverse of the normal distribution function, in Winitzki's approximation.

    S. Winitzki, "A handy approximation for the error function and its inverse", 2008, with
    a = 0.147: at most 2e-3 off. ONNX doesn't say which; this is what its runtimes compute.
    """
    centred = 2 * probabilities.astype(np.float64) - 1
    logarithm = np.log((1 - centred) * (1 + centred))
    half = 2 / (math.pi * 0.147) + 0.5 * logarithm
    inverse = np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half)
    return np.asarray(math.sqrt(2) * np.sign(centred) * inverse).astype(probabilities.dtype)


def _softmax(scores: Array) -> Array:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


_NEARLY_ZERO = 1e-7


def _softmax_zero(scores: Array) -> Array:
    """Softmax over the scores that aren't zero; zeros stay zero."""
    top = scores.max(axis=1, keepdims=True)
    counts = np.abs(scores) > _NEARLY_ZERO
    shifted = np.where(counts, np.exp(scores - top), 0)
    total = shifted.sum(axis=1, keepdims=True)
    return np.asarray(shifted / np.where(total == 0, 1, total)).astype(scores.dtype)


_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": _softmax,
    "LOGISTIC": logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": probit,
}


def post_transform(name: Any) -> Callable[[Array], Array]:
    """The function of [rows, classes] that a post_transform attribute names.

    Raises:
        InvalidModelError: an unknown name.
    """
    try:
        return _TRANSFORMS[text(name).upper()]
    except KeyError:
        raise InvalidModelError(
            "unknown post_transform", expected=", ".join(_TRANSFORMS), got=text(name)
        ) from None
