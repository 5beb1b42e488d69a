"""Claims and engines, by a TensorRT library that builds without a GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from tensorrt_harness import CHAIN, RANGES, STATIC, graph_of, needs_library, open_provider, whole

from ep_core.errors import CompileError, EpError, OptionError, RunError
from ep_core.graph import Graph
from ep_tensorrt.claims import regions
from ep_tensorrt.provider import TensorRtProvider


@pytest.fixture
def provider() -> Iterator[TensorRtProvider]:
    opened = open_provider(**RANGES)
    yield opened
    opened.close()


def reasons(provider: TensorRtProvider, graph: Graph) -> list[str]:
    supports = provider.get_capability(graph).nodes
    assert all(support.supported == (not support.reason) for support in supports)
    return [support.reason for support in supports]


def test_connected_nodes_are_a_region() -> None:
    graph = graph_of(
        "g (float[4] x) => (float[4] y, float[4] z)"
        " { a = Relu (x) b = Abs (x) y = Neg (a) z = Neg (b) }"
    )
    assert list(regions(graph, [0, 1, 2, 3])) == [[0, 2], [1, 3]]
    assert list(regions(graph, [1, 2])) == [[1], [2]]


@needs_library
def test_what_the_parser_takes_is_claimed(provider: TensorRtProvider) -> None:
    assert reasons(provider, graph_of(CHAIN)) == ["", "", ""]
    # A model of few nodes is taken whole.
    assert reasons(provider, graph_of("g (float[4] x) => (float[4] y) { y = Relu (x) }")) == [""]


@needs_library
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(double[4] x) => (double[4] y) { y = Abs (x) }", "tensor(double)"),
        ("(float[0,4] x) => (float[0,4] y) { y = Abs (x) }", "no elements"),
        ("(float[2,2] x) => (float y) { y = Det (x) }", "TensorRT-RTX can't parse it"),
        ("(float[N,4] x, int64[2] s) => (float[A,B] y) { y = Reshape (x, s) }", "gives a shape"),
        ("(seq(float[4]) x) => (int64 y) { y = SequenceLength (x) }", "tensors only"),
    ],
)
def test_refusals_have_reasons(provider: TensorRtProvider, text: str, reason: str) -> None:
    (found,) = reasons(provider, graph_of(f"g {text}"))
    assert reason in found


@needs_library
def test_few_nodes_in_a_larger_model_are_left_to_others() -> None:
    graph = graph_of(
        "g (float[2,2] x) => (float y) { a = Relu (x) b = Det (a) c = Abs (b) d = Neg (c)"
        " e = Exp (d) y = Abs (e) }"
    )
    few = reasons(open_provider(), graph)
    assert "trt_min_subgraph_size" in few[0]
    assert [bool(reason) for reason in few] == [True, True, False, False, False, False]
    assert not reasons(open_provider(trt_min_subgraph_size=1), graph)[0]


@needs_library
def test_an_engine_is_built_exported_and_taken_back(provider: TensorRtProvider) -> None:
    subgraph = whole(graph_of(CHAIN))
    artifact = provider.export_partition(provider.compile(subgraph))
    again = provider.import_partition(subgraph, artifact)
    assert provider.export_partition(again) == artifact
    with pytest.raises(RunError, match="a GPU that isn't here"):
        again.run([np.ones((2, 4), np.float32)], [None])


@needs_library
def test_an_engine_for_another_target_is_not_taken(
    provider: TensorRtProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    subgraph = whole(graph_of(STATIC))
    artifact = provider.export_partition(provider.compile(subgraph))
    monkeypatch.setenv("EP_TENSORRT_TARGET", "sm_120")
    other = open_provider()
    with pytest.raises(CompileError, match="another device"):
        other.import_partition(subgraph, artifact)
    assert other.export_partition(other.compile(subgraph)) != artifact


@needs_library
def test_lengths_that_nobody_tells_need_a_gpu() -> None:
    with pytest.raises(CompileError, match=r"shapes of x.*trt_profile_min_shapes"):
        open_provider().compile(whole(graph_of(CHAIN)))


@needs_library
def test_what_the_parser_refuses_is_an_error_with_its_words(provider: TensorRtProvider) -> None:
    graph = graph_of("g (float[2,2] x) => (float y) { y = Det (x) }")
    with pytest.raises(CompileError, match="TensorRT-RTX can't parse 'g': "):
        provider.compile(whole(graph))


@needs_library
def test_building_can_be_cancelled(provider: TensorRtProvider) -> None:
    thread = threading.Thread(target=provider.cancel)
    thread.start()
    thread.join()
    with pytest.raises(CompileError, match="it was cancelled"):
        provider.compile(whole(graph_of(STATIC)))


@needs_library
def test_settings_reach_the_builder() -> None:
    provider = open_provider(
        trt_builder_optimization_level=0,
        trt_auxiliary_streams=1,
        trt_max_workspace_size=2**28,
        trt_tf32_enable=True,
    )
    provider.compile(whole(graph_of(STATIC)))
    with pytest.raises(OptionError, match="Convert the model to 16-bit floats"):
        open_provider(trt_fp16_enable=True)


@needs_library
def test_a_closed_provider_builds_nothing() -> None:
    provider = open_provider()
    part = provider.compile(whole(graph_of(STATIC)))
    provider.close()
    with pytest.raises(EpError, match="closed"):
        provider.compile(whole(graph_of(STATIC)))
    with pytest.raises(EpError, match="closed"):
        part.run([np.ones((2, 4), np.float32)], [None])
