"""`ep explain --save-partitions`: models that are valid, safe to name, and compute the same."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ep_core import InferenceSession
from ep_core.loading.export import tensor_proto
from ep_core.types import DataType
from ep_tools.cli import main
from ep_tools.explain_partitions import save_partitions
from ep_tools.explain_placing import place_model
from ep_tools.requests import SessionRequest

pytestmark = pytest.mark.usefixtures("providers")

LONG = "\u00e9" * 300
SKEWED = ["--providers", "skewed,reference", "--level", "0"]
MIXED = """
    <ir_version: 9, opset_import: ["" : 20]>
    mixed (float[n, 3] x) => (float[n, 2] y, int64[2] s, float[n, 3] c)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
    {
        a = Abs (x)  b = Mul (a, x)  c = Neg (b)
        m = MatMul (c, w)  d = Mul (m, m)  y = Sqrt (d)  s = Shape (y)
    }
"""


def saved(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_partition_computes_its_part(model, capsys, tmp_path):
    """Fed with the whole model's own intermediate values, each gives the next ones."""
    path = model(MIXED)
    folder = tmp_path / "parts"
    assert main(["explain", path, *SKEWED, "--save-partitions", str(folder)]) == 0
    assert "5 models in" in capsys.readouterr().out
    assert saved(folder) == [
        "000-reference_0.onnx",
        "001-skewed_1.onnx",
        "002-reference_2.onnx",
        "003-skewed_3.onnx",
        "004-reference_4.onnx",
    ]
    whole = onnx.load(path)
    names = [name for node in whole.graph.node for name in node.output]
    every = onnx.ModelProto()
    every.CopyFrom(whole)
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    feeds = {"x": np.arange(-6, 6, dtype=np.float32).reshape(4, 3)}
    values = feeds | dict(zip(names, ReferenceEvaluator(every).run(None, feeds), strict=True))
    made = set()
    for part in sorted(folder.iterdir()):
        onnx.checker.check_model(onnx.load(part), full_check=True)
        with InferenceSession(part, providers=["reference"]) as session:
            inputs = {arg.name: values[arg.name] for arg in session.get_inputs()}
            outputs = [arg.name for arg in session.get_outputs()]
            for name, got in zip(outputs, session.run(None, inputs), strict=True):
                np.testing.assert_array_equal(got, values[name])
        made.update(outputs)
    assert {"y", "s", "c"} <= made


def test_nothing_is_written_over_without_force(model, capsys, tmp_path):
    path = model(MIXED)
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "001-skewed_1.onnx").write_text("mine")
    command = ["explain", path, *SKEWED, "--save-partitions", str(folder)]
    assert main(command) == 1
    assert "001-skewed_1.onnx' is there already" in capsys.readouterr().err
    assert saved(folder) == ["001-skewed_1.onnx"]
    assert (folder / "001-skewed_1.onnx").read_text() == "mine"
    assert main([*command, "--force"]) == 0
    assert len(saved(folder)) == 5
    onnx.checker.check_model(onnx.load(folder / "001-skewed_1.onnx"))


def test_a_file_is_no_folder(model, capsys, tmp_path):
    (tmp_path / "parts").write_text("mine")
    assert main(["explain", model(MIXED), "--save-partitions", str(tmp_path / "parts")]) == 1
    assert "expected a folder" in capsys.readouterr().err


def test_partitions_of_bodies_are_saved_too(model, capsys, tmp_path):
    path = model("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[n] x, bool flag) => (float[n] z) {
            y = Abs (x)
            z = If (flag) <
                then_branch = yes () => (float[n] p) { p = Mul (y, y) },
                else_branch = no () => (float[n] q) { q = Neg (y) }
            >
        }
    """)
    folder = tmp_path / "parts"
    assert main(["explain", path, *SKEWED, "--save-partitions", str(folder)]) == 0
    operators = {
        tuple(node.op_type for node in onnx.load(part).graph.node) for part in folder.iterdir()
    }
    assert operators == {("Abs",), ("Mul",), ("Neg",)}


def test_a_rank_that_is_not_known_is_told(model, capsys, tmp_path):
    path = model("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[n] x, int64[r] shape) => (float[2, n] y) {
            a = Reshape (x, shape)  b = Mul (a, a)  c = Abs (b)
            two = Constant <value_ints = [2, -1]> ()
            y = Reshape (c, two)
        }
    """)
    folder = tmp_path / "parts"
    assert main(["explain", path, *SKEWED, "--save-partitions", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "3 of 3 models don't pass onnx.checker" in told
    with InferenceSession(folder / "001-skewed_1.onnx", providers=["reference"]) as session:
        (got,) = session.run(None, {"a": np.full((2, 3), 3, np.float32)})
    np.testing.assert_array_equal(got, np.full((2, 3), 9))


def test_large_constants_are_in_a_file_beside_the_model(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.normal(size=(40, 30)).astype(np.float32),
        "v": rng.normal(size=(30, 30)).astype(np.float32),
        "half": np.full((600,), 0.5, np.float16),
        "four": np.arange(2100).astype(DataType.INT4.numpy),
        "shape": np.array([1, -1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["y"]),
        helper.make_node("Identity", ["half"], ["h"]),
        helper.make_node("Cast", ["four"], ["f"], to=onnx.TensorProto.INT8),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", 1, [2, 40])],
        [value("y", 1, [1, 60]), value("h", 10, [600]), value("f", 3, [2100])],
        [tensor_proto(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    monkeypatch.setattr("ep_tools.explain_partitions.MOST_INSIDE", 5000)
    folder = tmp_path / "parts"
    command = ["explain", str(path), "--providers", "reference", "--level", "0"]
    command += ["--save-partitions", str(folder)]
    assert main(command) == 0
    assert saved(folder) == ["000-reference_0.onnx", "000-reference_0.onnx.data"]
    part = folder / "000-reference_0.onnx"
    onnx.checker.check_model(str(part), full_check=True)
    small = onnx.load(part, load_external_data=False)
    assert [value.name for value in small.graph.input] == ["x"]
    outside = [t.name for t in small.graph.initializer if t.data_location]
    assert sorted(outside) == ["four", "half", "v", "w"]
    assert part.stat().st_size < 2000
    x = rng.normal(size=(2, 40)).astype(np.float32)
    with InferenceSession(part, providers=["reference"]) as session:
        got = dict(
            zip(
                [arg.name for arg in session.get_outputs()],
                session.run(None, {"x": x}),
                strict=True,
            )
        )
    np.testing.assert_allclose(
        got["y"], (x @ weights["w"] @ weights["v"]).reshape(1, -1), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(got["h"], weights["half"])
    np.testing.assert_array_equal(got["f"], weights["four"].astype(np.int8))
    # A data file that is there is kept too, unless --force is given.
    part.unlink()
    capsys.readouterr()
    assert main(command) == 1
    assert "000-reference_0.onnx.data' is there already" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert len(saved(folder)) == 2


def test_a_split_model_that_the_checker_refuses_leaves_nothing(model, tmp_path, monkeypatch):
    placed = place_model(SessionRequest(model(MIXED), ["reference"], level=0))
    monkeypatch.setattr("ep_tools.explain_partitions.MOST_INSIDE", 20)

    def refuse(model):
        raise onnx.checker.ValidationError("no")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    result = save_partitions(placed, tmp_path / "parts", force=False)
    (complaint,) = result.complaints
    assert "onnx.checker refuses it: no" in complaint
    assert saved(tmp_path / "parts") == []


def test_what_is_too_large_for_a_file_is_told(model, tmp_path, monkeypatch):
    placed = place_model(SessionRequest(model(MIXED), ["reference"], level=0))
    monkeypatch.setattr("ep_core.loading.export._PROTOBUF_LIMIT", 20)
    result = save_partitions(placed, tmp_path / "parts", force=False)
    (complaint,) = result.complaints
    assert complaint.startswith("reference_0 isn't saved: ")
    assert "expected weights of at most 20 bytes; got 24 bytes" in complaint
    assert saved(tmp_path / "parts") == []


def test_file_names_are_safe_whatever_a_provider_is_called(model, tmp_path):
    """Providers call themselves what they like, and partitions are named after them."""
    placed = place_model(SessionRequest(model(MIXED), ["skewed", "reference"], level=0))
    parts = tuple(
        replace(part, name=f"../{place}:\0{LONG}")
        for place, part in enumerate(placed.report.partitions)
    )
    placed = replace(placed, report=replace(placed.report, partitions=parts))
    folder = tmp_path / "parts"
    save_partitions(placed, folder, force=False)
    assert len(saved(folder)) == 5
    assert all(re.fullmatch(r"00\d-___\d_+\.onnx", name) for name in saved(folder))
    assert all(len(name) < 100 for name in saved(folder))
