"""Losses of training graphs: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.softmax import log_softmax
from ep_cpu.kernels.support import Array, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def nll_loss(
    logs: Array, target: Array, weight: Array | None, reduction: str, ignored: int | None
) -> Array:
    """Minus the weighted logs [N, C, ...] at the target classes [N, ...]."""
    if logs.ndim < 2 or target.shape != (logs.shape[0], *logs.shape[2:]):
        raise RunError(
            "the target doesn't fit the input",
            expected="[N, D1, ...] for [N, C, D1, ...]",
            got=(logs.shape, target.shape),
        )
    classes = logs.shape[1]
    skipped = np.zeros(target.shape, np.bool_) if ignored is None else target == ignored
    safe = np.where(skipped, 0, target).astype(np.int64)
    if safe.size and not 0 <= int(safe.min()) <= int(safe.max()) < classes:
        raise RunError("a target class is out of range", expected=f"0 to {classes - 1}")
    picked = np.take_along_axis(logs, safe[:, None], axis=1)[:, 0]
    factor = np.ones(target.shape, logs.dtype) if weight is None else weight[safe]
    factor = np.where(skipped, np.zeros((), factor.dtype), factor)
    loss = -picked * factor
    # A skipped place counts as 0 even where its log is infinite.
    loss = np.where(skipped, np.zeros((), loss.dtype), loss)
    if reduction == "none":
        return np.asarray(loss)
    if reduction == "sum":
        return np.asarray(loss.sum())
    return np.asarray(loss.sum() / factor.sum())


def _attributes(node: KernelNode) -> tuple[str, int | None]:
    reduction = text(node.attr("reduction", "mean"))
    if reduction not in ("none", "sum", "mean"):
        raise RunError("unknown reduction", expected="none, sum or mean", got=reduction)
    ignored = node.attr("ignore_index")
    return reduction, None if ignored is None else int(ignored)


@TABLE.kernel("NegativeLogLikelihoodLoss", since=12)
def _negative_log_likelihood_loss(node: KernelNode) -> Kernel:
    reduction, ignored = _attributes(node)

    def run(x: Array, target: Array, weight: Array | None = None) -> Array:
        wide_weight = None if weight is None else widen(weight)
        loss = nll_loss(widen(x), target, wide_weight, reduction, ignored)
        return loss.astype(x.dtype, copy=False)

    return run


@TABLE.kernel("SoftmaxCrossEntropyLoss", since=12)
def _softmax_cross_entropy_loss(node: KernelNode) -> Kernel:
    reduction, ignored = _attributes(node)
    outputs = len(node.node.outputs)

    def run(scores: Array, labels: Array, weights: Array | None = None) -> Any:
        logs = log_softmax(widen(scores), axis=1)
        wide_weight = None if weights is None else widen(weights)
        loss = nll_loss(logs, labels, wide_weight, reduction, ignored)
        loss = loss.astype(scores.dtype, copy=False)
        return (loss, logs.astype(scores.dtype, copy=False)) if outputs > 1 else loss

    return run
