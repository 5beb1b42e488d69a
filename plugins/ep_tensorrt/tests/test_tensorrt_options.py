"""Options: what is parsed, what is refused in words; ranges that follow from them."""

from __future__ import annotations

from typing import Any

import pytest
from tensorrt_harness import CHAIN, RANGES, graph_of, whole

from ep_core.discovery.options import parse_options
from ep_core.errors import OptionError
from ep_tensorrt.factory import make_factory
from ep_tensorrt.options import as_shapes
from ep_tensorrt.profiles import Range, declared, merged, spans


def parsed(**options: Any) -> Any:
    return parse_options(make_factory().info, options)


def test_shapes_come_as_text_and_as_dicts() -> None:
    wanted = (("a:0", (1, 128)), ("b", (8,)))
    assert as_shapes("b:8, a:0:1x128") == wanted
    assert as_shapes({"b": [8], "a:0": (1, 128)}) == wanted
    assert as_shapes(wanted) == wanted
    assert as_shapes("") == ()


@pytest.mark.parametrize("value", ["x", "x:", "x:1x", ":1", "x:-1", {"x": [-1]}, {"x": 3}, 5, (1,)])
def test_other_shapes_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected shapes such as"):
        as_shapes(value)


def test_a_name_stands_once() -> None:
    with pytest.raises(ValueError, match="stands there twice"):
        as_shapes("x:1,x:2")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trt_int8_enable", "quantise the model"),
        ("trt_engine_cache_enable", "cache_dir"),
        ("trt_timing_cache_enable", "cache_dir"),
        ("trt_cuda_graph_enable", "CUDA graphs"),
        ("trt_weight_stripped_engine_enable", "keep their weights"),
    ],
)
def test_what_is_not_offered_says_what_to_do(name: str, words: str) -> None:
    assert parsed(**{name: "0"})[name] is False
    with pytest.raises(OptionError, match=words):
        parsed(**{name: "1"})


def test_a_range_of_an_input_tells_its_named_lengths_everywhere() -> None:
    graph = graph_of(
        "g (float[N,4] x, float[4,N] t) => (float[N,N] y) { a = MatMul (x, t) y = Relu (a) }"
    )
    ranges = declared(whole(graph), parsed(**RANGES))
    assert ranges is not None
    assert ranges["t"] == Range((4, 1), (4, 2), (4, 8))


def test_lengths_that_nobody_tells_give_no_ranges() -> None:
    assert declared(whole(graph_of(CHAIN)), parsed()) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trt_profile_opt_shapes": "x:9x4"}, "min <= opt <= max"),
        ({"trt_profile_opt_shapes": "z:2x4"}, "the same names in all three"),
        ({"trt_profile_max_shapes": "x:8x5"}, "declared shapes of 'x'.*expected 4"),
        (dict.fromkeys(RANGES, "x:1"), "expected 2 lengths"),
    ],
)
def test_contradictions_are_errors(changed: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        declared(whole(graph_of(CHAIN)), parsed(**{**RANGES, **changed}))


def test_observed_shapes_widen_what_there_was() -> None:
    first = merged(None, ["x"], [(2, 4)])
    second = merged(first, ["x"], [(7, 4)])
    assert not spans(first, [(7, 4)])
    assert second["x"] == Range((2, 4), (7, 4), (7, 4))
    assert spans(second, [(3, 4)])
    assert not spans(second, [(3,)])
