"""What the tests share: graphs from text, an open provider that builds and doesn't run."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from onnx import parser

from ep_core.discovery.options import parse_options
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model
from ep_tensorrt.factory import make_factory
from ep_tensorrt.provider import TensorRtProvider

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs a TensorRT library that builds without a GPU",
)

CHAIN = "g (float[N,4] x) => (float[N,4] y) { a = Relu (x) b = Sigmoid (a) y = Tanh (b) }"
STATIC = "g (float[2,4] x) => (float[2,4] y) { a = Relu (x) b = Sigmoid (a) y = Tanh (b) }"
RANGES = {
    "trt_profile_min_shapes": "x:1x4",
    "trt_profile_opt_shapes": "x:2x4",
    "trt_profile_max_shapes": "x:8x4",
}


def graph_of(text: str, opset: int = 20) -> Graph:
    """A graph in onnx's text format, its name and types included."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}]>'
    return load_model(parser.parse_model(f"{header} {text}")).graph


def whole(graph: Graph) -> Subgraph:
    """All nodes of a graph as one claim."""
    return Subgraph.cut(graph, range(len(graph.nodes)), graph.name)


def open_provider(**options: Any) -> TensorRtProvider:
    """The provider of the target that the environment names."""
    factory = make_factory()
    (device,) = factory.devices()
    provider = factory.create(device, parse_options(factory.info, options))
    assert isinstance(provider, TensorRtProvider)
    return provider
