"""Folders of failing cases: readable by onnx alone, whole, and enough to see the failure again."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from zoo_base import CorrectProvider, factory_of, table_with
from zoo_cases import CASES

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.random_graphs import random_cases
from ep_compliance.driving.bench import Bench
from ep_compliance.errors import ReportError
from ep_compliance.reports.failures import (
    MOST_FAILURES,
    folder_name,
    save_failures,
    shrink_failures,
)
from ep_compliance.reports.files import prepare_folder, write_text
from ep_compliance.reports.page import html_page
from ep_compliance.reports.protos import proto_of
from ep_compliance.running.jobs import Target
from ep_compliance.running.judging import judge_case
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import Results
from ep_compliance.running.shrink import Budget, Shrunk
from ep_core.types import DeviceInfo


def results_of(pairs, target=None):
    jobs = [case for case, _ in pairs]
    return Results(
        target=target or Target("zoo"),
        device=DeviceInfo("zoo", "0", "cpu", fingerprint="zoo-1"),
        level=Level.FULL,
        jobs=jobs,
        verdicts=[verdict for _, verdict in pairs],
        cases_hash="sha256:0",
        kit_version="1",
        date=datetime.date(2030, 1, 1).isoformat(),
    )


def failed(case, reason="wrong", outcome=Outcome.FAIL):
    return case, Verdict(case.id, outcome, reason)


def a_graph():
    return next(c for c in random_cases(Level.FULL) if len(c.model.graph.node) > 3)


def read(path, kind):
    proto = kind()
    proto.ParseFromString(path.read_bytes())
    return proto


def data_of(folder, kind):
    files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
    assert [f.name for f in files] == [f"{kind}_{i}.pb" for i in range(len(files))]
    return [numpy_helper.to_array(read(file, onnx.TensorProto)) for file in files]


class WrongRelu(CorrectProvider):
    table = table_with(Relu=lambda x: np.abs(x))


def judge_with_wrong_relu(case):
    factory = factory_of(WrongRelu)
    with Bench(factory, factory.devices()[0]).open() as provider:
        judgement = judge_case(case, provider)
    return Verdict(case.id, judgement.outcome, judgement.reason)


# ---------------------------------------------------------------- what is saved


def test_a_folder_holds_what_it_takes_to_see_the_failure_again(tmp_path):
    found = ((case, judge_with_wrong_relu(case)) for case in random_cases(Level.FULL))
    case, verdict = next(pair for pair in found if pair[1].outcome is Outcome.FAIL)
    files = save_failures(results_of([(case, verdict)]), tmp_path)
    folder = tmp_path / "failures" / folder_name(case.id)
    assert files[case.id][0].startswith("failures/random_")
    assert {tmp_path / name for name in files[case.id]} == {
        path for path in folder.rglob("*") if path.is_file()
    }
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    names = [info.name for info in model.graph.input]
    feeds = dict(zip(names, data_of(folder, "input"), strict=True))
    again = judge_with_wrong_relu(Case(case.id, model, feeds))
    assert again == verdict
    expected = data_of(folder, "output")
    assert len(expected) == len(model.graph.output)
    right = Case(case.id, model, feeds, expected=expected)
    assert judge_with_wrong_relu(right).outcome is Outcome.FAIL


def test_the_text_says_what_went_wrong_and_how_to_repeat_it(tmp_path):
    case = a_graph()
    target = Target("zoo", "1", {"mode": "a b"})
    save_failures(results_of([failed(case, "too large")], target), tmp_path)
    text = (tmp_path / "failures" / folder_name(case.id) / "reason.txt").read_text()
    assert text.startswith(f"FAIL {case.id}\n")
    assert "\ntoo large\n" in text
    assert f"ep certify zoo --device 1 --option 'mode=a b' --only {case.id}\n" in text
    soak = list(random_cases())[-1]
    save_failures(results_of([failed(soak)]), tmp_path)
    text = (tmp_path / "failures" / folder_name(soak.id) / "reason.txt").read_text()
    assert "--level soak" in text


def test_a_smaller_case_lies_beside_the_one_it_came_from(tmp_path):
    case = a_graph()
    small = CASES["zoo/relu"]
    shrunk = Shrunk(small, Verdict(case.id, Outcome.FAIL, "also wrong"), 9, repeated=True)
    files = save_failures(results_of([failed(case)]), tmp_path, {case.id: shrunk})
    folder = tmp_path / "failures" / folder_name(case.id)
    assert onnx.load(folder / "minimal" / "model.onnx") == small.model
    (x,) = data_of(folder / "minimal", "input")
    np.testing.assert_array_equal(x, small.inputs["x0"])
    assert f"failures/{folder.name}/minimal/model.onnx" in files[case.id]
    assert "also wrong" in (folder / "reason.txt").read_text()
    once = Shrunk(case, Verdict(case.id, Outcome.PASS), 1, repeated=False)
    save_failures(results_of([failed(case)]), tmp_path, {case.id: once})
    assert not (folder / "minimal").exists()
    assert "did not fail" in (folder / "reason.txt").read_text()


def test_nothing_is_saved_of_what_passes_and_no_more_than_the_limit(tmp_path):
    case = CASES["zoo/add"]
    assert save_failures(results_of([(case, Verdict(case.id, Outcome.PASS))]), tmp_path) == {}
    assert not (tmp_path / "failures").exists()
    many = [Case(f"many/{i}", case.model, case.inputs) for i in range(MOST_FAILURES + 5)]
    assert len(save_failures(results_of([failed(c) for c in many]), tmp_path)) == MOST_FAILURES
    assert len(list((tmp_path / "failures").iterdir())) == MOST_FAILURES


def test_an_earlier_run_leaves_nothing_and_what_is_not_ours_stays(tmp_path):
    first, second = CASES["zoo/add"], CASES["zoo/mul"]
    save_failures(results_of([failed(first)]), tmp_path)
    own = tmp_path / "failures" / "notes"
    own.mkdir()
    (own / "reason.txt").write_text("mine")
    similar = tmp_path / "failures" / "notes-01234567"
    similar.mkdir()
    save_failures(results_of([failed(second)]), tmp_path)
    left = {path.name for path in (tmp_path / "failures").iterdir()}
    assert left == {"notes", "notes-01234567", folder_name(second.id)}


def test_values_of_every_kind_are_kept(tmp_path):
    text = np.array(["a", "", "日本"], object)
    half = np.array([[1.5], [-2]], ml_dtypes.bfloat16)
    values = {
        "text": text,
        "half": half,
        "four bits": np.array([-8, 7], ml_dtypes.int4),
        "empty": np.zeros((0, 3), np.int8),
        "scalar": np.array(True),
        "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
    }
    for name, value in values.items():
        proto = onnx.TensorProto.FromString(proto_of(value, name).SerializeToString())
        found = numpy_helper.to_array(proto)
        assert (proto.name, found.shape) == (name, value.shape)
        assert found.astype(value.dtype).tolist() == value.tolist()
    sequence = numpy_helper.to_list(proto_of([half, half[:1]], "s"))
    assert [item.shape for item in sequence] == [(2, 1), (1, 1)]
    assert numpy_helper.to_list(proto_of([], "s")) == []
    by_text = {"cat": np.float32(0.25), "dog": np.float32(0.75)}
    proto = onnx.MapProto.FromString(proto_of(by_text, "m").SerializeToString())
    assert [key.decode() for key in proto.string_keys] == ["cat", "dog"]
    assert [float(v) for v in numpy_helper.to_list(proto.values)] == [0.25, 0.75]
    assert numpy_helper.to_dict(proto_of({3: np.float32(1)}, "m")) == {3: 1.0}
    maps = numpy_helper.to_list(proto_of([{1: np.float32(2)}, {1: np.float32(3)}], "s"))
    assert maps == [{1: 2.0}, {1: 3.0}]
    assert numpy_helper.to_optional(proto_of(None, "o")) is None


def test_a_case_of_sequences_is_saved(tmp_path):
    kind = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    place = helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    graph = helper.make_graph([node], "g", [kind, place], [out])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    parts = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    case = Case("test/sequence", model, {"s": parts, "i": np.array(1)})
    save_failures(results_of([failed(case)]), tmp_path)
    data = tmp_path / "failures" / folder_name(case.id) / "test_data_set_0"
    found = numpy_helper.to_list(read(data / "input_0.pb", onnx.SequenceProto))
    assert [item.tolist() for item in found] == [part.tolist() for part in parts]
    assert numpy_helper.to_array(read(data / "output_0.pb", onnx.TensorProto)).tolist() == [0, 0, 0]


def test_names_suit_every_file_system_and_differ():
    ids = [
        "random/dense/0012",
        "matrix/ai.onnx.ml.Scaler-1/float/odd",
        "a" * 300,
        "a" * 299 + "b",
        "x/y",
        "x_y",
        "X/y",
        "con",
        "..",
        "a:b*c?",
        "ä/日本",
    ]
    names = [folder_name(identifier) for identifier in ids]
    assert len({name.lower() for name in names}) == len(ids)
    for name in names:
        assert len(name) <= 90
        assert name.isascii()
        assert not set(name) & set('<>:"/\\|?* ')
        assert not name.startswith(".")
    assert folder_name("random/dense/0012") == "random_dense_0012-491382c6"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of folders")
def test_a_folder_that_cant_be_written_to_is_an_error_of_ours(tmp_path):
    (tmp_path / "failures").write_text("a file where the folder should be")
    with pytest.raises(ReportError, match="failing cases can't be written"):
        save_failures(results_of([failed(CASES["zoo/add"])]), tmp_path)
    assert (tmp_path / "failures").read_text().startswith("a file")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def no(*paths):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", no)
    with pytest.raises(ReportError, match="disk full"):
        save_failures(results_of([failed(CASES["zoo/add"])]), tmp_path)
    assert list((tmp_path / "failures").iterdir()) == []


# ---------------------------------------------------------------- the page, and the whole way


def test_the_page_links_the_files(tmp_path):
    case = a_graph()
    results = results_of([failed(case, "wrong <b>")])
    files = save_failures(results, tmp_path)
    page = html_page(results, files)
    for name in files[case.id]:
        assert f'href="{name}"' in page
        assert (tmp_path / name).is_file()
    assert "failures/" not in html_page(results)


@pytest.mark.usefixtures("site")
def test_only_the_first_of_each_way_to_fail_is_made_smaller():
    graphs = [case for case in random_cases(Level.FULL) if len(case.model.graph.node) > 3]
    pairs = [failed(case, f"output v{i}: {i} of 9 values wrong") for i, case in enumerate(graphs)]
    pairs += [failed(CASES["zoo/add"], "another way")]
    shrunk = shrink_failures(results_of(pairs, Target("correct")), Budget(tries=3))
    assert list(shrunk) == [graphs[0].id]
    assert not shrunk[graphs[0].id].repeated


# ---------------------------------------------------------------- files of a report


def test_a_report_is_written_whole_in_place_of_an_older_one(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"

    def no(*paths):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", no)
    with pytest.raises(ReportError, match="disk full"):
        write_text(path, "newer")
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "new"


def test_a_folder_that_cant_hold_reports_is_told_before_anything_is_run(tmp_path):
    prepare_folder(tmp_path / "some" / "where")
    assert list((tmp_path / "some" / "where").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"reports can't be written into .*file"):
        prepare_folder(tmp_path / "file")
