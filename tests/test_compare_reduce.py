"""`ep compare --reduce` with the compliance kit: an error planted in one operator is cut free."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest

from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.discovery.registry import registry
from ep_core.hookspecs import hookimpl
from ep_core.types import DataType, DeviceInfo
from ep_sdk import KernelProvider
from ep_sdk.kernels import KernelTable
from ep_tools.cli import main

TABLE = KernelTable({"": 20})
FLOATS = {"T": {DataType.FLOAT}}
MODEL = """
    <ir_version: 9, opset_import: ["" : 20]>
    net (float[N,4] x, float[4,4] w) => (float[N,4] y) {
        a = Relu (x)  b = MatMul (a, w)  c = Tanh (b)  d = Add (c, c)  e = MatMul (d, w)
        y = Abs (e)
    }
"""


@TABLE.kernel("MatMul", types=FLOATS)
def wrong_product(node):
    return lambda a, b: np.matmul(a, b) + np.float32(0.25)


@TABLE.kernel("Tanh", types=FLOATS)
def make_tanh(node):
    return np.tanh


class ToyProvider(KernelProvider):
    table = TABLE


class ToyFactory:
    info = ProviderInfo("toy", "1", API_VERSION)

    @hookimpl
    def ep_provider_factory(self):
        return self

    def devices(self):
        return [DeviceInfo("toy", "0", "cpu")]

    def why_unavailable(self):
        return None

    def create(self, device, options):
        return ToyProvider(self.info, device, options)


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "off")
    factory = ToyFactory()
    plugin = SimpleNamespace(ep_provider_factory=factory.ep_provider_factory)
    registry().register(plugin, name="toy")
    yield
    registry().unregister("toy")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return str(path)


def compare(capsys, code: int, *arguments: str):
    assert main(["compare", *arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_the_planted_error_is_cut_free(model, tmp_path, capsys):
    small = tmp_path / "small.onnx"
    arguments = ["toy,cpu", "cpu", "--dim", "N=3", "--input", "w=random:1"]
    document = compare(capsys, 1, model, *arguments, "--reduce", str(small))
    reduced = document["reduced"]
    assert document["layers"]["first"]["operator"] == "MatMul"
    assert (reduced["nodes"], reduced["nodes_before"]) == (1, 6)
    assert reduced["differences"][0]["max_abs"] == pytest.approx(0.25)
    proto = onnx.load(small)
    onnx.checker.check_model(proto, full_check=True)
    assert [node.op_type for node in proto.graph.node] == ["MatMul"]
    # Lengths are cut to 1 as well.
    dims = [[d.dim_value for d in info.type.tensor_type.shape.dim] for info in proto.graph.input]
    assert dims == [[1, 1], [1, 1]]
    # What is saved shows the difference when it is run again.
    feeds = [word for feed in reduced["feeds"] for word in ("--input", feed)]
    again = compare(capsys, 1, str(small), "toy,cpu", "cpu", *feeds)
    assert again["outputs"][0]["max_abs"] == pytest.approx(0.25)
    assert main(["compare", model, *arguments, "--reduce", str(small)]) == 1
    assert f"reduced from 6 to 1 node: {small}" in capsys.readouterr().out


def test_nothing_to_reduce(model, tmp_path, capsys):
    small = tmp_path / "small.onnx"
    document = compare(capsys, 0, model, "cpu", "level:0", "--reduce", str(small))
    assert document["reduced"] is None
    assert not small.exists()


@pytest.mark.parametrize("out", ["small.txt", "missing/small.onnx"])
def test_a_place_that_will_not_do(model, tmp_path, capsys, out):
    assert main(["compare", model, "toy,cpu", "cpu", "--reduce", str(tmp_path / out)]) == 1
    assert "ep: error:" in capsys.readouterr().err
