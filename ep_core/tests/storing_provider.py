"""A provider whose artifacts are ONNX models, and the package that it pretends to come from."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from reference_provider import ReferenceFactory, ReferencePartition, ReferenceProvider

from ep_core.artifacts import binding
from ep_core.contracts import OptionSpec, ProviderFeatures
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DeviceInfo

WEIGHT = np.float32([1, 2, 3, 4])
X = np.float32([1, -1, 2, -2])
TEXT = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'
    " { a = Add(x, w) b = LeakyRelu<alpha = 0.5>(a) y = Mul(b, x) }"
)
BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, bool c) => (float[4] y) {
    z = Add(x, w)
    y = If (c) <
        then_branch = t () => (float[4] p) { p = Mul(z, w) },
        else_branch = e () => (float[4] q) { q = Neg(z) }
    >
}"""


def model_of(text=TEXT, weight=WEIGHT):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def subgraph_of(text=TEXT, weight=WEIGHT):
    graph = load_model(model_of(text, weight)).graph
    return Subgraph.cut(graph, range(len(graph.nodes)), "part")


def expected():
    """What the model gives for X."""
    a = X + WEIGHT
    return np.where(a < 0, a * np.float32(0.5), a) * X


class StoringProvider(ReferenceProvider):
    """What is imported is computed from the artifact alone."""

    def __init__(self, factory, device, options):
        super().__init__(factory, device, options)
        self.factory = factory

    def compile(self, subgraph):
        self.factory.calls.append("compile")
        return super().compile(subgraph)

    def export_partition(self, partition):
        assert partition in self.partitions
        self.factory.calls.append("export")
        return self.factory.exporting(partition)

    def import_partition(self, subgraph, artifact):
        self.factory.calls.append("import")
        return self.factory.importing(self, subgraph, artifact)


def export(partition):
    return partition.subgraph.to_model().SerializeToString()


def load(provider, subgraph, artifact):
    part = ReferencePartition(provider, subgraph)
    part.evaluator = ReferenceEvaluator(onnx.load_from_string(artifact))
    provider.partitions.append(part)
    return part


class StoringFactory(ReferenceFactory):
    """Attributes say who the provider is; `calls` is what was asked of it since it was cleared."""

    def __init__(self, name="cpu", **settings):
        super().__init__(name, **settings)
        self.features = ProviderFeatures(artifacts=True)
        self.fingerprint = "chip-1/driver-7"
        self.device_id = "0"
        self.calls: list[str] = []
        self.exporting = export
        self.importing = load
        self.options(
            precision=OptionSpec("full", "how exact"),
            tags=OptionSpec(frozenset(), "anything"),
            log=OptionSpec("", "where to write", artifacts=False),
        )

    def options(self, **specs):
        self.info = replace(self.info, options=specs)

    def devices(self):
        name = self.info.name
        return [DeviceInfo(name, self.device_id, "npu", fingerprint=self.fingerprint)]

    def create(self, device, options):
        return StoringProvider(self, device, options)


class Package:
    """An installed distribution, as far as its build is concerned."""

    def __init__(self, folder):
        self.folder = folder
        self.version = "1.0"
        self.code = "answer = 42"
        self.requires = ""
        self.files = "toy.py,,\n"
        self.is_installed = True

    @property
    def distribution(self):
        binding._BUILDS.clear()  # As in another process.
        if not self.is_installed:
            return None
        info = self.folder / "ep_toy-1.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        head = f"Metadata-Version: 2.1\nName: ep-toy\nVersion: {self.version}\n"
        (info / "METADATA").write_text(head + self.requires)
        (info / "RECORD").write_text(self.files)
        (self.folder / "toy.py").write_text(self.code)
        return importlib.metadata.PathDistribution(info)
