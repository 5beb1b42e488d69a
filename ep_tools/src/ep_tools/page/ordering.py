"""Orders what stands on each layer so that few lines cross: sweeps of barycentres."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["Lines", "order_layers"]

_SWEEPS = 8

Lines = Sequence[Sequence[int]]
"""By point its neighbours on the layer above, or on the layer below."""


def order_layers(layers: Sequence[Sequence[int]], above: Lines, below: Lines) -> list[list[int]]:
    """Return the layers with their points from left to right.

    Args:
        layers: points by layer, from the top.
        above, below: neighbours of each point; lines join adjacent layers only.

    Of all orders that the sweeps meet, the one with the fewest crossings is returned. Takes time
    in proportion to points and lines, but for sorting; the same input gives the same order.
    """
    current = _first_order(layers, above, below)
    best, fewest = current, _crossings(current, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        current = _swept(current, above if sweep % 2 == 0 else below, down=sweep % 2 == 0)
        count = _crossings(current, below)
        if count < fewest:
            best, fewest = current, count
    return best


def _first_order(layers: Sequence[Sequence[int]], above: Lines, below: Lines) -> list[list[int]]:
    """What hangs together stands together: depth first, from the first point of the top layer."""
    place_of = {point: place for place, layer in enumerate(layers) for point in layer}
    found: list[list[int]] = [[] for _ in layers]
    seen: set[int] = set()
    for start in (point for layer in layers for point in layer):
        pending = [start]
        while pending:
            point = pending.pop()
            if point in seen:
                continue
            seen.add(point)
            found[place_of[point]].append(point)
            pending.extend(reversed(above[point]))
            pending.extend(reversed(below[point]))
    return found


def _swept(layers: Sequence[Sequence[int]], neighbours: Lines, *, down: bool) -> list[list[int]]:
    result = [list(layer) for layer in layers]
    places: dict[int, int] = {}
    for number in range(len(result)) if down else range(len(result) - 1, -1, -1):
        layer = result[number]
        wished = {
            point: sum(places[other] for other in neighbours[point]) / len(neighbours[point])
            if neighbours[point]
            else float(place)
            for place, point in enumerate(layer)
        }
        layer.sort(key=wished.__getitem__)
        places = {point: place for place, point in enumerate(layer)}
    return result


def _crossings(layers: Sequence[Sequence[int]], below: Lines) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        places = {point: place for place, point in enumerate(lower)}
        ends = [place for point in upper for place in sorted(places[b] for b in below[point])]
        total += _inversions(ends, len(lower))
    return total


def _inversions(ends: Sequence[int], size: int) -> int:
    """How many pairs stand in the wrong order; a Fenwick tree counts those seen so far."""
    tree = [0] * (size + 1)
    total = 0
    for seen, end in enumerate(ends):
        position = end + 1
        smaller = 0
        while position:
            smaller += tree[position]
            position &= position - 1
        total += seen - smaller
        position = end + 1
        while position <= size:
            tree[position] += 1
            position += position & -position
    return total
