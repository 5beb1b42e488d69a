"""A provider for the tests, written against the contracts alone: onnx's reference evaluator."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
from headless import Browser
from opened_page import BROWSER, made_trace

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
from ep_tools.cli import main


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(BROWSER, tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture
def page(model, browser, tmp_path, capsys):
    """Open the page of a model in the browser; nothing may have gone wrong when the test ends."""

    def show(text_or_path: str, *arguments: str, address: str = "") -> Browser:
        path = model(text_or_path) if "\n" in text_or_path else text_or_path
        target = tmp_path / "page.html"
        assert main(["explain", path, *arguments, "--html", str(target)]) == 0
        browser.open(target, address)
        return browser

    yield show
    assert browser.complaints == []
    assert all(url.startswith(("file:", "data:", "about:")) for url in browser.requests)


@pytest.fixture
def what_if(tmp_path) -> list[str]:
    """Arguments for a device that isn't here, and has Mul and Neg."""
    row = {"domain": "", "since": 1, "until": 25, "predicate": ""}
    row |= {"inputs": [None], "outputs": [None]}
    document = dict.fromkeys(
        ["content_hash", "kit_version", "cases_hash", "results_hash", "level", "date"], "0"
    )
    document |= {"format": 1, "provider": "npu", "distribution": "ep-npu", "version": "1"}
    document |= {"api_from": [1, 0], "api_until": [1, 9], "device_fingerprint": "", "options": {}}
    document |= {
        "waivers": [],
        "overrides": [],
        "rows": [row | {"op_type": name} for name in ("Mul", "Neg")],
        "speed": {
            "flops_per_second": 1e12,
            "bytes_per_second": 1e11,
            "operator_seconds": 1e-5,
            "partition_seconds": 1e-4,
            "copy_seconds": 1e-4,
            "copy_bytes_per_second": 1e10,
        },
    }
    (tmp_path / "npu.json").write_text(json.dumps(document))
    return ["--providers", "reference", "--level", "0", "--what-if", str(tmp_path / "npu.json")]


@pytest.fixture
def traced(model, tmp_path, capsys):
    """The arguments that join a trace to the placement of a model."""

    def write(path: str, *arguments: str) -> list[str]:
        capsys.readouterr()
        assert main(["explain", path, *arguments, "--json"]) == 0
        events = made_trace(json.loads(capsys.readouterr().out))
        (tmp_path / "trace.json").write_text(json.dumps(events))
        return [*arguments, "--profile", str(tmp_path / "trace.json")]

    return write
