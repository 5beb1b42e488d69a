"""What isn't measured: loops that may not end with made-up inputs, and values too large for it."""

from __future__ import annotations

import onnx
import pytest

from ep_core.errors import NotSupportedError
from ep_core.loading.load import load_model
from ep_core.placement.roofline import Sizes
from ep_core.tuning import bench, bounds
from ep_core.tuning.bench import quickest
from ep_core.tuning.bounds import check_bounds

STEP = "{ out = Add(h, h) again = Less(out, h) }"


def loop(trips, before=""):
    body = f"b (int64 i, bool more, int64 h) => (bool again, int64 out) {STEP}"
    return f"{before} y = Loop({trips}, c, n) <body = {body}>"


def inside(text):
    """In a branch of an If."""
    text = text.replace(" y =", " r =")
    return (
        f"y = If(c) <then_branch = t () => (int64 r) {{ {text} }}, "
        "else_branch = e () => (int64 o) { o = Neg(n) }>"
    )


def check(body, inputs="int64 n, bool c", outputs="int64 y"):
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    graph = load_model(onnx.parser.parse_model(text)).graph
    check_bounds(graph, range(len(graph.nodes)), Sizes(graph, {}))


FEW, MANY = (f"k = Constant<value_int={count}>()" for count in (10, 10**9))


@pytest.mark.parametrize(
    "body",
    [
        loop(""),
        loop("k", MANY),
        loop("k", "k = Abs(n)"),
        inside(loop("")),
        inside(loop("k", MANY)),
        inside(loop("n")),
    ],
)
def test_a_loop_that_may_be_endless_isnt_run(body):
    with pytest.raises(NotSupportedError, match="loop"):
        check(body)


@pytest.mark.parametrize("body", [loop("n"), loop("k", FEW), inside(loop("k", FEW))])
def test_a_loop_of_few_trips_is(body):
    check(body)


def test_values_count_while_they_live(monkeypatch):
    """Four bytes an element: two of 100 at one time, never three."""
    monkeypatch.setattr(bounds, "_MOST_BYTES", 800)
    kinds = {"inputs": "float[100] x", "outputs": "float[1] y"}
    chain = "a = Abs(x) b = Neg(a) %s y = ReduceSum(%s)"
    with pytest.raises(NotSupportedError, match="800 bytes"):
        check(chain % ("d = Exp(b)", "d"), **kinds)  # x is held all the time
    check(chain % ("", "b"), **{**kinds, "inputs": "float[1] x"})
    monkeypatch.setattr(bounds, "_MOST_BYTES", 1200)
    check(chain % ("d = Exp(b)", "d"), **kinds)


@pytest.mark.parametrize(
    ("seconds", "runs"), [(1e-5, bench._MOST + 1), (0.01, 6), (0.3, 5), (0.7, 3), (100.0, 1)]
)
def test_what_takes_long_is_run_less_often(seconds, runs):
    made = []

    def once():
        made.append(seconds)
        return seconds

    assert quickest(once) == seconds
    assert len(made) == runs
