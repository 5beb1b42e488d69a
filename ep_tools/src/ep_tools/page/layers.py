"""Puts boxes onto layers: every link goes down, and no layer gets too wide.

A box is one below the lowest of those it depends on (longest path), or further down where a layer
is full. What no input reaches, such as constants that are computed, moves down to its first user,
and so does an input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Ends", "layers_of"]

Ends = tuple[int, int]
"""Source and target of a link: positions of boxes, the source first."""

_LEAST_WIDTH = 24


def layers_of(count: int, links: Sequence[Ends], inputs: int) -> list[int]:
    """Return the layer of each box, 0 at the top, without empty layers.

    Args:
        count: number of boxes, which are in topological order.
        links: from lower to higher positions.
        inputs: how many of the first boxes everything starts from.

    Takes time in proportion to boxes and links.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    reached = [box < inputs or not inputs for box in range(count)]
    for source, target in sorted(links):
        after[source].append(target)
        reached[target] |= reached[source]
    loose = [box < inputs or not reached[box] for box in range(count)]
    rooms = _Rooms(max(_LEAST_WIDTH, math.isqrt(count)))
    layers = [0] * count
    for box in range(count):
        if not loose[box]:
            layers[box] = rooms.take(layers[box])
        for target in after[box]:
            layers[target] = max(layers[target], layers[box] + 1)
    for box in range(count - 1, -1, -1):
        if loose[box] and after[box]:
            layers[box] = min(layers[target] for target in after[box]) - 1
    used = {layer: place for place, layer in enumerate(sorted(set(layers)))}
    return [used[layer] for layer in layers]


class _Rooms:
    """Layers that take so many boxes each; finds the first with room, almost at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: list[int] = []
        self._next: list[int] = []  # a layer that may have room; itself where there is some

    def take(self, layer: int) -> int:
        """Take a place on the first layer with room, from the given one down."""
        while len(self._taken) <= layer:
            self._grow()
        found = layer
        while self._next[found] != found:
            self._next[found] = self._next[self._next[found]]
            found = self._next[found]
        self._taken[found] += 1
        if self._taken[found] == self._most:
            if found + 1 == len(self._taken):
                self._grow()
            self._next[found] = found + 1
        return found

    def _grow(self) -> None:
        self._next.append(len(self._next))
        self._taken.append(0)
