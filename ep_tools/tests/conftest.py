"""A provider for the tests, written against the contracts alone: onnx's reference evaluator."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest

from ep_core.contracts import (
    API_VERSION,
    Capability,
    OptionSpec,
    ProviderFeatures,
    ProviderInfo,
    Support,
)
from ep_core.discovery.registry import registry
from ep_core.hookspecs import hookimpl
from ep_core.types import HOST_MEMORY, DeviceInfo


class ReferencePartition:
    def __init__(self, subgraph) -> None:
        from onnx.reference import ReferenceEvaluator

        self.subgraph = subgraph
        self.evaluator = ReferenceEvaluator(subgraph.to_model())
        self.accepts_outputs = [False] * len(subgraph.outputs)

    def run(self, inputs, outputs, stream) -> None:
        feeds = dict(zip(self.subgraph.inputs, inputs, strict=True))
        with np.errstate(all="ignore"):
            values = self.evaluator.run(list(self.subgraph.outputs), feeds)
        for index, value in enumerate(values):
            outputs[index] = np.array(value)

    def close(self) -> None:
        pass


class ReferenceProvider:
    features = ProviderFeatures()
    memory = HOST_MEMORY
    allocator = None
    data_transfer = None

    def __init__(self, info, device, options) -> None:
        self.info = info
        self.device = device
        self.options = options

    def create_stream(self):
        return None

    def get_capability(self, graph) -> Capability:
        return Capability(tuple(Support(True) for _ in graph.nodes))

    def compile(self, subgraph) -> ReferencePartition:
        return ReferencePartition(subgraph)

    def close(self) -> None:
        pass


class ReferenceFactory:
    info = ProviderInfo(
        name="reference",
        version="1.0",
        api_version=API_VERSION,
        aliases=("ReferenceExecutionProvider",),
        vendor="ONNX",
        auto=True,
        options={"level": OptionSpec(0, "a whole number", int)},
    )

    def devices(self):
        device = DeviceInfo("reference", "0", "cpu", "ONNX", "evaluator", memory_bytes=2**30)
        return [device, DeviceInfo("reference", "1", "npu", name="second")]

    def why_unavailable(self):
        return None

    def create(self, device, options):
        return ReferenceProvider(self.info, device, options)


class SkewedPartition(ReferencePartition):
    def run(self, inputs, outputs, stream) -> None:
        super().run(inputs, outputs, stream)
        for index, value in enumerate(outputs):
            outputs[index] = value + np.asarray(0.5, value.dtype)


class SkewedProvider(ReferenceProvider):
    def get_capability(self, graph) -> Capability:
        return Capability(
            tuple(
                Support(node.op_type == "Mul", f"operator {node.op_type} has no kernel")
                for node in graph.nodes
            )
        )

    def compile(self, subgraph) -> SkewedPartition:
        return SkewedPartition(subgraph)


class SkewedFactory(ReferenceFactory):
    """Takes products only, and gets each wrong by one half."""

    info = ProviderInfo(name="skewed", version="1.0", api_version=API_VERSION)

    def devices(self):
        return [DeviceInfo("skewed", "0", "npu", name="skewed")]

    def create(self, device, options):
        return SkewedProvider(self.info, device, options)


class AbsentFactory(ReferenceFactory):
    info = ProviderInfo(name="absent", version="1.0", api_version=API_VERSION)

    def devices(self):
        return []

    def why_unavailable(self):
        return "no such chip in this machine"


def plugin(factory):
    @hookimpl
    def ep_provider_factory():
        return factory

    return SimpleNamespace(ep_provider_factory=ep_provider_factory)


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    """Keep what is remembered of probes out of the user's own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def providers(monkeypatch):
    """Make providers known that work, compute wrongly, are absent and broken; no installed one."""
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    known = registry()
    known.recheck()
    known.register(plugin(ReferenceFactory()), name="reference")
    known.register(plugin(SkewedFactory()), name="skewed")
    known.register(plugin(AbsentFactory()), name="absent")
    known.register(plugin(None), name="broken")
    yield known
    for name in ["reference", "skewed", "absent", "broken"]:
        known.unregister(name)
    monkeypatch.undo()
    known.recheck()


@pytest.fixture
def model(tmp_path):
    """Save a model given as text, and return its path."""

    def save(text: str) -> str:
        path = tmp_path / "model.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return str(path)

    return save


class Terminal(io.StringIO):
    """A stream that says it's a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal():
    return Terminal()
