"""What the leaves of a forest add to the scores.

Knows forests; knows nothing of nodes and their attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import InvalidModelError
from ep_cpu.kernels.ml_forest import Forest
from ep_cpu.kernels.support import Array

__all__ = ["AGGREGATES", "Votes"]

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""Names of the aggregate functions, as TreeEnsemble numbers them."""

_MOST_DENSE = 1 << 22
"""Elements of a table of leaves by targets; a larger one is kept as a list of votes."""


class Votes:
    """What the leaves add to which target.

    Args:
        leaves, targets, weights: one entry per vote: the leaf, the target, and how much.
        leaf_count, target_count: how many leaves and targets there are.
        aggregate: AVERAGE, SUM, MIN or MAX.
    """

    def __init__(
        self,
        leaves: Array,
        targets: Array,
        weights: Array,
        leaf_count: int,
        target_count: int,
        aggregate: str,
    ) -> None:
        if aggregate not in AGGREGATES:
            raise InvalidModelError(
                "unknown aggregate_function", expected=", ".join(AGGREGATES), got=aggregate
            )
        if targets.size and not 0 <= targets.min() <= targets.max() < target_count:
            raise InvalidModelError("a leaf votes for a target that doesn't exist")
        self._aggregate = aggregate
        self._merge: Any = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        nothing = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
        self._nothing = weights.dtype.type(nothing)
        self._targets = target_count
        self._dense: Array | None = None
        if leaf_count * target_count <= max(_MOST_DENSE, 2 * len(weights)):
            self._dense = np.full((leaf_count, target_count), self._nothing)
            self._merge.at(self._dense, (leaves, targets), weights)
        else:
            order = np.argsort(leaves, kind="stable")
            counts = np.bincount(leaves, minlength=leaf_count)
            most = int(counts.max(initial=0))
            place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
            # A leaf with fewer votes fills up with votes of nothing for a target of no account.
            self._vote_targets = np.full((most, leaf_count), target_count, np.intp)
            self._vote_weights = np.full((most, leaf_count), self._nothing)
            self._vote_targets[place, leaves[order]] = targets[order]
            self._vote_weights[place, leaves[order]] = weights[order]

    def count(self, forest: Forest, rows: Array) -> Array:
        """Scores of [rows, targets], tree by tree in order, in the type of the weights."""
        scores = np.full((len(rows), self._targets + 1), self._nothing)
        for part, leaves in forest.leaves(rows):
            self._add(scores[part], leaves)
        result = scores[:, : self._targets]
        if self._aggregate == "AVERAGE":
            return np.asarray(result / self._nothing.dtype.type(len(forest.roots)))
        if self._aggregate == "SUM":
            return result
        # A target that nobody voted for has score 0.
        return np.where(result == self._nothing, 0, result).astype(result.dtype)

    def _add(self, scores: Array, leaves: Array) -> None:
        if self._dense is not None and self._targets == 1:
            column = self._dense[:, 0]
            for tree in leaves:
                self._merge(scores[:, 0], column[tree], out=scores[:, 0])
        elif self._dense is not None:
            for tree in leaves:
                self._merge(scores[:, :-1], self._dense[tree], out=scores[:, :-1])
        else:
            every = np.arange(len(scores))
            for tree in leaves:
                for targets, weights in zip(self._vote_targets, self._vote_weights, strict=True):
                    target = targets[tree]
                    scores[every, target] = self._merge(scores[every, target], weights[tree])
