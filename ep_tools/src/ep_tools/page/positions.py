"""Gives every point of ordered layers its place from left to right, so that lines run straight.

Layer by layer, points go as near as they can to the mean of their neighbours, in their order and
with their distances kept: a least-squares problem that pooling adjacent violators solves exactly.
No layer leaves the room that the widest one needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ep_tools.page.ordering import Lines

__all__ = ["offsets_of", "positions_of"]

_GAP = 26.0
_BEND_GAP = 9.0
"""Free room between two neighbours of one layer, and less of it beside a line, in pixels."""

_ROUNDS = 6
_BEND_WEIGHT = 4.0
_LOOSE_WEIGHT = 0.1
_ROOM = 1.2


def positions_of(
    layers: Sequence[Sequence[int]],
    above: Lines,
    below: Lines,
    widths: Sequence[float],
) -> dict[int, float]:
    """Return the middle of each point of the layers, in pixels from the middle of the picture.

    Args:
        layers: points in their order from left to right.
        above, below: neighbours of each point.
        widths: of the points; 0 is a bend of a line, which wants to be straight most of all.
    """
    rows = _Rows(layers, widths)
    for number in range(_ROUNDS):
        rows.pull(above, down=True)
        rows.pull(below, down=False)
        if number >= _ROUNDS // 2:
            rows.pull(above, below, down=True)
    return rows.middles


def offsets_of(layer: Sequence[int], widths: Sequence[float]) -> list[float]:
    """How far the middle of each point of a layer is at least from that of the first."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        gap = _GAP if widths[left] and widths[right] else _BEND_GAP
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    return offsets


class _Rows:
    """The layers while their points move."""

    def __init__(self, layers: Sequence[Sequence[int]], widths: Sequence[float]) -> None:
        self._widths = widths
        self._layers = [(layer, offsets_of(layer, widths)) for layer in layers if layer]
        widest = max((offsets[-1] for _, offsets in self._layers), default=0.0)
        self._most = widest * _ROOM / 2
        self.middles: dict[int, float] = {}
        for layer, offsets in self._layers:
            self._settle(layer, offsets, [0.0] * len(layer), [1.0] * len(layer))

    def pull(self, *neighbours: Lines, down: bool) -> None:
        """Move every point towards its neighbours, one layer after the other."""
        middles = self.middles
        for layer, offsets in self._layers if down else reversed(self._layers):
            wished = []
            weights = []
            for point in layer:
                near = [other for lines in neighbours for other in lines[point]]
                if near:
                    wished.append(sum(middles[other] for other in near) / len(near))
                    weights.append(1.0 if self._widths[point] else _BEND_WEIGHT)
                else:
                    wished.append(middles[point])
                    weights.append(_LOOSE_WEIGHT)
            self._settle(layer, offsets, wished, weights)

    def _settle(
        self,
        layer: Sequence[int],
        offsets: Sequence[float],
        wished: Sequence[float],
        weights: Sequence[float],
    ) -> None:
        """Put the points of one layer as near to their wishes as order and distances allow."""
        groups: list[tuple[float, float, int]] = []  # mean of wishes, weight, number of points
        for wish, weight, offset in zip(wished, weights, offsets, strict=True):
            mean, total, count = wish - offset, weight, 1
            while groups and groups[-1][0] > mean:
                earlier, heavier, more = groups.pop()
                mean = (earlier * heavier + mean * total) / (heavier + total)
                total += heavier
                count += more
            groups.append((mean, total, count))
        starts = [mean for mean, _, count in groups for _ in range(count)]
        # Kept between the sides: what hangs together by a few lines would else drift away.
        low, high = -self._most, self._most - offsets[-1]
        for point, start, offset in zip(layer, starts, offsets, strict=True):
            self.middles[point] = min(max(start, low), high) + offset
