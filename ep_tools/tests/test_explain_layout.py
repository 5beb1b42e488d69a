"""The layout of the page's graph: what holds of every layout, and what a good one looks like."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_tools.page.columns import columns_of
from ep_tools.page.layers import layers_of
from ep_tools.page.layout import BOX_HEIGHT, Link, lay_out
from ep_tools.page.ordering import order_layers

WIDTH = 100.0


def links_of(ends) -> list[Link]:
    return [Link(source, target, source) for source, target in ends]


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 60))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = draw(st.lists(pairs, max_size=2 * count))
    ends = sorted({(min(a, b), max(a, b)) for a, b in drawn if a != b})
    widths = draw(st.lists(st.floats(40, 200), min_size=count, max_size=count))
    return widths, links_of(ends), draw(st.integers(0, min(3, count)))


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_boxes_stand_apart_and_inside(graph):
    widths, links, inputs = graph
    layout = lay_out(widths, links, inputs)
    rows = defaultdict(list)
    for (x, y), width in zip(layout.middles, widths, strict=True):
        rows[y].append((x - width / 2, x + width / 2))
        assert x - width / 2 >= -0.01
        assert x + width / 2 <= layout.width + 0.01
        assert y - BOX_HEIGHT / 2 >= 0
        assert y + BOX_HEIGHT / 2 <= layout.height
    for row in rows.values():
        row.sort()
        assert all(left[1] < right[0] for left, right in pairwise(row))
    heights = sorted(rows)
    assert all(b - a > BOX_HEIGHT for a, b in pairwise(heights))


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_links_go_down_and_lines_join_their_boxes(graph):
    widths, links, inputs = graph
    layers = layers_of(len(widths), [(link.source, link.target) for link in links], inputs)
    assert set(layers) == set(range(max(layers) + 1))
    layout = lay_out(widths, links, inputs)
    for link, route in zip(links, layout.routes, strict=True):
        assert layers[link.source] < layers[link.target]
        if route is not None:
            (x1, y1), (x2, y2) = layout.middles[link.source], layout.middles[link.target]
            assert route[0] == (x1, y1 + BOX_HEIGHT / 2)
            assert route[-1] == (x2, y2 - BOX_HEIGHT / 2)


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_the_same_graph_is_laid_out_the_same(graph):
    assert lay_out(*graph) == lay_out(*graph)


def test_layers_are_longest_paths():
    # 0 -> 1 -> 2 -> 4, 0 -> 3 -> 4: the shorter way ends on the same layer.
    assert layers_of(5, [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)], 1) == [0, 1, 2, 1, 3]


def test_an_input_stands_above_its_first_user():
    # Boxes 0 and 1 are inputs; the second is wanted at the end only.
    assert layers_of(5, [(0, 2), (2, 3), (3, 4), (1, 4)], 2) == [0, 2, 1, 2, 3]


def test_what_no_input_reaches_stands_above_its_first_user():
    # 1 -> 2 is computed from nothing, and wanted by 5.
    ends = [(0, 3), (3, 4), (4, 5), (1, 2), (2, 5)]
    assert layers_of(6, ends, 1) == [0, 1, 2, 1, 2, 3]


def test_a_layer_holds_so_many_boxes_only():
    count = 1000
    ends = [(0, box) for box in range(1, count + 1)]
    layers = layers_of(count + 1, ends, 1)
    most = max(layers.count(layer) for layer in set(layers))
    assert most == 31, "the square root of the number of boxes"


def test_lines_that_need_not_cross_do_not():
    # Two boxes below two, drawn the wrong way round: 0-3 and 1-2.
    order = order_layers([[0, 1], [2, 3]], [[], [], [1], [0]], [[3], [2], [], []])
    upper, lower = order
    assert (upper.index(0) < upper.index(1)) == (lower.index(3) < lower.index(2))


def test_a_chain_is_straight():
    layout = lay_out([WIDTH] * 10, links_of((i, i + 1) for i in range(9)), 1)
    assert len({x for x, _ in layout.middles}) == 1
    assert [y for _, y in layout.middles] == sorted(y for _, y in layout.middles)


def test_a_line_past_other_boxes_goes_around_them():
    """A residual connection: from box 0 past the chain to box 5."""
    ends = [*((i, i + 1) for i in range(5)), (0, 5)]
    layout = lay_out([WIDTH] * 6, links_of(ends), 1)
    route = layout.routes[-1]
    assert len(route) == 6
    for (x, _), (middle, _) in zip(route[1:-1], layout.middles[1:5], strict=True):
        assert abs(x - middle) > WIDTH / 2


def test_a_tall_graph_is_folded_into_columns():
    count = 1000
    layout = lay_out([WIDTH] * count, links_of((i, i + 1) for i in range(count - 1)), 1)
    assert 1 <= layout.width / layout.height <= 2.2
    jumps = [r for r in layout.routes if len(r) > 2]
    assert jumps
    for route in jumps:
        assert len(route) == 6, "down, across, up, across, down"
        (x1, _), (x2, y2), (x3, y3) = route[1:4]
        assert x1 < x2 == x3
        assert y2 > y3


def test_columns_end_where_few_lines_are_carried_over():
    carried = [3] * 100
    carried[45] = 1
    columns = columns_of([100.0] * 100, carried, 70.0, 60.0)
    assert any(column.end == 46 for column in columns)
    assert columns[0].first == 0
    assert columns[-1].end == 100


def test_an_empty_graph_has_a_layout():
    assert lay_out([], [], 0).middles == ()


def random_graph(count: int) -> tuple[list[float], list[Link], int]:
    chance = random.Random(7)
    ends = {
        (max(0, box - 1 - int(chance.expovariate(0.2))), box)
        for box in range(1, count)
        for _ in range(chance.choice([1, 1, 2, 3]))
    }
    return [WIDTH] * count, links_of(sorted(ends)), 1


def wide_graph(count: int) -> tuple[list[float], list[Link], int]:
    ends = [(0, box) for box in range(1, count - 1)]
    ends += [(box, count - 1) for box in range(1, count - 1)]
    return [WIDTH] * count, links_of(ends), 1


def far_graph(count: int) -> tuple[list[float], list[Link], int]:
    """A chain, every box of which reads the input too."""
    ends = [(i, i + 1) for i in range(count - 1)] + [(0, box) for box in range(2, count)]
    return [WIDTH] * count, links_of(ends), 1


GRAPHS = [random_graph, wide_graph, far_graph]


def lines_run(count: int, make) -> int:
    """How many lines of Python a layout runs; a comprehension counts once per round."""
    graph = make(count)
    lines = 0

    def note(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        lay_out(*graph)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("make", GRAPHS)
def test_work_grows_with_the_boxes_and_little_more(make):
    assert lines_run(1000, make) < 8 * lines_run(250, make), "16 times, if it were by the square"


@pytest.mark.parametrize("make", GRAPHS)
def test_5000_boxes_take_few_bends(make):
    layout = lay_out(*make(5000))
    assert sum(len(route) for route in layout.routes if route) < 12 * 5000
