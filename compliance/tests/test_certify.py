"""From verdicts to rows and certificates, and to a session that heeds them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from zoo_cases import CASES

from ep_compliance.cases.case import Case, Level, Subject
from ep_compliance.certificates.certificate import (
    canonical,
    certificate_of,
    file_name,
    write_certificate,
)
from ep_compliance.certificates.rows import granted_rows
from ep_compliance.checks import all_checks
from ep_compliance.running.jobs import Target
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import Results
from ep_compliance.running.runner import run_jobs
from ep_core import InferenceSession
from ep_core.certificates.file import read_certificate
from ep_core.certificates.lookup import find_certificate, user_folder
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.discovery.registry import registry
from ep_core.errors import CertificateError, EpError
from ep_core.types import DataType, DeviceInfo, DeviceSpeed

FLOAT = TensorProto.FLOAT
DOUBLE = TensorProto.DOUBLE
DEVICE = DeviceInfo("simulator", "0", "simulated", fingerprint="simulator-0.1.0")


def model(op_type, inputs, output, opset):
    info = helper.make_tensor_value_info
    names = [f"x{i}" for i, kind in enumerate(inputs)]
    given = [name if kind else "" for name, kind in zip(names, inputs, strict=True)]
    graph = helper.make_graph(
        [helper.make_node(op_type, given, ["y"], **({"to": output} if op_type == "Cast" else {}))],
        "g",
        [info(n, k, [2]) for n, k in zip(names, inputs, strict=True) if k],
        [info("y", output, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def about(op_type, inputs, output=None, *, opset=17, outcome=Outcome.PASS, name="", **dtypes):
    """A job about one operator and its verdict; its inputs are never looked at."""
    output = output or inputs[0]
    since = onnx.defs.get_schema(op_type, opset, "").since_version
    if not dtypes:
        dtypes = {"T": DataType(inputs[0])}
    subject = Subject("", op_type, since, dtypes)
    identifier = f"{op_type}-{opset}-{inputs}-{output}-{name}"
    case = Case(identifier, model(op_type, inputs, output, opset), {}, subject=subject)
    return case, Verdict(identifier, outcome, "because" if outcome is not Outcome.PASS else "")


def texts(rows):
    return [
        (row.op_type, row.since, row.until, [sorted(t) for t in row.inputs], row.predicate)
        for row in rows
    ]


F = "tensor(float)"
D = "tensor(double)"
I64 = "tensor(int64)"


# ---------------------------------------------------------------- rows


def test_one_failure_costs_the_row_of_its_types_and_no_other():
    rows = granted_rows(
        [
            about("Relu", [FLOAT]),
            about("Relu", [FLOAT], name="b", outcome=Outcome.FAIL),
            about("Relu", [TensorProto.DOUBLE]),
            about("Abs", [FLOAT], outcome=Outcome.CRASH),
            about("Neg", [FLOAT], outcome=Outcome.TIMEOUT),
            about("Exp", [FLOAT], outcome=Outcome.NOT_RUN),
        ]
    )
    assert texts(rows) == [("Relu", 14, 14, [[D]], "")]


def test_nothing_is_granted_for_what_was_never_claimed_or_never_settled():
    assert granted_rows([about("Relu", [FLOAT], outcome=Outcome.UNSUPPORTED)]) == []
    assert granted_rows([about("Relu", [FLOAT], outcome=Outcome.QUARANTINED)]) == []
    both = [about("Relu", [FLOAT]), about("Relu", [FLOAT], name="b", outcome=Outcome.UNSUPPORTED)]
    assert texts(granted_rows(both)) == [("Relu", 14, 14, [[F]], "")]


def test_a_waived_case_keeps_its_row_and_shows():
    rows = granted_rows([about("Relu", [FLOAT]), about("Relu", [FLOAT], outcome=Outcome.WAIVED)])
    assert texts(rows) == [("Relu", 14, 14, [[F]], "1 waived")]


def test_a_waiver_alone_earns_nothing():
    assert granted_rows([about("Relu", [FLOAT], outcome=Outcome.WAIVED)]) == []


def test_adjacent_versions_with_equal_grants_become_a_range():
    # The schemas of Relu are of versions 1, 6, 13 and 14.
    pairs = [about("Relu", [FLOAT], opset=opset) for opset in (6, 13)]
    assert texts(granted_rows(pairs)) == [("Relu", 6, 13, [[F]], "")]
    gap = [about("Relu", [FLOAT], opset=opset) for opset in (6, 14)]
    assert texts(granted_rows(gap)) == [
        ("Relu", 6, 6, [[F]], ""),
        ("Relu", 14, 14, [[F]], ""),
    ]


def test_types_merge_and_never_into_a_combination_that_wasnt_shown():
    kinds = {"F": (FLOAT, DataType.FLOAT), "D": (TensorProto.DOUBLE, DataType.DOUBLE)}

    def cast(source, target):
        pair = {"T1": kinds[source][1], "T2": kinds[target][1]}
        return about("Cast", [kinds[source][0]], kinds[target][0], **pair)

    rows = granted_rows([cast("F", "D"), cast("D", "F")])
    sides = {(tuple(r.inputs[0]), tuple(r.outputs[0])) for r in rows}
    assert sides == {((F,), (D,)), ((D,), (F,))}
    square = [cast(a, b) for a in "FD" for b in "FD"]
    (row,) = granted_rows(square)
    assert (row.inputs, row.outputs) == ((frozenset({F, D}),), (frozenset({F, D}),))


def test_an_optional_input_that_no_case_had_is_closed():
    (row,) = granted_rows([about("Clip", [FLOAT, FLOAT])])
    assert [sorted(types) for types in row.inputs] == [[F], [F], []]
    (row,) = granted_rows([about("Clip", [FLOAT, None, FLOAT])])
    assert [sorted(types) for types in row.inputs] == [[F], [], [F]]


def test_a_variadic_operator_has_one_entry_for_all():
    (row,) = granted_rows([about("Max", [FLOAT, FLOAT, FLOAT])])
    assert [sorted(types) for types in row.inputs] == [[F]]


def test_rows_dont_depend_on_the_order_of_results():
    pairs = [
        about(op_type, [kind], opset=opset)
        for op_type in ("Relu", "Abs")
        for kind in (FLOAT, TensorProto.DOUBLE)
        for opset in (13, 17)
    ]
    assert granted_rows(pairs) == granted_rows(pairs[::-1])


# ---------------------------------------------------------------- certificates


def results(pairs, **changes):
    jobs, verdicts = zip(*pairs, strict=True)
    settings = {
        "target": Target("simulator"),
        "device": DEVICE,
        "level": Level.FULL,
        "jobs": jobs,
        "verdicts": verdicts,
        "cases_hash": "sha256:0",
        "kit_version": "0.1.0",
        "date": "2030-12-31",
        **changes,
    }
    return Results(**settings)


def distribution():
    return importlib.metadata.distribution("ep-sdk")


INFO = ProviderInfo("simulator", "0.1.0", API_VERSION)


def certified(pairs, **changes):
    return certificate_of(results(pairs, **changes), distribution(), INFO)


def test_equal_runs_give_equal_bytes(tmp_path):
    pairs = [about("Relu", [FLOAT]), about("Abs", [FLOAT])]
    slower = [(job, Verdict(v.case_id, v.outcome, "", 9.0)) for job, v in pairs]
    one = canonical(certified(pairs))
    two = canonical(certified(slower[::-1], date="2031-01-01"))
    assert one == two.replace("2031-01-01", "2030-12-31")
    assert json.loads(one)["format"] == 1


def test_the_core_reads_what_is_written(tmp_path):
    certificate = certified([about("Relu", [FLOAT])])
    path = write_certificate(certificate, tmp_path / "new" / "folder")
    found = read_certificate(path)
    assert found.provider == "simulator"
    assert found.rows[0].op_type == "Relu"
    assert path.name == "simulator-simulator-0-1-0.json"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_declared_speed_is_told_and_changes_nothing_else(tmp_path):
    pairs = [about("Relu", [FLOAT])]
    speed = DeviceSpeed(1e12, 1e11, 5e-6, 2e-5, 1e-5, 1e10)
    plain = certified(pairs)
    assert "speed" not in plain
    told = certified(pairs, device=dataclasses.replace(DEVICE, speed=speed))
    assert read_certificate(write_certificate(told, tmp_path)).speed == speed
    assert {name: value for name, value in told.items() if name != "speed"} == plain
    assert file_name(told) == file_name(plain)


def test_options_are_part_of_the_name():
    named = {"provider": "toy", "device_fingerprint": "chip 1", "options": {"precision": "f16"}}
    assert file_name(named) == "toy-chip-1-precision-f16.json"
    assert file_name({**named, "options": {}}) == "toy-chip-1.json"


def test_there_is_no_certificate_without_the_contracts():
    broken = all_checks()["claims/pure"]
    pairs = [about("Relu", [FLOAT]), (broken, Verdict(broken.id, Outcome.FAIL, "impure"))]
    with pytest.raises(CertificateError, match="the contract check 'claims/pure' fails: impure"):
        certified(pairs)


def test_there_is_no_certificate_of_an_incomplete_run():
    pairs = [about("Relu", [FLOAT]), about("Abs", [FLOAT], outcome=Outcome.NOT_RUN)]
    with pytest.raises(CertificateError, match="incomplete: 1 jobs were not run"):
        certified(pairs)
    strict = results(pairs[:1], problems=["the waiver for 'x' is bad"])
    with pytest.raises(CertificateError, match="the waiver for 'x' is bad"):
        certificate_of(strict, distribution(), INFO)
    failed = results([about("Relu", [FLOAT], outcome=Outcome.FAIL)])
    with pytest.raises(CertificateError, match="no operator passed"):
        certificate_of(failed, distribution(), INFO)


# ---------------------------------------------------------------- in force


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "enforce")
    # The provider's own certificate, in its package, would grant what these tests don't.
    monkeypatch.setattr("ep_core.certificates.lookup.shipped_certificates", lambda distribution: [])
    return tmp_path


def run_relu(op_type):
    proto = model(op_type, [FLOAT], FLOAT, 17)
    session = InferenceSession(proto.SerializeToString(), providers=["simulator"])
    with session:
        (result,) = session.run(None, {"x0": np.array([-1, 4], np.float32)})
        return result, session.get_placement()


def test_what_is_granted_runs_under_enforce_and_the_rest_says_why(home):
    jobs = [CASES["zoo/relu"], CASES["zoo/add"], all_checks()["claims/pure"]]
    verdicts = run_jobs(jobs, Target("simulator"))
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS] * 3
    with pytest.raises(EpError, match="uncertified"):
        run_relu("Relu")
    certificate = certified(list(zip(jobs, verdicts, strict=True)))
    write_certificate(certificate, user_folder())
    result, placement = run_relu("Relu")
    assert result.tolist() == [0, 4]
    assert {node.provider for node in placement.nodes[""]} == {"simulator"}
    with pytest.raises(EpError, match=r"uncertified.*no row for Sqrt"):
        run_relu("Sqrt")


def test_a_changed_package_loses_its_certificate(home):
    certificate = certified([about("Relu", [FLOAT])])
    path = write_certificate(certificate, user_folder())
    info = registry().factory("simulator").info
    assert find_certificate(info, distribution(), DEVICE, {})[0] is not None
    text = path.read_text().replace(certificate["content_hash"], "sha256:0")
    path.write_text(text)
    found, reason = find_certificate(info, distribution(), DEVICE, {})
    assert found is None
    assert "the installed files have changed" in reason


def graph_job(outcome, *op_types, kind=FLOAT):
    """A chain of operators, about no single one, and its verdict."""
    info = helper.make_tensor_value_info
    names = [f"v{i}" for i in range(len(op_types) + 1)]
    nodes = [
        helper.make_node(op_type, [names[i]], [names[i + 1]]) for i, op_type in enumerate(op_types)
    ]
    graph = helper.make_graph(
        nodes, "g", [info(names[0], kind, [2])], [info(names[-1], kind, None)]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    identifier = f"chain/{'-'.join(op_types)}"
    return Case(identifier, proto, {}), Verdict(identifier, outcome)


def test_a_graph_that_fails_costs_its_operators_the_types_in_it():
    singles = [about(op, [kind]) for op in ("Relu", "Abs", "Neg") for kind in (FLOAT, DOUBLE)]
    wrong = graph_job(Outcome.FAIL, "Relu", "Abs")
    rows = granted_rows([*singles, wrong])
    granted = {(row.op_type, *sorted(row.inputs[0])) for row in rows}
    assert granted == {("Relu", D), ("Abs", D), ("Neg", D, F)}
    for outcome in (Outcome.PASS, Outcome.WAIVED, Outcome.UNSUPPORTED, Outcome.QUARANTINED):
        assert len(granted_rows([*singles, graph_job(outcome, "Relu", "Abs")])) == 3


def test_a_graph_that_an_operators_own_failure_explains_costs_no_more():
    singles = [about("Relu", [FLOAT]), about("Abs", [FLOAT], outcome=Outcome.FAIL)]
    rows = granted_rows([*singles, graph_job(Outcome.FAIL, "Relu", "Abs")])
    assert [row.op_type for row in rows] == ["Relu"]
