from __future__ import annotations

import json
from types import SimpleNamespace

import onnx
import onnx.parser
import pytest

from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo
from ep_tools.check_timing import Measured
from ep_tools.cli import main

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[3] x) => (float[3] y) { a = Abs (x)  b = Mul (a, x)  y = Abs (b) }
"""
PRODUCTS = """
    <ir_version: 9, opset_import: ["" : 20]>
    products (float[3] x) => (float[3] y) { a = Mul (x, x)  y = Mul (a, x) }
"""


@pytest.fixture
def cpu(providers):
    """A CPU provider to fall to: the reference under that name."""
    base = type(providers.factory("reference"))
    info = ProviderInfo(name="cpu", version="1.0", api_version=API_VERSION)

    def devices(self):
        return [DeviceInfo("cpu", "0", "cpu")]

    factory = type("CpuFactory", (base,), {"info": info, "devices": devices})()

    @hookimpl
    def ep_provider_factory():
        return factory

    providers.register(SimpleNamespace(ep_provider_factory=ep_provider_factory), name="cpu")
    yield factory
    providers.unregister("cpu")


def check(capsys, code: int, *arguments: str):
    assert main(["check", *arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_all_nodes_on_one_provider(model, capsys):
    document = check(capsys, 0, model(CHAIN), "--providers", "reference")
    assert document["runs"] is True
    assert document["ir_version"] == 9
    assert document["opsets"] == {"ai.onnx": 20}
    assert document["verdict"] == ("All 3 nodes run on reference, in one partition without copies.")
    assert document["not_run"] == []


@pytest.mark.usefixtures("cpu")
def test_nodes_that_fall_to_the_cpu(model, capsys):
    document = check(capsys, 1, model(CHAIN), "--providers", "skewed")
    assert document["verdict"] == (
        "2 of 3 nodes fall to cpu: Abs_0 (Abs) and Abs_2 (Abs). "
        "The model runs in 3 partitions without copies."
    )
    assert document["not_run"] == [
        {
            "provider": "skewed",
            "reason": "operator Abs has no kernel",
            "nodes": ["Abs_0", "Abs_2"],
        }
    ]
    assert (document["partitions"], document["copies"]) == (3, 0)


@pytest.mark.usefixtures("cpu")
def test_a_provider_that_is_named_may_take_what_is_left(model, capsys):
    document = check(capsys, 0, model(CHAIN), "--providers", "skewed,cpu")
    assert document["verdict"] == (
        "Of 3 nodes cpu runs 2 and skewed runs 1, in 3 partitions without copies."
    )
    assert [item["provider"] for item in document["not_run"]] == ["skewed"]


@pytest.mark.usefixtures("cpu")
def test_no_node_where_it_should_be(model, capsys):
    text = PRODUCTS.replace("Mul (x, x)", "Abs (x)").replace("Mul (a, x)", "Abs (a)")
    document = check(capsys, 1, model(text), "--providers", "skewed", "--level", "0")
    assert document["verdict"] == (
        "None of the 2 nodes runs on a provider that was named: all fall to cpu."
    )


def test_nodes_that_nobody_runs(model, capsys):
    document = check(capsys, 1, model(CHAIN), "--providers", "skewed")
    assert document["runs"] is False
    assert document["verdict"].startswith("The model can't run: 2 node(s)")
    assert "operator Abs has no kernel" in document["verdict"]
    assert document["partitions"] is None


def test_uncertified_nodes_are_told_with_the_way_out(model, capsys, monkeypatch):
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "enforce")
    document = check(capsys, 1, model(CHAIN), "--providers", "reference")
    assert "reference: uncertified" in document["verdict"]


@pytest.mark.parametrize(("policy", "code"), [("enforce", 1), ("warn", 0), ("off", 0)])
def test_the_policy_can_be_given(model, capsys, monkeypatch, policy, code):
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "off" if code else "enforce")
    wish = ["--providers", "reference", "--certificate-policy", policy]
    document = check(capsys, code, model(CHAIN), *wish)
    assert document["runs"] is (code == 0)


# ---------------------------------------------------------------- predictions


@pytest.fixture
def device(tmp_path):
    """Write a certificate of a device that has Mul and MatMul, and return its path."""

    def write(**speed: float) -> str:
        row = {"domain": "", "since": 1, "until": 25, "predicate": ""}
        row |= {"inputs": [None], "outputs": [None]}
        document = dict.fromkeys(
            ["content_hash", "kit_version", "cases_hash", "results_hash", "level", "date"], "0"
        )
        document |= {"format": 1, "provider": "npu", "distribution": "ep-npu", "version": "1"}
        document |= {"api_from": [1, 0], "api_until": [1, 9], "device_fingerprint": ""}
        document |= {"options": {}, "waivers": [], "overrides": []}
        document["rows"] = [row | {"op_type": name} for name in ("Mul", "MatMul")]
        declared = {"flops_per_second": 1e13, "bytes_per_second": 1e12}
        declared |= {"operator_seconds": 1e-6, "partition_seconds": 1e-6, "copy_seconds": 1e-6}
        document["speed"] = declared | speed
        path = tmp_path / "npu.json"
        path.write_text(json.dumps(document))
        return str(path)

    return write


@pytest.mark.usefixtures("cpu")
def test_why_the_cpu_alone_will_be_faster(model, device, capsys):
    wish = ["--providers", "npu,cpu", "--what-if", device(copy_seconds=2e-3), "--strategy", "cost"]
    document = check(capsys, 0, model(CHAIN), *wish, "--pin", "op:Mul=npu")
    predicted = document["predicted"]
    # x goes there as well as a, and b comes back.
    assert predicted["copy_seconds"] == pytest.approx(6e-3, rel=1e-3)
    assert predicted["seconds_on_cpu_alone"] < 1e-4
    assert predicted["text"].startswith("The CPU alone will be faster, by prediction ")
    assert predicted["text"].endswith(
        ", because 3 copies (36 B) take 6.00 ms. The speed of the CPU is assumed."
    )


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("speed", "reason"),
    [
        ({"partition_seconds": 3e-3}, "because starting 3 partitions takes 3.01 ms."),
        ({"operator_seconds": 4e-3}, "because the nodes themselves take 4.00 ms on npu and 2.0"),
    ],
)
def test_other_reasons_for_the_cpu_alone(model, device, capsys, speed, reason):
    wish = ["--providers", "npu,cpu", "--what-if", device(**speed), "--strategy", "cost"]
    document = check(capsys, 0, model(CHAIN), *wish, "--pin", "op:Mul=npu")
    assert reason in document["predicted"]["text"]


@pytest.mark.usefixtures("cpu")
def test_a_device_that_is_worth_it(model, device, capsys):
    text = """
        <ir_version: 9, opset_import: ["" : 20]>
        product (float[n, n] x) => (float[n, n] y) { y = MatMul (x, x) }
    """
    wish = ["--providers", "npu,cpu", "--what-if", device(), "--strategy", "cost"]
    document = check(capsys, 0, model(text), *wish, "--dim", "n=2000")
    predicted = document["predicted"]
    # 2 n^3 operations: 1.6 ms there and 160 ms on a CPU of 1e11; twice 16 MB are copied at 1e10.
    assert predicted["seconds"] == pytest.approx(1.6e-3 + 3.2e-3, rel=0.01)
    assert predicted["seconds_on_cpu_alone"] == pytest.approx(160e-3, rel=0.01)
    assert predicted["text"].startswith("It will be 33 times as fast as the CPU alone")


@pytest.mark.usefixtures("cpu")
def test_the_cpu_is_not_compared_with_itself(model, capsys):
    document = check(capsys, 0, model(CHAIN), "--providers", "cpu", "--strategy", "cost")
    assert document["predicted"]["seconds_on_cpu_alone"] is None
    assert "on the CPU alone" in document["predicted"]["text"]


def test_there_may_be_no_cpu_to_compare_with(model, capsys):
    document = check(capsys, 0, model(CHAIN), "--providers", "reference", "--strategy", "cost")
    assert "the CPU alone can't be compared with" in document["predicted"]["text"]


def test_a_model_that_is_too_new(model, tmp_path, capsys):
    path = model(CHAIN)
    proto = onnx.load(path)
    proto.ir_version = onnx.IR_VERSION + 1
    onnx.save(proto, path)
    assert main(["check", path, "--providers", "reference"]) == 1
    assert f"IR version {onnx.IR_VERSION + 1}" in capsys.readouterr().err


@pytest.mark.usefixtures("cpu")
def test_lines(model, capsys):
    assert main(["check", model(CHAIN), "--providers", "skewed"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "format     IR version 9, opset ai.onnx 20"
    assert "not on     skewed: operator Abs has no kernel" in lines
    assert lines[-2].startswith("2 of 3 nodes fall to cpu")
    assert lines[-1].startswith("How long a run takes isn't predicted: not every provider")


@pytest.mark.usefixtures("cpu")
def test_measuring_runs_both_sides(model, capsys, monkeypatch):
    monkeypatch.setattr("ep_tools.check_timing._SECONDS", 0.2)
    document = check(capsys, 0, model(PRODUCTS), "--providers", "skewed", "--measure")
    measured = document["measured"]
    assert measured["seconds"] > 0
    assert measured["seconds_on_cpu_alone"] > 0
    assert "the CPU alone" in measured["text"] or "The CPU alone" in measured["text"]
    document = check(capsys, 0, model(PRODUCTS), "--providers", "cpu", "--measure")
    assert document["measured"]["seconds_on_cpu_alone"] is None


OPEN = """
    <ir_version: 9, opset_import: ["" : 20]>
    open (float[batch, 2, n] x) => (float[batch, 2, n] y) { a = Mul (x, x)  y = Abs (a) }
"""


@pytest.fixture
def open_model(model):
    """A model with a named dimension and one without a name."""
    path = model(OPEN)
    proto = onnx.load(path)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[2].Clear()
    onnx.save(proto, path)
    return path


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "lengths", [["--dim", "batch=3", "--dim", "x.2=5"], ["--shape", "x=3,2,5"]], ids=str
)
def test_lengths_count_for_the_placement_and_for_measuring(
    open_model, capsys, monkeypatch, lengths
):
    monkeypatch.setattr("ep_tools.check_timing._SECONDS", 0.1)
    wish = ["--providers", "skewed", "--strategy", "cost", *lengths]
    document = check(capsys, 1, open_model, *wish, "--measure")
    assert document["measured"]["seconds"] > 0
    assert document["notes"] == []
    assert document["predicted"] == check(capsys, 1, open_model, *wish)["predicted"]
    # 30 floats on each side of both nodes, where 128 are assumed.
    other = check(capsys, 1, open_model, *wish[:4])
    assert document["predicted"]["seconds"] < other["predicted"]["seconds"]


@pytest.mark.usefixtures("cpu")
def test_lengths_that_are_fed_and_not_assumed_are_told(open_model, capsys, monkeypatch):
    monkeypatch.setattr("ep_tools.check_timing._SECONDS", 0.1)
    wish = ["--providers", "skewed", "--strategy", "cost", "--measure"]
    document = check(capsys, 1, open_model, *wish)
    (note,) = document["notes"]
    assert "x.2 is 64, not 1" in note
    assert note.endswith("--dim x.2=1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "x.1=2"], "No input has an open dimension 'x.1'"),
        (["--shape", "z=2"], "the model has no input 'z'"),
        (["--shape", "x=1,3,5"], "--shape x contradicts the model"),
        (["--shape", "x=1,2,5", "--dim", "batch=2"], "contradicts another length of 'batch'"),
    ],
)
def test_lengths_that_cannot_be(open_model, capsys, arguments, message):
    assert main(["check", open_model, "--providers", "reference", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_what_is_only_supposed_cannot_be_measured(model, capsys):
    assert main(["check", model(CHAIN), "--what-if", "x.json", "--measure"]) == 1
    assert "--measure" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (Measured(3e-3, 1e-3, 2.5, 3.5), "The CPU alone is faster: 1.00 ms against 3.00 ms, 3 "),
        (Measured(1e-3, 3e-3, 0.3, 0.4), "It is 3 times as fast as the CPU alone"),
        (Measured(1e-3, 1.1e-3, 0.8, 1.2), "no faster and no slower"),
        (Measured(1e-3), "the CPU alone is what was asked for"),
    ],
)
def test_words_for_times(measured, words):
    assert words in measured.text
