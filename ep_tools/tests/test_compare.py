from __future__ import annotations

import json
import sys

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from ep_core.errors import EpError
from ep_core.signature import NodeArg
from ep_tools.cli import main
from ep_tools.console import Console
from ep_tools.layers import GROUP_SIZE, compare_layers
from ep_tools.progress import Progress
from ep_tools.requests import Tolerance

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[3] x) => (float[3] y, float[3] same) {
        a = Abs (x)  same = Neg (a)  b = Mul (a, x)  c = Abs (b)  y = Mul (c, c)
    }
"""
BRANCHES = """
    <ir_version: 9, opset_import: ["" : 20]>
    branches (bool flag, float[3] x) => (float[3] y) {
        a = Abs (x)
        y = If (flag) <
            then_branch = yes () => (float[3] p) { p = Mul (a, x) },
            else_branch = no () => (float[3] q) { q = Neg (a) }
        >
    }
"""


def compare(capsys, code: int, *arguments: str):
    assert main(["compare", *arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_two_levels_agree(model, capsys):
    document = compare(capsys, 0, model(CHAIN), "level:0", "level:99", "--input", "x=random:3")
    assert document["agree"] is True
    assert [entry["name"] for entry in document["outputs"]] == ["y", "same"]
    assert [entry["mismatches"] for entry in document["outputs"]] == [0, 0]
    assert document["sides"][0]["placement"].startswith("reference 5 of 5 nodes")


def test_inputs_are_random_if_nothing_is_said(model, capsys):
    assert compare(capsys, 0, model(CHAIN), "reference", "level:1")["agree"] is True


def test_outputs_that_differ_are_exit_code_1(model, capsys):
    document = compare(capsys, 1, model(CHAIN), "skewed,reference", "reference", "--input", "x=2")
    y, same = document["outputs"]
    # Abs(2) = 2; Mul gives 4.5 in place of 4; the square 20.75 in place of 16.
    assert (y["max_abs"], y["max_rel"], y["mismatches"]) == (4.75, 4.75 / 16, 3)
    assert y["worst_values"] == ["20.75", "16.0"]
    assert same["agrees"] is True


def test_the_tolerance_decides(model, capsys):
    arguments = [model(CHAIN), "skewed,reference", "reference", "--input", "x=2"]
    assert compare(capsys, 0, *arguments, "--atol", "5")["agree"] is True
    assert compare(capsys, 0, *arguments, "--rtol", "0.3")["agree"] is True
    assert compare(capsys, 1, *arguments, "--rtol", "0.29")["agree"] is False


def test_lines_say_where_and_how_much(model, capsys):
    path = model(CHAIN)
    assert main(["compare", path, "skewed,reference", "reference", "--input", "x=2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("A  skewed,reference  skewed 2 of ")
    assert lines[1].startswith("B  reference         reference ")
    assert lines[4].split() == ["y", "tensor(float)", "[3]", "4.75e+00", "2.97e-01", "3", "of", "3"]
    assert lines[-1] == "1 of 2 outputs differ (rtol 0.001, atol 0.0001)"
    assert main(["compare", path, "level:0", "level:1"]) == 0
    assert "all outputs agree" in capsys.readouterr().out


# ---------------------------------------------------------------- layers


def test_the_first_node_that_differs_is_found(model, capsys):
    arguments = [model(CHAIN), "skewed,reference", "reference", "--input", "x=2", "--layers"]
    layers = compare(capsys, 1, *arguments)["layers"]
    assert layers["first"]["operator"] == "Mul"
    assert layers["first"]["name"] == "b"
    assert layers["first"]["providers"] == ["skewed", "reference"]
    assert [(entry["name"], entry["agrees"]) for entry in layers["values"]] == [
        ("a", True),
        ("same", True),
        ("b", False),
        ("c", False),
        ("y", False),
    ]
    assert main(["compare", *arguments]) == 1
    shown = capsys.readouterr().out
    assert "b[0] is 4.5 on skewed,reference, 4.0 on reference" in shown
    assert ", number 2, on skewed and reference" in shown


def test_isolated_nodes_are_judged_by_their_own_inputs(model, capsys):
    arguments = [model(CHAIN), "skewed,reference", "reference", "--input", "x=2", "--isolate"]
    layers = compare(capsys, 1, *arguments)["layers"]
    assert layers["isolated"] is True
    # Only the two products are wrong, by one half each; what they feed is right by itself.
    wrong = [(e["name"], e["max_abs"]) for e in layers["values"] if not e["agrees"]]
    assert wrong == [("b", 0.5), ("y", 0.5)]
    assert [e["name"] for e in layers["values"]] == ["a", "same", "b", "c", "y"]
    assert layers["first"]["name"] == "b"
    assert [(e["name"], e["min"], e["max"]) for e in layers["first_inputs"]] == [
        ("a", 2, 2),
        ("x", 2, 2),
    ]
    assert main(["compare", *arguments]) == 1
    shown = capsys.readouterr().out
    assert "nodes by themselves" in shown
    assert ", number 2, on skewed\n" in shown
    assert "reads a  tensor(float) [3]  2 to 2" in shown


def test_isolated_control_flow_and_constants(model, capsys):
    text = BRANCHES.replace(
        "a = Abs (x)", "two = Constant <value_float = 2.0> ()  a = Mul (x, two)"
    )
    arguments = ["--input", "flag=false", "--input", "x=2", "--isolate"]
    layers = compare(capsys, 1, model(text), "skewed,reference", "reference", *arguments)["layers"]
    assert layers["first"]["operator"] == "Mul"
    assert [(e["operator"], e["agrees"]) for e in layers["values"]] == [
        ("Mul", False),
        ("If", True),
    ]


def test_errors_that_no_node_makes_alone(capsys, monkeypatch):
    model = onnx.parser.parse_model(CHAIN).SerializeToString()
    seen = []

    class Fused:
        """Runs whole models wrongly, and single nodes rightly."""

        def __init__(self, serialized):
            self.evaluator = ReferenceEvaluator(onnx.load_from_string(serialized))
            self.off = len(self.evaluator.proto_.graph.node) > 1
            seen.append(self.off)

        def run(self, names, feeds):
            values = self.evaluator.run(None, feeds)
            return [value + self.off for value in values]

        def close(self):
            pass

    class Right(Fused):
        def run(self, names, feeds):
            return self.evaluator.run(None, feeds)

    report = compare_layers(
        model,
        (Fused, Right),
        {"x": np.float32([1, 2, 3])},
        Tolerance(),
        ["y"],
        Progress(Console(), ""),
        isolate=True,
    )
    assert report.first is None
    assert "No node differs by itself" in report.notes[0]
    assert {True, False} == set(seen)


def test_statistics_of_layers(model, capsys):
    arguments = [model(CHAIN), "skewed,reference", "reference", "--input", "x=2", "--layers"]
    b = compare(capsys, 1, *arguments)["layers"]["first"]
    # 4.5 in place of 4: one eighth of it, and 2^20 steps, which from 4 on are 2^-21 long.
    assert (b["max_abs"], b["max_rel"], b["max_ulp"]) == (0.5, 0.125, 2**20)
    assert b["nmse"] == pytest.approx(0.125**2)


def test_reducing_needs_the_kit_and_says_so_before_it_runs(model, capsys, monkeypatch, tmp_path):
    arguments = [model(CHAIN), "skewed,reference", "reference", "--reduce"]
    monkeypatch.setitem(sys.modules, "ep_compliance", None)
    monkeypatch.setitem(sys.modules, "ep_compliance.running.shrink", None)
    assert main(["compare", *arguments, str(tmp_path / "small.onnx")]) == 1
    assert "pip install ep-compliance" in capsys.readouterr().err


def test_layers_that_agree(model, capsys):
    document = compare(capsys, 0, model(CHAIN), "level:0", "level:99", "--layers")
    assert document["layers"]["first"] is None
    assert document["layers"]["notes"] == []


def test_a_body_counts_as_a_whole_and_the_report_says_so(model, capsys):
    arguments = [model(BRANCHES), "skewed,reference", "reference", "--input", "flag=true"]
    layers = compare(capsys, 1, *arguments, "--input", "x=2", "--layers")["layers"]
    assert layers["first"]["operator"] == "If"
    assert "2 nodes are inside bodies" in layers["notes"][0]


class Fusing:
    """A session that gets `b` wrong where it isn't an output, as if it were fused into `y`."""

    def __init__(self, model: bytes) -> None:
        self.proto = onnx.load_model_from_string(model)
        self.session = ReferenceEvaluator(self.proto)

    def get_outputs(self):
        return [NodeArg(value.name, "", []) for value in self.proto.graph.output]

    def run(self, output_names, feeds):
        names = [value.name for value in self.proto.graph.output]
        return [
            value + (name in ("c", "y") and "b" not in names)
            for name, value in zip(names, self.session.run(None, feeds), strict=True)
        ]

    def close(self):
        pass


class Exact(Fusing):
    def run(self, output_names, feeds):
        return self.session.run(None, feeds)


class Failing(Exact):
    def run(self, output_names, feeds):
        if any(value.name == "b" for value in self.proto.graph.output):
            raise EpError("b can't be had")
        return super().run(output_names, feeds)


def layers_of(path: str, first, second, differing=()):
    progress = Progress(Console(None, None, {"TERM": "dumb"}), "")
    feeds = {"x": np.float32([1, -2, 3])}
    return compare_layers(path, (first, second), feeds, Tolerance(), differing, progress)


def test_a_difference_that_fusing_makes_is_found_one_at_a_time(model):
    report = layers_of(model(CHAIN), Fusing, Exact, ["y"])
    assert all(layer.difference.agrees for layer in report.layers)
    assert report.first is not None
    assert report.first.difference.name == "c"
    assert "one output at a time" in report.notes[-1]


def test_a_difference_that_hides_is_not_made_up(model):
    report = layers_of(model(CHAIN), Exact, Exact, ["y"])
    assert report.first is None


def test_a_value_that_cannot_be_an_output_is_told_and_the_rest_compared(model):
    report = layers_of(model(CHAIN), Failing, Exact)
    assert [layer.difference.name for layer in report.layers] == ["a", "same", "c", "y"]
    assert report.failures == {"b": "b can't be had"}
    assert report.notes == ("b can't be compared: b can't be had",)


def test_a_model_that_never_runs_is_given_up(model):
    class Never(Exact):
        calls = 0

        def run(self, output_names, feeds):
            type(self).calls += 1
            raise EpError("no")

    body = " ".join(f"x{i + 1} = Abs (x{i})" for i in range(3 * GROUP_SIZE))
    last = f"x{3 * GROUP_SIZE}"
    head = f'<ir_version: 9, opset_import: ["" : 20]> g (float[3] x0) => (float[3] {last})'
    path = model(f"{head} {{ {body} }}")
    report = layers_of(path, Never, Exact)
    assert report.layers == ()
    assert "the rest was left out" in report.notes[-1]
    assert Never.calls < 20


def test_dead_nodes_are_left_out(model):
    text = CHAIN.replace("same = Neg (a)", "same = Neg (a)  dead = Sqrt (x)")
    names = [layer.difference.name for layer in layers_of(model(text), Exact, Exact).layers]
    assert names == ["a", "same", "b", "c", "y"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reference", "nonsense"], "nonsense"),
        (["absent", "reference"], "no such chip in this machine"),
        (["reference", "level:0", "--input", "z=1"], "no input 'z'"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_1(arguments, message, model, capsys):
    assert main(["compare", model(CHAIN), *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err


def test_without_onnxruntime_the_remedy_is_told(model, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["compare", model(CHAIN), "reference", "onnxruntime"]) == 1
    assert "pip install onnxruntime" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["a", "level:7"],
        ["a", "level:"],
        ["a", "level:99999999999999999999"],
        ["a", "b,,c"],
        ["a", "b", "--rtol", "-1"],
        ["a", "b", "--rtol", "nan"],
        ["a", "b", "--atol", "inf"],
        ["a", "b", "--atol", "much"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    assert main(["compare", "m.onnx", *arguments]) == 2
    assert "usage: ep compare" in capsys.readouterr().err
