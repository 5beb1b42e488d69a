"""LinearRegressor and LinearClassifier."""

from __future__ import annotations

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.ml_support import (
    DOMAIN,
    apply_labels,
    class_labels,
    float_rows,
    floats,
    logistic,
    post_transform,
    probit,
)
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _products(rows: Array, coefficients: Array, targets: int) -> Array:
    """The product rows @ coefficients.T, for coefficients that lie target by target."""
    if len(coefficients) != targets * rows.shape[1]:
        raise RunError(
            "the coefficients don't fit the features",
            expected=f"{targets} x {rows.shape[1]}",
            got=len(coefficients),
        )
    return np.asarray(rows @ coefficients.reshape(targets, -1).T)


@TABLE.kernel("LinearRegressor", domain=DOMAIN)
def _linear_regressor(node: KernelNode) -> Kernel:
    targets = int(node.attr("targets", 1))
    coefficients = floats(node, "coefficients")
    intercepts = floats(node, "intercepts")
    transform = post_transform(node.attr("post_transform", "NONE"))
    if len(intercepts) not in (0, targets):
        raise InvalidModelError(
            "LinearRegressor needs one intercept per target",
            expected=f"0 or {targets}",
            got=len(intercepts),
        )

    def run(x: Array) -> Array:
        scores = _products(float_rows(x), coefficients, targets)
        if len(intercepts):
            scores = scores + intercepts
        return transform(scores).astype(np.float32, copy=False)

    return run


def _two_classes(score: Array, name: str) -> tuple[Array, Array]:
    """Classes and scores where one weight vector tells two classes apart.

    ONNX leaves open what the other class's score is; this is what ONNX Runtime gives.
    """
    chosen = (score > 0).astype(np.intp)
    if name == "LOGISTIC":
        return chosen, logistic(np.column_stack([-score, score]))
    pair = np.column_stack([1 - score, score])
    return chosen, probit(pair) if name == "PROBIT" else pair


@TABLE.kernel("LinearClassifier", domain=DOMAIN)
def _linear_classifier(node: KernelNode) -> Kernel:
    coefficients = floats(node, "coefficients")
    intercepts = floats(node, "intercepts")
    labels = class_labels(node, "classlabels_ints")
    name = text(node.attr("post_transform", "NONE")).upper()
    transform = post_transform(name)

    def run(x: Array) -> tuple[Array, Array]:
        rows = float_rows(x)
        targets = len(intercepts) or len(coefficients) // max(rows.shape[1], 1)
        scores = _products(rows, coefficients, targets)
        if len(intercepts):
            scores = scores + intercepts
        if targets == 1 and len(labels) == 2:
            chosen, scores = _two_classes(scores[:, 0], name)
            return apply_labels(labels, chosen), scores.astype(np.float32, copy=False)
        if len(labels) != targets:
            raise RunError(
                "LinearClassifier needs one label per class", expected=targets, got=len(labels)
            )
        chosen = apply_labels(labels, scores.argmax(axis=1))
        return chosen, transform(scores).astype(np.float32, copy=False)

    return run
