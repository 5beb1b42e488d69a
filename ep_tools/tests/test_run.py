from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from ep_tools.cli import main

ADD = """
    <ir_version: 9, opset_import: ["" : 20]>
    add (float[batch, 3] a, float[batch, 3] b) => (float[batch, 3] total, float[batch, 3] twice) {
        total = Add (a, b)
        twice = Add (total, total)
    }
"""
IMAGE = """
    <ir_version: 9, opset_import: ["" : 20]>
    copy (float[batch, 3, 4, 4] image) => (float[batch, 3, 4, 4] same) { same = Relu (image) }
"""
LOG = """
    <ir_version: 9, opset_import: ["" : 20]>
    log (float[n] x) => (float[n] y) { y = Log (x) }
"""

CHOSEN = ["--input", "x=random", "--providers", "reference"]

pytestmark = pytest.mark.usefixtures("providers")


def run_json(capsys, *arguments: str):
    assert main(["run", *arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_outputs_placement_and_times_are_shown(model, capsys):
    path = model(ADD)
    assert main(["run", path, "--input", "a=random", "--input", "b=random"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0] == "total  tensor(float) [1, 3]"
    assert lines[1].split()[::2] == ["min", "max", "mean"]
    assert len(lines[2].split(", ")) == 3
    assert lines[3] == "twice  tensor(float) [1, 3]"
    assert lines[6].startswith("placement  reference 2 of 2 nodes")
    assert lines[7].startswith("time       load ")
    assert ", first run " in lines[7]
    assert "best" not in lines[7]


def test_files_are_fed_and_figures_are_right(model, tmp_path: Path, capsys):
    np.save(tmp_path / "a.npy", np.float32([[1, 2, 3]]))
    np.savez(tmp_path / "b.npz", other=np.zeros(1), b=np.float32([[10, 20, 30]]))
    document = run_json(
        capsys,
        model(ADD),
        "--input",
        f"a={tmp_path / 'a.npy'}",
        "--input",
        f"b={tmp_path / 'b.npz'}:b",
    )
    total, twice = document["outputs"]
    assert total == {
        "name": "total",
        "type": "tensor(float)",
        "shape": [1, 3],
        "values": [11.0, 22.0, 33.0],
        "min": 11.0,
        "max": 33.0,
        "mean": 22.0,
        "nan": 0,
        "inf": 0,
    }
    assert twice["values"] == [22.0, 44.0, 66.0]
    assert document["inputs"][1] == {
        "name": "b",
        "type": "tensor(float)",
        "shape": [1, 3],
        "source": f"{tmp_path / 'b.npz'}:b",
    }
    assert document["placement"]["nodes"][""][0]["provider"] == "reference"
    assert document["seconds"]["load"] > 0
    assert document["seconds"]["best_run"] is None


def test_open_dimensions_are_set_by_name(model, capsys):
    path = model(ADD)
    inputs = ["--input", "a=random:1", "--input", "b=random:1"]
    assert run_json(capsys, path, *inputs)["outputs"][0]["shape"] == [1, 3]
    document = run_json(capsys, path, *inputs, "--dim", "batch=5")
    assert document["outputs"][0]["shape"] == [5, 3]


def test_an_image_is_fed(model, tmp_path: Path, capsys):
    Image.new("RGB", (9, 7), (255, 0, 51)).save(tmp_path / "cat.png")
    document = run_json(capsys, model(IMAGE), "--input", f"image={tmp_path / 'cat.png'}")
    (same,) = document["outputs"]
    assert same["shape"] == [1, 3, 4, 4]
    assert same["max"] == 1.0
    assert same["mean"] == pytest.approx((1 + 0 + 0.2) / 3)


def test_results_that_json_has_no_number_for(model, tmp_path: Path, capsys):
    np.save(tmp_path / "x.npy", np.float32([-1, 0, 1]))
    (y,) = run_json(capsys, model(LOG), "--input", f"x={tmp_path / 'x.npy'}")["outputs"]
    assert y["values"] == ["nan", "-inf", 0.0]
    assert (y["nan"], y["inf"], y["max"]) == (1, 1, 0.0)


def test_repeat_gives_the_best(model, capsys):
    path = model(LOG)
    assert main(["run", path, "--input", "x=random", "--repeat", "3"]) == 0
    assert "best of 3 more" in capsys.readouterr().out
    seconds = run_json(capsys, path, "--input", "x=random", "--repeat", "3")["seconds"]
    assert seconds["repeats"] == 3
    assert 0 < seconds["best_run"] < 60


@pytest.mark.parametrize("level", [0, 1, 2, 99])
def test_every_level_gives_the_same(level, model, capsys):
    document = run_json(capsys, model(LOG), "--input", "x=random:3", "--level", str(level))
    expected = run_json(capsys, model(LOG), "--input", "x=random:3")
    assert document["outputs"] == expected["outputs"]


def test_outputs_are_saved(model, tmp_path: Path, capsys):
    path = model(ADD)
    inputs = ["--input", "a=random:1", "--input", "b=random:2"]
    archive = tmp_path / "out.npz"
    saved = run_json(capsys, path, *inputs, "--output", str(archive))["saved"]
    assert saved == [str(archive)]
    with np.load(archive) as loaded:
        assert np.array_equal(loaded["total"] * 2, loaded["twice"])
    assert main(["run", path, *inputs, "--output", str(tmp_path / "out")]) == 0
    assert f"saved      {tmp_path / 'out' / 'total.npy'}" in capsys.readouterr().out
    assert np.load(tmp_path / "out" / "twice.npy").shape == (1, 3)


def test_a_provider_and_its_options_are_chosen(model, capsys):
    arguments = [model(LOG), "--input", "x=random", "--providers", "ReferenceExecutionProvider"]
    option = ["--provider-option", "ReferenceExecutionProvider.level=3"]
    document = run_json(capsys, *arguments, *option)
    assert document["placement"]["providers"] == ["reference"]


UNKNOWN_RANK = """
    <ir_version: 9, opset_import: ["" : 20]>
    sum (float[] x) => (float[] y) { y = ReduceSum (x) }
"""
MIXED = """
    <ir_version: 9, opset_import: ["" : 20]>
    mixed (float[2, batch] x, int64 rate, string[n] words)
        => (float[2, batch] y, int64 same, string[n] said)
    { y = Abs (x)  same = Identity (rate)  said = Identity (words) }
"""


def test_values_are_written_out(model, capsys):
    words = ["--input", 'words="a","b c"']
    document = run_json(
        capsys,
        model(MIXED),
        "--input",
        "x=-2.5",
        "--dim",
        "batch=3",
        "--input",
        "rate=16000",
        *words,
    )
    y, same, said = document["outputs"]
    assert (y["shape"], y["min"], y["max"]) == ([2, 3], 2.5, 2.5)
    assert (same["shape"], same["values"]) == ([], [16000])
    assert said["values"] == ["a", "b c"]
    assert [entry["source"] for entry in document["inputs"]] == ["-2.5", "16000", '["a", "b c"]']


def test_a_shape_is_given_where_the_model_has_none(model, tmp_path: Path, capsys):
    path = model(UNKNOWN_RANK)
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    (y,) = run_json(capsys, path, "--input", "x=1", "--shape", "x=2,3,4")["outputs"]
    assert y["max"] == 24
    (y,) = run_json(capsys, path, "--input", "x=random")["outputs"]
    assert y["max"] < 1


def test_a_shape_replaces_open_dimensions_only(model, capsys):
    path = model(ADD)
    inputs = ["--input", "a=1", "--input", "b=2"]
    document = run_json(capsys, path, *inputs, "--shape", "a=5,3", "--shape", "b=5,3")
    assert document["outputs"][0]["shape"] == [5, 3]
    assert main(["run", path, *inputs, "--shape", "a=5,4"]) == 1
    assert "--shape a contradicts the model" in capsys.readouterr().err
    assert main(["run", path, *inputs, "--shape", "c=5,4"]) == 1
    assert "the model has no input 'c'" in capsys.readouterr().err


def test_random_values_that_a_model_cannot_work_with_are_named(model, capsys):
    path = model(
        """
        <ir_version: 9, opset_import: ["" : 20]>
        pick (float[3] x, int64[n] at) => (float[n] y) { y = Gather (x, at) }
        """
    )
    assert main(["run", path, "--input", "x=random", "--input", "at=7"]) == 1
    assert "Random values were fed to: x." in capsys.readouterr().err
    assert main(["run", path, "--input", "x=1", "--input", "at=7"]) == 1
    assert "Random values" not in capsys.readouterr().err


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "x: tensor(float) [n]"),
        (["--input", "y=random"], "no input 'y'"),
        (["--input", "x=random", "--input", "x=random"], "--input x is given twice"),
        (["--input", "x=absent.npy"], "can't read arrays from 'absent.npy'"),
        (["--input", "x=absent.png"], "can't take an image"),
        (["--input", "x=random", "--dim", "m=2"], "no input has an open dimension 'm'"),
        (["--input", "x=random", "--dim", "n=1", "--dim", "n=2"], "--dim n is given twice"),
        (["--input", "x=random", "--providers", "nonsense"], "nonsense"),
        (["--input", "x=random", "--providers", "absent"], "no such chip in this machine"),
        (["--input", "x=random", "--provider-option", "reference.level=1"], "Add --providers"),
        (
            [*CHOSEN, "--provider-option", "refrence.level=1"],
            "Did you mean 'reference'?",
        ),
        (
            [*CHOSEN, "--provider-option", "reference.lvel=1"],
            "Did you mean 'level'?",
        ),
        (
            [*CHOSEN, "--provider-option", "reference.level=high"],
            "a whole number",
        ),
        (["--input", "x=random", "--output", "/dev/null/y.npz"], "can't save the outputs"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_1(arguments, message, model, capsys):
    assert main(["run", model(LOG), *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("ep: error: ")
    assert message in shown.err
    assert "Traceback" not in shown.err


def test_a_feed_of_the_wrong_type_is_explained(model, tmp_path: Path, capsys):
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert main(["run", model(LOG), "--input", f"x={tmp_path / 'x.npy'}"]) == 1
    assert "float64" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b"not a model"])
def test_a_file_that_is_no_model_is_explained(content, tmp_path: Path, capsys):
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    assert main(["run", str(path), "--input", "x=random"]) == 1
    assert capsys.readouterr().err.startswith("ep: error: ")
