"""A forest of decision trees as flat arrays, evaluated for many rows and trees at a time.

Every comparison becomes `x <= threshold`, so that one loop over levels serves all modes. The
operators, which differ in how they write a forest down, are in `ml_trees`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.support import Array

__all__ = ["LESS_EQUAL", "MEMBER", "Forest", "ForestBuilder"]

LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, NOT_EQUAL, MEMBER = range(7)
"""Comparisons as TreeEnsemble numbers them."""

_BLOCK = 1 << 15
"""Pairs of row and tree that walk down together: few calls, and all still in the cache."""


class ForestBuilder:
    """Collects nodes, and turns every comparison into one or several of `x <= threshold`.

    A child is the number of a node, or `~leaf` for a leaf. Thresholds are float64, in which the
    narrower types compare as in their own.

    Args:
        count: nodes 0 to `count - 1`, which `put` fills in any order; more come behind them.
    """

    def __init__(self, count: int) -> None:
        self.features = [0] * count
        self.thresholds = [0.0] * count
        self.children = [(0, 0)] * count
        self.nan_children = [0] * count

    def put(
        self,
        node: int,
        mode: int,
        feature: int,
        values: Sequence[float],
        yes: int,
        no: int,
        nan: int,
    ) -> None:
        """Fill one node.

        Args:
            node: its number.
            mode: the comparison.
            feature: column of the features.
            values: the threshold, or the members for `MEMBER`.
            yes, no, nan: child where the comparison holds, where it doesn't, for a missing value.
        """
        if mode in (GREATER, GREATER_EQUAL):
            mode = LESS_EQUAL if mode == GREATER else LESS
            yes, no = no, yes
        if mode == NOT_EQUAL:
            mode, yes, no = EQUAL, no, yes
        if mode == LESS_EQUAL:
            self._set(node, feature, values[0], yes, no, nan)
        elif mode == LESS:
            self._set(node, feature, _below(values[0]), yes, no, nan)
        elif mode in (EQUAL, MEMBER):
            members = sorted({float(item) for item in values if not math.isnan(item)})
            self._put_members(node, feature, members, yes, no, nan)
        else:
            raise InvalidModelError("unknown mode of a tree's node", expected="0 to 6", got=mode)

    def _put_members(
        self, node: int, feature: int, members: Sequence[float], yes: int, no: int, nan: int
    ) -> None:
        """A search tree over the sorted members."""
        if not members:
            self._set(node, feature, 0.0, no, no, nan)
            return
        if len(members) == 1:
            # At most the member and not below it.
            last = self._new()
            self._set(last, feature, _below(members[0]), no, yes, nan)
            self._set(node, feature, members[0], last, no, nan)
            return
        half = len(members) // 2
        low, high = self._new(), self._new()
        self._set(node, feature, members[half - 1], low, high, nan)
        self._put_members(low, feature, members[:half], yes, no, nan)
        self._put_members(high, feature, members[half:], yes, no, nan)

    def _new(self) -> int:
        self.features.append(0)
        self.thresholds.append(0.0)
        self.children.append((0, 0))
        self.nan_children.append(0)
        return len(self.features) - 1

    def _set(self, node: int, feature: int, threshold: float, yes: int, no: int, nan: int) -> None:
        self.features[node] = feature
        self.thresholds[node] = threshold
        self.children[node] = (no, yes)
        self.nan_children[node] = nan

    def build(self, roots: Sequence[int], leaves: int) -> Forest:
        """Return the forest with leaves 0 to `leaves - 1`.

        Raises:
            InvalidModelError: a child or root that doesn't exist, or a node below itself.
        """
        count = len(self.features)
        children = np.array(self.children, np.intp).reshape(count, 2)
        nan_children = np.array(self.nan_children, np.intp)
        starts = np.array(roots, np.intp)
        for numbers in (children, nan_children, starts):
            if numbers.size and not -leaves <= numbers.min() <= numbers.max() < count:
                raise InvalidModelError("a tree points to a node that doesn't exist")

        def placed(numbers: Array) -> Array:
            # Leaves come behind the nodes: ~leaf is -1 - leaf.
            return np.where(numbers < 0, count - 1 - numbers, numbers)

        stay = np.arange(count, count + leaves, dtype=np.intp)
        forest = Forest(
            nodes=count,
            roots=placed(starts),
            features=np.array(self.features + [0] * leaves, np.intp),
            thresholds=np.array(self.thresholds + [0.0] * leaves),
            children=np.concatenate([placed(children).reshape(-1), np.repeat(stay, 2)]),
            nan_children=np.concatenate([placed(nan_children), stay]),
        )
        forest.heights = _heights(forest)
        if forest.features.size and forest.features.min() < 0:
            raise InvalidModelError("a tree compares a feature with a negative number")
        return forest


def _below(value: float) -> float:
    """The largest number below `value`: `x < v` is `x <= below(v)`. Nothing is below -inf."""
    return math.nan if value == -math.inf else math.nextafter(value, -math.inf)


@dataclass
class Forest:
    """Trees in flat arrays: nodes first, then leaves, which are their own children.

    Attributes:
        nodes: number of nodes that compare.
        roots: where each tree starts.
        features, thresholds: what each node compares; zeros for leaves.
        children: two for each node: for "no" and for "yes".
        nan_children: where a missing value goes.
        heights: comparisons from each root to its deepest leaf.
    """

    nodes: int
    roots: Array
    features: Array
    thresholds: Array
    children: Array
    nan_children: Array
    heights: Array = field(default_factory=lambda: np.zeros(0, np.intp))

    def leaves(self, rows: Array) -> list[tuple[slice, Array]]:
        """The leaf that each row reaches in each tree.

        Args:
            rows: features as [rows, columns].

        Returns:
            Parts, each a slice of rows with [trees, rows of the slice] numbers of leaves.

        Raises:
            RunError: a tree compares a column that `rows` doesn't have.
        """
        width = rows.shape[1]
        compared = self.features[: self.nodes]
        if compared.size and compared.max() >= width:
            raise RunError(
                "the trees compare more features than there are",
                expected=f"at least {compared.max() + 1} columns",
                got=width,
            )
        flat = np.ascontiguousarray(rows, np.float64).reshape(-1)
        missing = bool(np.isnan(flat).any())
        parts: list[tuple[slice, Array]] = []
        for first in range(0, len(rows), _BLOCK):
            part = slice(first, min(first + _BLOCK, len(rows)))
            offsets = np.arange(part.start, part.stop, dtype=np.intp) * width
            trees = max(1, _BLOCK // len(offsets))
            found = [
                self._walk(flat, offsets, slice(tree, tree + trees), missing)
                for tree in range(0, len(self.roots), trees)
            ]
            parts.append((part, np.concatenate(found) - self.nodes))
        return parts

    def _walk(self, flat: Array, offsets: Array, trees: slice, missing: bool) -> Array:
        """Positions after walking down some trees, as [trees, rows]."""
        roots = self.roots[trees]
        place = np.repeat(roots, len(offsets))
        start = np.tile(offsets, len(roots))
        result = place
        where: Array | None = None
        for level in range(int(self.heights[trees].max())):
            if level % 4 == 3:
                # Deep trees are seldom full: go on with the pairs that aren't at a leaf yet.
                busy = np.flatnonzero(place < self.nodes)
                if 2 * len(busy) < len(place):
                    where = _store(result, where, place, busy)
                    place, start = place[busy], start[busy]
            values = flat[start + self.features[place]]
            turns = values <= self.thresholds[place]
            after = self.children[2 * place + turns]
            if missing:
                after = np.where(np.isnan(values), self.nan_children[place], after)
            place = after
            if where is None:
                result = place
        if where is not None:
            result[where] = place
        return result.reshape(len(roots), len(offsets))


def _store(result: Array, where: Array | None, place: Array, busy: Array) -> Array:
    """Write places that stay into `result`; returns where the busy ones belong."""
    if where is None:
        return busy
    result[where] = place
    return np.asarray(where[busy])


def _heights(forest: Forest) -> Array:
    """Comparisons from each root down, found from the roots level by level.

    Raises:
        InvalidModelError: a node lies below itself.
    """
    count = forest.nodes
    pairs = forest.children[: 2 * count].reshape(count, 2)
    edges = np.column_stack([pairs, forest.nan_children[:count]])
    inner = edges.reshape(-1) < count
    waiting = np.bincount(edges.reshape(-1)[inner], minlength=count)
    rounds: list[Array] = []
    front = np.flatnonzero(waiting == 0)
    done = 0
    while front.size:
        rounds.append(front)
        done += front.size
        below = edges[front].reshape(-1)
        below = below[below < count]
        np.subtract.at(waiting, below, 1)
        below = np.unique(below)
        front = below[waiting[below] == 0]
    if done < count:
        raise InvalidModelError("a node of a tree lies below itself", got="a cycle")
    heights = np.zeros(count + 1, np.intp)
    for nodes in reversed(rounds):
        heights[nodes] = 1 + heights[np.minimum(edges[nodes], count)].max(axis=1)
    return np.asarray(heights[np.minimum(forest.roots, count)])
