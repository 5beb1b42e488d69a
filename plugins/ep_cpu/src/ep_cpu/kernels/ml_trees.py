"""TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier.

How a forest is walked is in `ml_forest`, how leaves are counted in `ml_votes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.errors import InvalidModelError
from ep_core.types import DataType
from ep_cpu.kernels.ml_forest import MEMBER, Forest, ForestBuilder
from ep_cpu.kernels.ml_support import (
    DOMAIN,
    apply_labels,
    class_labels,
    feature_rows,
    logistic,
    post_transform,
)
from ep_cpu.kernels.ml_votes import AGGREGATES, Votes
from ep_cpu.kernels.support import Array, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _same_length(node: KernelNode, count: int, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Attributes that are lists of one length."""
    found = [tuple(node.attr(name, ())) for name in names]
    for name, values in zip(names, found, strict=True):
        if len(values) != count:
            raise InvalidModelError(
                f"attribute {name} of {node.node.op_type} has a wrong length",
                expected=count,
                got=len(values),
            )
    return found


# ---------------------------------------------------------------- versions 1 to 4


def _numbers(node: KernelNode, name: str) -> Array:
    """FLOATS, or the TENSOR that may stand in for them."""
    tensor = node.attr(f"{name}_as_tensor")
    if tensor is not None and tensor.size:
        return np.asarray(tensor).reshape(-1)
    return np.array(node.attr(name, ()), np.float32)


class _Listing:
    """The nodes_* attributes of a node, by (tree, node) pairs."""

    def __init__(self, node: KernelNode) -> None:
        self.modes = [text(mode).upper() for mode in node.attr("nodes_modes", ())]
        names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
        self.trees, self.ids, self.features, self.yes, self.no = _same_length(
            node, len(self.modes), [f"nodes_{name}" for name in names]
        )
        self.values = _numbers(node, "nodes_values").tolist()
        self.missing = node.attr("nodes_missing_value_tracks_true", ()) or (0,) * len(self.modes)
        if not len(self.modes) == len(self.values) == len(self.missing) != 0:
            raise InvalidModelError(
                f"attributes nodes_* of {node.node.op_type} differ in length",
                got=(len(self.modes), len(self.values), len(self.missing)),
            )
        # Nodes that compare are numbered from 0, leaves from ~0 down.
        self.numbers: dict[tuple[int, int], int] = {}
        self.leaf_count = 0
        for tree, name, mode in zip(self.trees, self.ids, self.modes, strict=True):
            if mode == "LEAF":
                self.numbers[tree, name] = ~self.leaf_count
                self.leaf_count += 1
            else:
                self.numbers[tree, name] = len(self.numbers) - self.leaf_count
        if len(self.numbers) != len(self.modes):
            raise InvalidModelError("a tree has two nodes with one number")

    def number(self, tree: int, name: int) -> int:
        """The number of a node or, for a leaf, `~leaf`."""
        try:
            return self.numbers[tree, name]
        except KeyError:
            raise InvalidModelError(f"tree {tree} has no node {name}") from None

    def forest(self) -> Forest:
        """Connect the nodes."""
        builder = ForestBuilder(len(self.numbers) - self.leaf_count)
        inside: set[int] = set()
        for index, mode in enumerate(self.modes):
            if mode == "LEAF":
                continue
            if mode not in _MODES:
                raise InvalidModelError(
                    "unknown mode of a tree's node", expected=", ".join(_MODES), got=mode
                )
            tree = self.trees[index]
            yes = self.number(tree, self.yes[index])
            no = self.number(tree, self.no[index])
            inside.update((yes, no))
            builder.put(
                self.number(tree, self.ids[index]),
                _MODES.index(mode),
                self.features[index],
                (self.values[index],),
                yes,
                no,
                yes if self.missing[index] else no,
            )
        return builder.build(self._roots(inside), self.leaf_count)

    def _roots(self, inside: set[int]) -> list[int]:
        """The first node of each tree that isn't below another, trees in order of appearance."""
        roots: dict[int, int] = {}
        for (tree, _), number in self.numbers.items():
            if number not in inside:
                roots.setdefault(tree, number)
        if len(roots) != len(set(self.trees)):
            raise InvalidModelError("a tree has no root", got="a cycle")
        return list(roots.values())


def _read_votes(
    node: KernelNode, listing: _Listing, prefix: str, targets: int, aggregate: str
) -> Votes:
    weights = _numbers(node, f"{prefix}_weights")
    if node.input_dtype(0) is DataType.DOUBLE:
        weights = weights.astype(np.float64)
    names = [f"{prefix}_{name}" for name in ("treeids", "nodeids", "ids")]
    trees, nodes, ids = _same_length(node, len(weights), names)
    leaves = [~listing.number(tree, name) for tree, name in zip(trees, nodes, strict=True)]
    if leaves and min(leaves) < 0:
        raise InvalidModelError(f"attribute {prefix}_nodeids names a node that isn't a leaf")
    return Votes(
        np.array(leaves, np.intp),
        np.array(ids, np.intp),
        weights,
        listing.leaf_count,
        targets,
        aggregate,
    )


@TABLE.kernel("TreeEnsembleRegressor", domain=DOMAIN, until=4)
def _tree_regressor(node: KernelNode) -> Kernel:
    listing = _Listing(node)
    forest = listing.forest()
    targets = int(node.attr("n_targets", 1))
    aggregate = text(node.attr("aggregate_function", "SUM")).upper()
    votes = _read_votes(node, listing, "target", targets, aggregate)
    base = _numbers(node, "base_values")
    if len(base) not in (0, targets):
        raise InvalidModelError(
            "TreeEnsembleRegressor needs one base value per target",
            expected=f"0 or {targets}",
            got=len(base),
        )
    transform = post_transform(node.attr("post_transform", "NONE"))

    def run(x: Array) -> Array:
        scores = votes.count(forest, feature_rows(x))
        if len(base):
            scores = scores + base
        return transform(scores).astype(np.float32, copy=False)

    return run


@TABLE.kernel("TreeEnsembleClassifier", domain=DOMAIN, until=4)
def _tree_classifier(node: KernelNode) -> Kernel:
    listing = _Listing(node)
    forest = listing.forest()
    labels = class_labels(node, "classlabels_int64s")
    if not len(labels):
        raise InvalidModelError("TreeEnsembleClassifier has no class labels")
    voted = sorted(set(node.attr("class_ids", ())))
    votes = _read_votes(node, listing, "class", len(labels), "SUM")
    base = _numbers(node, "base_values")
    transform = post_transform(node.attr("post_transform", "NONE"))
    if len(labels) == 2 and len(voted) == 1 and len(base) < 2:
        probabilities = bool((_numbers(node, "class_weights") >= 0).all())
        name = text(node.attr("post_transform", "NONE")).upper()
        finish = _one_score_of_two(voted[0], base, probabilities, name)
    else:
        if len(base) not in (0, len(labels)):
            raise InvalidModelError(
                "TreeEnsembleClassifier needs one base value per class",
                expected=f"0 or {len(labels)}",
                got=len(base),
            )

        def finish(scores: Array) -> tuple[Array, Array]:
            total = scores + base if len(base) else scores
            return total.argmax(axis=1), transform(total)

    def run(x: Array) -> tuple[Array, Array]:
        chosen, scores = finish(votes.count(forest, feature_rows(x)))
        return apply_labels(labels, chosen), scores.astype(np.float32, copy=False)

    return run


def _one_score_of_two(
    voted: int, base: Array, probabilities: bool, name: str
) -> Callable[[Array], tuple[Array, Array]]:
    """Two classes of which the leaves name only one, as gradient boosting writes them.

    ONNX leaves open what the other class's score is. As in ONNX Runtime: where all weights are
    positive the score is a probability, else a margin around 0; LOGISTIC always takes a margin.
    """
    transform = post_transform(name)

    def finish(scores: Array) -> tuple[Array, Array]:
        score = scores[:, voted] + (base[0] if len(base) else scores.dtype.type(0))
        if name == "LOGISTIC":
            pair = logistic(np.column_stack([-score, score]))
            return (score > 0).astype(np.intp), pair
        if probabilities:
            other = 1 - score
            chosen = score > 0.5
        else:
            other = -score
            chosen = score > 0
        if voted == 1:
            other = np.zeros_like(score)
        pair = np.column_stack([other, score])
        if voted == 1 or name == "PROBIT":
            pair = transform(pair)
        return chosen.astype(np.intp), pair

    return finish


# ---------------------------------------------------------------- version 5


@TABLE.kernel("TreeEnsemble", domain=DOMAIN, since=5)
def _tree_ensemble(node: KernelNode) -> Kernel:
    forest = _read_ensemble(node)
    targets = np.array(node.attr("leaf_targetids"), np.intp)
    weights = widen(np.asarray(node.attr("leaf_weights")).reshape(-1))
    if len(weights) != len(targets):
        raise InvalidModelError(
            "attributes leaf_* of TreeEnsemble differ in length", got=(len(weights), len(targets))
        )
    aggregate = int(node.attr("aggregate_function", 1))
    transform = int(node.attr("post_transform", 0))
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise InvalidModelError(
            "TreeEnsemble has an unknown aggregate_function or post_transform",
            expected=f"below {len(AGGREGATES)} and {len(_TRANSFORMS)}",
            got=(aggregate, transform),
        )
    votes = Votes(
        np.arange(len(targets)),
        targets,
        weights,
        len(targets),
        int(node.attr("n_targets", targets.max(initial=0) + 1)),
        AGGREGATES[aggregate],
    )
    finish = post_transform(_TRANSFORMS[transform])

    def run(x: Array) -> Array:
        rows = feature_rows(x)
        return finish(votes.count(forest, rows)).astype(x.dtype, copy=False)

    return run


def _read_ensemble(node: KernelNode) -> Forest:
    modes = np.asarray(node.attr("nodes_modes")).reshape(-1).tolist()
    splits = np.asarray(node.attr("nodes_splits")).reshape(-1).astype(np.float64).tolist()
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    features, yes, yes_leaf, no, no_leaf = _same_length(
        node, len(modes), [f"nodes_{name}" for name in names]
    )
    missing = node.attr("nodes_missing_value_tracks_true", ()) or (0,) * len(modes)
    if not len(modes) == len(splits) == len(missing):
        raise InvalidModelError(
            "attributes nodes_* of TreeEnsemble differ in length",
            got=(len(modes), len(splits), len(missing)),
        )
    if min((*yes, *no), default=0) < 0:
        raise InvalidModelError("a tree points to a node with a negative number")
    members = _member_sets(node, modes.count(MEMBER))
    builder = ForestBuilder(len(modes))
    for index, mode in enumerate(modes):
        true = ~yes[index] if yes_leaf[index] else yes[index]
        false = ~no[index] if no_leaf[index] else no[index]
        values = next(members) if mode == MEMBER else (splits[index],)
        nan = true if missing[index] else false
        builder.put(index, mode, features[index], values, true, false, nan)
    roots = [int(root) for root in node.attr("tree_roots")]
    if not roots or min(roots) < 0 or max(roots) >= len(modes):
        raise InvalidModelError(
            "attribute tree_roots of TreeEnsemble names no node", expected=f"0 to {len(modes) - 1}"
        )
    return builder.build(roots, len(node.attr("leaf_targetids")))


def _member_sets(node: KernelNode, count: int) -> Any:
    """The sets of membership_values, which NaNs end, in the order of the nodes that use them."""
    values = node.attr("membership_values")
    flat = np.zeros(0) if values is None else np.asarray(values).reshape(-1).astype(np.float64)
    ends = np.flatnonzero(np.isnan(flat))
    # The last set may go without its NaN.
    if len(flat) and (not len(ends) or ends[-1] != len(flat) - 1):
        ends = np.append(ends, len(flat))
    if len(ends) != count:
        raise InvalidModelError(
            "membership_values of TreeEnsemble need one set per BRANCH_MEMBER",
            expected=count,
            got=len(ends),
        )
    starts = [0, *(int(end) + 1 for end in ends[:-1])]
    return iter([flat[a:b].tolist() for a, b in zip(starts, ends, strict=False)])
