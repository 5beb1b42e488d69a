"""A provider for the tests, written against the contracts alone: onnx's reference evaluator."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
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
        options={"level": OptionSpec(0, "a whole number", int)},
    )

    def devices(self):
        device = DeviceInfo("reference", "0", "cpu", "ONNX", "evaluator", memory_bytes=2**30)
        return [device, DeviceInfo("reference", "1", "npu", name="second")]

    def why_unavailable(self):
        return None

    def create(self, device, options):
        return ReferenceProvider(self.info, device, options)


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
    """Make three providers known and no installed one: one works, one is absent, one is broken."""
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    known = registry()
    known.recheck()
    known.register(plugin(ReferenceFactory()), name="reference")
    known.register(plugin(AbsentFactory()), name="absent")
    known.register(plugin(None), name="broken")
    yield known
    for name in ["reference", "absent", "broken"]:
        known.unregister(name)
    monkeypatch.undo()
    known.recheck()
