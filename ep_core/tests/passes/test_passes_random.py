"""Random small graphs: whatever the passes do to them, the results keep every bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from pass_equivalence import apply, assert_same_bits, evaluate, run
from random_models import models

from ep_core.loading.load import load_model
from ep_core.passes import PASSES, GraphOptimizationLevel, optimize

FEEDS = {
    "x0": np.array([[0.0, -0.0, np.nan], [np.inf, -2.5, 1e-40]], np.float32),
    "x1": np.array([-128, 127, 1], np.int8),
    "x2": np.array(-0.0, np.float16),
}


@pytest.mark.parametrize(
    "level",
    [GraphOptimizationLevel.ORT_ENABLE_BASIC, GraphOptimizationLevel.ORT_ENABLE_ALL],
    ids=["basic", "all"],
)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(model=models())
def test_optimized_graphs_give_the_same_bits(level, model):
    graph = load_model(model).graph
    optimized = optimize(graph, level, evaluate=evaluate)
    assert optimized.input_names == graph.input_names
    assert optimized.output_names == graph.output_names
    assert optimize(optimized, level, evaluate=evaluate) is optimized
    for flag in (True, False):
        assert_same_bits(graph, optimized, {**FEEDS, "flag": np.array(flag)})


def test_the_generator_reaches_every_basic_pass():
    """The property above is worth something only if the passes find work in such graphs."""
    idle = {p.name for p in PASSES if p.level == GraphOptimizationLevel.ORT_ENABLE_BASIC}

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(model=models())
    def look(model):
        graph = load_model(model).graph
        for name in sorted(idle):
            if apply(name, graph) is not graph:
                idle.discard(name)

    look()
    assert not idle


def test_the_oracle_itself_distinguishes_signed_zeros():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) '
        "<float[1] z = {0}> { y = Add(x, z) }"
    )
    (result,) = run(load_model(model).graph, {"x": np.float32([-0.0])})
    assert not np.signbit(result[0])
