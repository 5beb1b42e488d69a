"""SVMRegressor and SVMClassifier.

Source of the decision rule and of the probabilities: C.-C. Chang and C.-J. Lin, "LIBSVM: a library
for support vector machines", 2011, sections 4 and 8, whose layout of coefficients ONNX took over.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.ml_support import (
    DOMAIN,
    apply_labels,
    class_labels,
    feature_rows,
    floats,
    logistic,
    post_transform,
)
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_Similarity = Callable[[Array, Array], Array]
"""`similarity(rows [N, C], vectors [V, C])` gives [N, V]."""


def _similarity(node: KernelNode) -> _Similarity:
    """The kernel function that kernel_type names."""
    name = text(node.attr("kernel_type", "LINEAR")).upper()
    parameters = [float(value) for value in node.attr("kernel_params", ())]
    gamma, offset, degree = parameters if len(parameters) == 3 else (0.0, 0.0, 0.0)

    def linear(rows: Array, vectors: Array) -> Array:
        return np.asarray(rows @ vectors.T)

    def polynomial(rows: Array, vectors: Array) -> Array:
        return np.asarray((gamma * (rows @ vectors.T) + offset) ** degree)

    def radial(rows: Array, vectors: Array) -> Array:
        squares = np.empty((len(rows), len(vectors)), rows.dtype)
        # Differences first: expanding the square would cancel for near neighbours.
        for index, vector in enumerate(vectors):
            squares[:, index] = np.square(rows - vector).sum(axis=1)
        return np.asarray(np.exp(-gamma * squares))

    def sigmoid(rows: Array, vectors: Array) -> Array:
        return np.asarray(np.tanh(gamma * (rows @ vectors.T) + offset))

    known = {"LINEAR": linear, "POLY": polynomial, "RBF": radial, "SIGMOID": sigmoid}
    if name not in known:
        raise InvalidModelError("unknown kernel_type", expected=", ".join(known), got=name)
    if name != "LINEAR" and len(parameters) != 3:
        raise InvalidModelError(
            f"kernel_type {name} needs kernel_params", expected="3 values", got=len(parameters)
        )
    return known[name]


def _vectors(node: KernelNode, count: int) -> Array:
    """The support vectors as [count, features]."""
    flat = floats(node, "support_vectors")
    if count < 0 or (count and len(flat) % count):
        raise InvalidModelError(
            "support_vectors can't be divided among the vectors", expected=count, got=len(flat)
        )
    return flat.reshape(count, -1) if count else flat.reshape(0, 0)


def _wide_rows(x: Array) -> Array:
    """Features in float64: decisions are small differences of large sums."""
    return feature_rows(x).astype(np.float64)


def _check_width(rows: Array, width: int) -> None:
    if rows.shape[1] != width:
        raise RunError(
            "the features don't fit the support vectors", expected=width, got=rows.shape[1]
        )


@TABLE.kernel("SVMRegressor", domain=DOMAIN)
def _svm_regressor(node: KernelNode) -> Kernel:
    count = int(node.attr("n_supports", 0))
    vectors = _vectors(node, count)
    coefficients = floats(node, "coefficients")
    rho = floats(node, "rho")
    one_class = bool(node.attr("one_class", 0))
    transform = post_transform(node.attr("post_transform", "NONE"))
    similarity = _similarity(node)
    if not len(rho) or not len(coefficients) or (count and len(coefficients) != count):
        raise InvalidModelError(
            "SVMRegressor needs a rho and one coefficient per support vector",
            expected=count or "at least one of each",
            got=(len(rho), len(coefficients)),
        )

    def run(x: Array) -> Array:
        rows = _wide_rows(x)
        _check_width(rows, vectors.shape[1] if count else len(coefficients))
        # Without support vectors the coefficients are the weights of the features.
        values = similarity(rows, vectors) if count else rows
        scores = (values @ coefficients + rho[0])[:, None]
        if one_class:
            scores = np.where(scores > 0, 1, -1)
        return transform(scores.astype(np.float32, copy=False))

    return run


@TABLE.kernel("SVMClassifier", domain=DOMAIN)
def _svm_classifier(node: KernelNode) -> Kernel:
    labels = class_labels(node, "classlabels_ints")
    transform = post_transform(node.attr("post_transform", "NONE"))
    if not len(labels):
        raise InvalidModelError("SVMClassifier has no class labels")
    if sum(node.attr("vectors_per_class", ())) > 0:
        score = _support_scores(node, len(labels))
    else:
        score = _linear_scores(node, len(labels), transform)

    def run(x: Array) -> tuple[Array, Array]:
        chosen, scores = score(_wide_rows(x))
        return apply_labels(labels, chosen), scores.astype(np.float32, copy=False)

    return run


_Score = Callable[[Array], tuple[Array, Array]]
"""`score(rows)` gives the number of the class of each row, and the scores."""


def _linear_scores(node: KernelNode, classes: int, transform: Callable[[Array], Array]) -> _Score:
    """Without support vectors: one weight vector per class, one offset for all."""
    weights = floats(node, "coefficients")
    rho = floats(node, "rho")
    if not len(rho) or not len(weights) or len(weights) % classes:
        raise InvalidModelError(
            "SVMClassifier needs a rho, and as many coefficients for each class",
            expected=f"a multiple of {classes}",
            got=len(weights),
        )
    weights = weights.reshape(classes, -1)

    def score(rows: Array) -> tuple[Array, Array]:
        _check_width(rows, weights.shape[1])
        scores = rows @ weights.T + rho[0]
        return scores.argmax(axis=1), transform(scores)

    return score


def _support_scores(node: KernelNode, classes: int) -> _Score:
    """One decision for each pair of classes; the class with most votes wins."""
    counts = [int(count) for count in node.attr("vectors_per_class")]
    total = sum(counts)
    vectors = _vectors(node, total)
    coefficients = floats(node, "coefficients")
    rho = floats(node, "rho")
    a, b = floats(node, "prob_a"), floats(node, "prob_b")
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    expected = (classes, (classes - 1) * total, len(pairs))
    if (len(counts), len(coefficients), len(rho)) != expected or min(counts) < 0:
        raise InvalidModelError(
            "vectors_per_class, coefficients and rho of SVMClassifier don't fit its classes",
            expected=f"lengths {expected}",
            got=(len(counts), len(coefficients), len(rho)),
        )
    if not len(a) == len(b) in (0, len(pairs)):
        raise InvalidModelError(
            "SVMClassifier needs one prob_a and one prob_b per pair of classes",
            expected=len(pairs),
            got=(len(a), len(b)),
        )
    weights = _pair_weights(coefficients.reshape(classes - 1, total), counts, pairs)
    similarity = _similarity(node)
    name = text(node.attr("post_transform", "NONE")).upper()
    transform = post_transform(name)

    def score(rows: Array) -> tuple[Array, Array]:
        _check_width(rows, vectors.shape[1])
        decisions = similarity(rows, vectors) @ weights.T + rho
        votes = np.zeros((len(rows), classes), np.intp)
        for number, (i, j) in enumerate(pairs):
            wins = decisions[:, number] > 0
            votes[:, i] += wins
            votes[:, j] += ~wins
        chosen = votes.argmax(axis=1)
        if len(a):
            return chosen, transform(_probabilities(decisions, a, b, pairs, classes))
        if classes == 2:
            return chosen, _pair_scores(decisions[:, 0], name, transform)
        return chosen, transform(decisions)

    return score


def _pair_weights(coefficients: Array, counts: list[int], pairs: list[tuple[int, int]]) -> Array:
    """Weights of all support vectors for each pair of classes, as [pairs, vectors].

    Row r of the coefficients has, for the vectors of class i, those against the r-th other class.
    """
    ends = np.cumsum(counts)
    places = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    weights = np.zeros((len(pairs), coefficients.shape[1]), np.float32)
    for number, (i, j) in enumerate(pairs):
        weights[number, places[i]] = coefficients[j - 1, places[i]]
        weights[number, places[j]] = coefficients[i, places[j]]
    return weights


def _pair_scores(decision: Array, name: str, transform: Callable[[Array], Array]) -> Array:
    """Scores of two classes from one decision.

    ONNX leaves open what they are; this is what ONNX Runtime gives.
    """
    if name in ("NONE", "LOGISTIC"):
        return transform(np.column_stack([-decision, decision]))
    pair = np.column_stack([1 - decision, decision])
    return transform(pair) if name == "PROBIT" else pair


# ---------------------------------------------------------------- probabilities

_LEAST_PROBABILITY = 1e-7
_MOST_ROUNDS = 100


def _probabilities(
    decisions: Array, a: Array, b: Array, pairs: list[tuple[int, int]], classes: int
) -> Array:
    """Platt's sigmoid for each pair, and the distribution that fits all pairs best."""
    between = logistic(-(decisions * a + b))
    between = np.clip(between, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    wins = np.zeros((len(decisions), classes, classes), decisions.dtype)
    for number, (i, j) in enumerate(pairs):
        wins[:, i, j] = between[:, number]
        wins[:, j, i] = 1 - between[:, number]
    found = [_couple(row.astype(np.float64)) for row in wins]
    return np.array(found, np.float64).reshape(len(decisions), classes)


def _couple(wins: Array) -> Array:
    """Probabilities of the classes from those of each against each.

    T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability estimates for multi-class classification by
    pairwise coupling", 2004, algorithm 2: minimises the sum of (r_ji p_i - r_ij p_j)^2.

    Args:
        wins: [i, j] is the probability of class i where it is i or j; 0 on the diagonal.
    """
    classes = len(wins)
    form = -wins.T * wins
    np.fill_diagonal(form, np.square(wins).sum(axis=0))
    chances = np.full(classes, 1 / classes)
    for _ in range(max(_MOST_ROUNDS, classes)):
        slope = form @ chances
        value = chances @ slope
        if np.abs(slope - value).max() < 0.005 / classes:
            break
        for i in range(classes):
            step = (value - slope[i]) / form[i, i]
            chances[i] += step
            value = (value + step * (step * form[i, i] + 2 * slope[i])) / (1 + step) ** 2
            slope = (slope + step * form[i]) / (1 + step)
            chances /= 1 + step
    return chances
