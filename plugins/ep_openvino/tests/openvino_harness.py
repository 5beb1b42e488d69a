"""What the tests share: graphs from text, an open provider, a stand-in for `openvino.Core`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import parser

from ep_core.discovery.options import parse_options
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model
from ep_openvino.factory import make_factory
from ep_openvino.provider import OpenVinoProvider


def graph_of(text: str, opset: int = 20) -> Graph:
    """A graph in onnx's text format, its name and types included."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    return load_model(parser.parse_model(f"{header} {text}")).graph


def open_provider(**options: Any) -> OpenVinoProvider:
    """The provider of the CPU."""
    factory = make_factory()
    device = next(found for found in factory.devices() if found.id == "CPU")
    provider = factory.create(device, parse_options(factory.info, options))
    assert isinstance(provider, OpenVinoProvider)
    return provider


def whole(graph: Graph) -> Subgraph:
    """All nodes of a graph as one claim."""
    return Subgraph.cut(graph, range(len(graph.nodes)), graph.name)


def compute(provider: OpenVinoProvider, graph: Graph, *inputs: Any) -> list[Any]:
    """Compile a graph and run it once; inputs are in the order in which nodes read them."""
    subgraph = whole(graph)
    outputs: list[Any] = [None] * len(subgraph.outputs)
    part = provider.compile(subgraph)
    try:
        part.run([np.asarray(value) for value in inputs], outputs)
    finally:
        part.close()
    return outputs


def reasons(provider: OpenVinoProvider, graph: Graph) -> list[str]:
    """The reason of each node's no, empty for a yes."""
    supports = provider.get_capability(graph).nodes
    assert all(support.supported == (not support.reason) for support in supports)
    return [support.reason for support in supports]


class StandInCore:
    """Answers as `openvino.Core` does, about devices that this machine doesn't have."""

    def __init__(self, devices: Mapping[str, Mapping[str, Any]]) -> None:
        self._devices = devices
        self.available_devices = [name for name in devices if name not in ("AUTO", "HETERO")]

    def get_property(self, device: str, name: str) -> Any:
        if device not in self._devices:
            raise RuntimeError(f'Device with "{device}" name is not registered')
        properties = self._devices[device]
        if name == "SUPPORTED_PROPERTIES":
            return {key: "RW" if value is None else "RO" for key, value in properties.items()}
        return properties[name]


def random(*shape: int) -> Any:
    """Numbers that are the same each time."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
