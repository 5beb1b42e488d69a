"""From boxes and links to places in a picture: layers, order, positions, columns.

Knows widths and who depends on whom; knows neither operators nor providers. Near-linear in boxes
and links, and deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ep_tools.page.columns import Column, columns_of
from ep_tools.page.layers import layers_of
from ep_tools.page.ordering import Lines, order_layers
from ep_tools.page.positions import offsets_of, positions_of

__all__ = ["BOX_HEIGHT", "Layout", "Link", "lay_out"]

BOX_HEIGHT = 38.0
_LAYER_HEIGHT = 74.0
_COLUMN_GAP = 64.0
_MARGIN = 24.0
_SPANS = (24, 12, 6, 3)
"""Links over more layers than this get no way around the boxes between: that would take room, and
time, in proportion to their length. The first that gives few enough bends counts."""
_BENDS_PER_BOX = 2
_FEW_BENDS = 200
_LANES = 6
_LANE = 7.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Link:
    """A line from box to box; those of one `bundle` share their way as far as it is the same."""

    source: int
    target: int
    bundle: int


@dataclass(frozen=True)
class Layout:
    """Places in pixels, from the top left corner.

    Attributes:
        middles: the middle of each box.
        routes: by link the points that its line goes through, from the bottom of its source to
            the top of its target; None for one that is too long to be drawn all the way.
        width, height: of the whole.
    """

    middles: tuple[Point, ...]
    routes: tuple[tuple[Point, ...] | None, ...]
    width: float
    height: float


def lay_out(widths: Sequence[float], links: Sequence[Link], inputs: int) -> Layout:
    """Lay a graph out from top to bottom.

    Args:
        widths: of the boxes, in pixels; boxes are in topological order.
        links: from lower to higher positions.
        inputs: how many of the first boxes everything starts from.
    """
    net = _Net(widths, links, inputs)
    order = order_layers(net.by_layer, net.above, net.below)
    breadths = [
        offsets_of(layer, net.widths)[-1] + (net.widths[layer[0]] + net.widths[layer[-1]]) / 2
        for layer in order
    ]
    carried = [sum(len(net.below[point]) for point in layer) for layer in order]
    sheet = _Sheet(net, order, columns_of(breadths, carried, _LAYER_HEIGHT, _COLUMN_GAP))
    routes = tuple(None if way is None else sheet.route(way) for way in net.ways)
    middles = tuple(sheet.middle(box) for box in range(len(widths)))
    return Layout(middles, routes, sheet.width, sheet.height)


class _Net:
    """Boxes, and the bends of links that pass layers, joined from layer to layer.

    Attributes:
        ways: by link the points that it passes, None for one that is too long.
    """

    def __init__(self, widths: Sequence[float], links: Sequence[Link], inputs: int) -> None:
        ends = [(link.source, link.target) for link in links]
        self.layers = layers_of(len(widths), ends, inputs)
        self.widths = list(widths)
        self._span = self._longest_span(links)
        self._bends: dict[tuple[int, int], int] = {}
        self._joined: set[tuple[int, int]] = set()
        self.ways = [self._way(link) for link in links]
        count = len(self.widths)
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.below: list[list[int]] = [[] for _ in range(count)]
        for way in self.ways:
            for upper, lower in pairwise(way or ()):
                if (upper, lower) not in self._joined:
                    self._joined.add((upper, lower))
                    self.below[upper].append(lower)
                    self.above[lower].append(upper)
        self.by_layer: list[list[int]] = [[] for _ in range(max(self.layers, default=-1) + 1)]
        for point, layer in enumerate(self.layers):
            self.by_layer[layer].append(point)

    def _longest_span(self, links: Sequence[Link]) -> int:
        most = _BENDS_PER_BOX * len(self.widths) + _FEW_BENDS
        reach: dict[int, list[int]] = {}
        for link in links:
            span = self.layers[link.target] - self.layers[link.source]
            reach.setdefault(link.bundle, []).append(span)
        for limit in _SPANS:
            drawn = (max((s for s in spans if s <= limit), default=1) for spans in reach.values())
            if sum(drawn) - len(reach) <= most:
                return limit
        return 1

    def _way(self, link: Link) -> tuple[int, ...] | None:
        first, last = self.layers[link.source], self.layers[link.target]
        if last - first > self._span:
            return None
        bends = (self._bend(link.bundle, layer) for layer in range(first + 1, last))
        return (link.source, *bends, link.target)

    def _bend(self, bundle: int, layer: int) -> int:
        point = self._bends.get((bundle, layer))
        if point is None:
            point = len(self.widths)
            self._bends[bundle, layer] = point
            self.widths.append(0.0)
            self.layers.append(layer)
        return point


class _Sheet:
    """The columns side by side: turns points of the net into places.

    Each column stands for itself: lines that are carried over pull at nothing.
    """

    def __init__(
        self, net: _Net, order: Sequence[Sequence[int]], columns: Sequence[Column]
    ) -> None:
        self._net = net
        self._columns = columns
        self._column_of = [n for n, column in enumerate(columns) for _ in range(column.size)]
        self._across = [0.0] * len(net.widths)
        self._lefts: list[float] = []
        above, below = self._inside(net.above), self._inside(net.below)
        right = _MARGIN
        for column in columns:
            layers = order[column.first : column.end]
            middles = positions_of(layers, above, below, net.widths)
            points = [point for layer in layers for point in layer]
            least = min(middles[point] - net.widths[point] / 2 for point in points)
            self._lefts.append(right)
            for point in points:
                self._across[point] = right + middles[point] - least
            right = max(self._across[point] + net.widths[point] / 2 for point in points)
            right += _COLUMN_GAP
        self.width = max(right - _COLUMN_GAP, 0.0) + _MARGIN
        tallest = max((column.size for column in columns), default=0)
        self._top = _MARGIN + BOX_HEIGHT / 2 + (_LANES * _LANE if len(columns) > 1 else 0.0)
        self.height = 2 * self._top + max(tallest - 1, 0) * _LAYER_HEIGHT

    def _inside(self, lines: Lines) -> Lines:
        """Neighbours in the same column."""
        place = [self._column_of[layer] for layer in self._net.layers]
        return [
            [other for other in others if place[other] == place[point]]
            for point, others in enumerate(lines)
        ]

    def middle(self, point: int) -> Point:
        """The place of a box or a bend."""
        layer = self._net.layers[point]
        column = self._columns[self._column_of[layer]]
        return self._across[point], self._top + (layer - column.first) * _LAYER_HEIGHT

    def route(self, way: Sequence[int]) -> tuple[Point, ...]:
        """The line of a link, from the bottom of its source to the top of its target."""
        x, y = self.middle(way[0])
        points = [(x, y + BOX_HEIGHT / 2)]
        for upper, lower in pairwise(way):
            if self._column_of[self._net.layers[upper]] != self._column_of[self._net.layers[lower]]:
                points += self._over(upper, lower)
            points.append(self.middle(lower))
        x, y = points[-1]
        points[-1] = (x, y - BOX_HEIGHT / 2)
        return tuple(points)

    def _over(self, upper: int, lower: int) -> list[Point]:
        """The way from the end of one column to the top of the next, in one of a few lanes."""
        lane = (upper % _LANES + 1) * _LANE
        x1, y1 = self.middle(upper)
        x2, y2 = self.middle(lower)
        number = self._column_of[self._net.layers[lower]]
        between = self._lefts[number] - _COLUMN_GAP / 2 + lane - _LANES * _LANE / 2
        bottom = y1 + BOX_HEIGHT / 2 + lane
        top = y2 - BOX_HEIGHT / 2 - lane
        return [(x1, bottom), (between, bottom), (between, top), (x2, top)]
