"""`ep explain --what-if`: a certificate in place of its device; nothing compiles, nothing runs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import pytest

from ep_core.contracts import Support
from ep_core.discovery.registry import registry
from ep_core.errors import EpError, NotSupportedError
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import HOST_MEMORY, DataType, DeviceSpeed
from ep_tools.cli import main
from ep_tools.explain_placing import place_model
from ep_tools.explain_what_if import stand_in
from ep_tools.requests import SessionRequest

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[2, 8] x) => (float[2, 8] y) {
        a = Abs (x)  b = Mul (a, x)  c = Mul (b, b)  y = Neg (c)
    }
"""


def row(op_type: str, kind: str | None = "tensor(float)", since=1, until=25, predicate="") -> dict:
    types = None if kind is None else [kind]
    return {
        "domain": "",
        "op_type": op_type,
        "since": since,
        "until": until,
        "inputs": [types],
        "outputs": [types],
        "predicate": predicate,
    }


@pytest.fixture
def certificate(tmp_path):
    """Write a certificate, and return its path."""

    def write(*rows: dict, provider: str = "npu", speed: dict | None = None) -> str:
        path = tmp_path / f"{provider}.json"
        document = {
            "format": 1,
            "provider": provider,
            "distribution": f"ep-{provider}",
            "version": "3.1",
            "content_hash": "sha256:0",
            "api_from": [1, 0],
            "api_until": [1, 9],
            "device_fingerprint": "chip 7, driver 5",
            "kit_version": "1",
            "cases_hash": "0",
            "results_hash": "0",
            "level": "full",
            "date": "2030-12-31",
            "options": {},
            "waivers": [],
            "overrides": [],
            "rows": list(rows),
        }
        document |= {} if speed is None else {"speed": speed}
        path.write_text(json.dumps(document))
        return str(path)

    return write


def explain(capsys, *arguments: str) -> dict:
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def where(document: dict) -> dict[str, str]:
    return {node["op_type"]: node["provider"] for node in document["nodes"][""]}


def test_rows_are_claims_and_the_rest_is_refused(model, certificate, capsys):
    document = explain(
        capsys, model(CHAIN), "--providers", "reference", "--what-if", certificate(row("Mul"))
    )
    assert document["providers"] == ["npu", "reference"]
    assert where(document) == {"Abs": "reference", "Mul": "npu", "Neg": "reference"}
    neg = document["nodes"][""][-1]
    assert neg["refusals"] == {"npu": "uncertified: run `ep certify npu` (no row for Neg)"}
    (part,) = [part for part in document["partitions"] if part["provider"] == "npu"]
    assert part["device"] == "absent what-if"
    # a and x go there, c comes back: 2 x 8 floats each.
    assert [(copy["value"], copy["nbytes"]) for copy in document["copies"]] == [
        ("a", 64),
        ("x", 64),
        ("c", 64),
    ]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row("Mul", "tensor(double)")], "no row for Mul with types"),
        ([row("Mul", since=1, until=7)], "no row for Mul version 14"),
    ],
)
def test_types_and_versions_count(rows, reason, model, certificate, capsys):
    document = explain(
        capsys, model(CHAIN), "--providers", "reference", "--what-if", certificate(*rows)
    )
    assert set(where(document).values()) == {"reference"}
    assert reason in document["nodes"][""][1]["refusals"]["npu"]


def test_what_else_held_of_the_cases_is_told(model, certificate, capsys):
    path = certificate(row("Mul", predicate="shapes are static"))
    document = explain(capsys, model(CHAIN), "--providers", "reference", "--what-if", path)
    assert document["nodes"][""][1]["reason"].endswith("certified with: shapes are static")


def test_limits_are_said(model, certificate, capsys):
    path = certificate(row("Mul"))
    assert main(["explain", model(CHAIN), "--providers", "reference", "--what-if", path]) == 0
    shown = capsys.readouterr().out
    assert "npu isn't opened" in shown
    assert "made on chip 7, driver 5 on 2030-12-31 at level full" in shown
    assert "nothing was compiled for any provider, and nothing was run" in shown
    assert "in a memory of its own" in shown


SPEED = {
    "flops_per_second": 1e9,
    "bytes_per_second": 1e9,
    "operator_seconds": 1e-6,
    "partition_seconds": 2e-6,
    "copy_seconds": 3e-6,
    "copy_bytes_per_second": 1e9,
}


def test_times_come_of_the_declared_speed(model, certificate, capsys):
    path = certificate(row("Mul"), speed=SPEED)
    wish = ["--providers", "npu,reference", "--what-if", path, "--level", "0"]
    pins = ["--strategy", "cost", "--pin", "op:Mul=npu"]
    document = explain(capsys, model(CHAIN), *wish, *pins)
    first, second = (node for node in document["nodes"][""] if node["op_type"] == "Mul")
    # 16 floats each: two inputs and an output are 192 bytes; b is read twice all the same.
    assert first["seconds"] == second["seconds"] == pytest.approx(1e-6 + 192e-9)
    (part,) = (part for part in document["partitions"] if part["provider"] == "npu")
    assert part["seconds"] == pytest.approx(2e-6 + 2 * (1e-6 + 192e-9))
    copying = [copy["seconds"] for copy in document["copies"]]
    assert copying == pytest.approx([3e-6 + 64e-9] * 3)
    assert document["predicted_seconds"] == pytest.approx(
        sum(part["seconds"] for part in document["partitions"])
        + sum(copy["seconds"] for copy in document["copies"])
    )
    assert main(["explain", model(CHAIN), *wish, *pins]) == 0
    assert "predicted from the speed that the certificate declares" in capsys.readouterr().out


def test_auto_places_by_cost_if_all_that_are_named_have_a_speed(
    model, certificate, capsys, monkeypatch
):
    wish = ["--providers", "npu,reference", "--what-if", certificate(row("Mul"), speed=SPEED)]
    document = explain(capsys, model(CHAIN), *wish)
    assert document["strategy"] == "greedy"
    assert document["basis"] == "neither speed nor costs are known of reference"
    monkeypatch.setattr(
        "ep_core.partition.assumed_speed", lambda kind: pytest.fail("every speed is declared")
    )
    kind = type(registry().factory("reference"))
    devices = kind.devices
    speed = DeviceSpeed(1e10, 1e10, 1e-6, 2e-6)
    monkeypatch.setattr(
        kind, "devices", lambda self: [dataclasses.replace(devices(self)[0], speed=speed)]
    )
    registry().recheck()
    document = explain(capsys, model(CHAIN), *wish)
    assert document["strategy"] == "cost"
    assert document["predicted_seconds"] < document["greedy_seconds"]
    assert set(where(document).values()) == {"reference"}, "which spares the copies"


def test_without_a_declared_speed_nothing_is_said_of_time(model, certificate, capsys):
    wish = ["--providers", "npu,reference", "--what-if", certificate(row("Mul"))]
    document = explain(capsys, model(CHAIN), *wish)
    assert document["predicted_seconds"] is None
    assert any("declares no speed" in note for note in document["notes"])


def test_nothing_is_compiled_for_those_that_are_here(model, certificate, capsys, monkeypatch):
    def compile_nothing(self, subgraph):
        raise AssertionError("compiled")

    monkeypatch.setattr(type(registry().create("reference", {})), "compile", compile_nothing)
    document = explain(
        capsys,
        *(model(CHAIN), "--level", "0", "--providers", "reference"),
        *("--what-if", certificate(row("Mul"))),
    )
    assert document["refused_claims"] == []
    assert len(document["partitions"]) == 3


def test_the_order_is_the_callers(model, certificate, capsys):
    path = certificate(row("Mul"), row("Neg"))
    first = explain(capsys, model(CHAIN), "--providers", "npu,skewed,reference", "--what-if", path)
    assert first["providers"] == ["npu", "skewed", "reference"]
    assert where(first)["Mul"] == "npu"
    last = explain(capsys, model(CHAIN), "--providers", "skewed,npu,reference", "--what-if", path)
    assert last["providers"] == ["skewed", "npu", "reference"]
    assert where(last) == {"Abs": "reference", "Mul": "skewed", "Neg": "npu"}


def test_onnxruntimes_spelling_names_it_too(model, certificate, capsys):
    path = certificate(row("Mul"))
    document = explain(
        capsys, model(CHAIN), "--providers", "reference,NPUExecutionProvider", "--what-if", path
    )
    assert document["providers"] == ["reference", "npu"]


def test_without_providers_the_automatic_ones_follow(model, certificate, capsys):
    document = explain(capsys, model(CHAIN), "--what-if", certificate(row("Mul")))
    assert document["providers"] == ["npu", "reference"]


def test_it_takes_the_place_of_a_provider_that_is_here(model, certificate, capsys):
    path = certificate(row("Neg"), provider="skewed")
    document = explain(capsys, model(CHAIN), "--providers", "skewed,reference", "--what-if", path)
    assert where(document) == {"Abs": "reference", "Mul": "reference", "Neg": "skewed"}


def test_alone_it_must_take_everything(model, certificate, capsys):
    rows = [row("Mul"), row("Abs"), row("Neg")]
    document = explain(capsys, model(CHAIN), "--providers", "npu", "--what-if", certificate(*rows))
    assert set(where(document).values()) == {"npu"}
    assert main(["explain", model(CHAIN), "--providers", "npu", "--what-if", certificate()]) == 1
    assert "can't run on any" in capsys.readouterr().err


def test_two_devices_that_are_not_here(model, certificate, capsys):
    two = [
        "--what-if",
        certificate(row("Mul")),
        "--what-if",
        certificate(row("Neg"), provider="gpu"),
    ]
    document = explain(capsys, model(CHAIN), "--providers", "reference", *two)
    assert where(document) == {"Abs": "reference", "Mul": "npu", "Neg": "gpu"}
    hops = [(copy["value"], copy["source"], copy["target"]) for copy in document["copies"]]
    assert ("c", "npu:what-if/device", "cpu/host") in hops, "through the host"
    assert ("c", "cpu/host", "gpu:what-if/device") in hops


def test_sequences_tell_that_it_works_in_host_memory(model, certificate):
    path = certificate(row("Mul"), row("SequenceAt", "seq(tensor(float))"))
    provider = stand_in(path).provider
    assert provider.memory == HOST_MEMORY
    assert provider.features.non_tensor_values
    assert "in host memory" in provider.notes[1]
    placed = place_model(SessionRequest(model(CHAIN), ["reference"]), [path])
    assert placed.report.copies == ()


def test_it_claims_control_flow_only_if_certified(certificate):
    assert not stand_in(certificate(row("Mul"))).provider.features.control_flow
    assert stand_in(certificate(row("Loop", None))).provider.features.control_flow


def test_it_does_no_work(model, certificate):
    provider = stand_in(certificate(row("Mul"))).provider
    graph = load_model(model(CHAIN)).graph
    assert [answer.supported for answer in provider.get_capability(graph).nodes] == [
        False,
        True,
        True,
        False,
    ]
    assert provider.get_capability(graph).nodes[1] == Support(True)
    part = provider.compile(Subgraph.cut(graph, [1]))
    assert list(part.accepts_outputs) == [False]
    with pytest.raises(NotSupportedError, match="only stands in"):
        part.run([], [None], None)
    with pytest.raises(NotSupportedError):
        provider.allocator.allocate((1,), DataType.FLOAT)
    with pytest.raises(NotSupportedError):
        provider.data_transfer.copy(np.zeros(1), np.zeros(1), None)
    part.close()
    provider.close()
    provider.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what-if", "nowhere.json"], "can't read nowhere.json"),
        (["--what-if", "@", "--what-if", "@"], "two certificates are of provider 'npu'"),
        (
            ["--providers", "npu", "--provider-option", "npu.x=1", "--what-if", "@"],
            "is for a provider that isn't opened",
        ),
        (["--providers", "npu,nonsense", "--what-if", "@"], "nonsense"),
        (["--providers", "absent", "--what-if", "@"], "no such chip in this machine"),
    ],
)
def test_mistakes(arguments, message, model, certificate, capsys):
    path = certificate(row("Mul"))
    words = [path if word == "@" else word for word in arguments]
    assert main(["explain", model(CHAIN), *words]) == 1
    assert message in capsys.readouterr().err


def test_what_is_no_certificate_is_an_error(model, capsys, tmp_path):
    (tmp_path / "no.json").write_text("[]")
    assert main(["explain", model(CHAIN), "--what-if", str(tmp_path / "no.json")]) == 1
    assert "format; expected 1" in capsys.readouterr().err


def test_a_partition_of_unknown_types_is_named_and_the_rest_saved(
    model, certificate, capsys, tmp_path
):
    path = model("""
        <ir_version: 9, opset_import: ["" : 20, "our.own" : 1]>
        g (float[n] x) => (float[n] y, float[n] z) {
            a = our.own.Odd (x)  b = Abs (a)  y = our.own.Odd (b)  z = Neg (y)
        }
    """)
    odd = row("Odd", None) | {"domain": "our.own"}
    wish = ["--providers", "npu,reference", "--what-if", certificate(odd)]
    folder = tmp_path / "parts"
    assert main(["explain", path, *wish, "--save-partitions", str(folder)]) == 1
    told = capsys.readouterr()
    assert "the type of 'a' isn't known" in told.err
    assert "1 model in" in told.out
    (saved,) = folder.iterdir()
    assert [node.op_type for node in onnx.load(saved).graph.node] == ["Neg"]


def test_a_placement_is_that_of_a_session(model):
    """Without certificates, what is explained is what a session has."""
    from ep_tools.sessions import open_session

    request = SessionRequest(model(CHAIN), ["skewed", "reference"])
    with open_session(request) as session:
        expected = session.get_placement()
    assert place_model(request).report == expected
    with pytest.raises(EpError, match="nonsense"):
        place_model(dataclasses.replace(request, providers=["nonsense"]))
