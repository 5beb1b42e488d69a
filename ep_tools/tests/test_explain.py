from __future__ import annotations

import json

import pytest

from ep_tools.cli import main

pytestmark = pytest.mark.usefixtures("providers")

CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[n] x, bool flag) => (float[n] y, float[n] z) {
        a = Abs (x)  b = Mul (a, x)  c = Neg (b)  y = Mul (c, c)
        z = If (flag) <
            then_branch = yes () => (float[n] p) { p = Abs (y) },
            else_branch = no () => (float[n] q) { q = Neg (y) }
        >
    }
"""
SKEWED = ["--providers", "skewed,reference", "--level", "0"]


def explain(capsys, *arguments: str) -> str:
    assert main(["explain", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_partitions_and_reasons_are_shown(model, capsys):
    shown = explain(capsys, model(CHAIN), *SKEWED)
    lines = shown.splitlines()
    assert lines[0].startswith("placement   skewed 2 of ")
    assert "skewed (npu 0)" in shown
    assert "    2 nodes: " in shown
    assert "  skewed: operator Neg has no kernel" in lines
    assert "skewed: operator If has no kernel" not in shown, "the core runs it"
    assert "copies between memories" not in shown


def test_all_shows_every_node_with_its_runner_up(model, capsys):
    shown = explain(capsys, model(CHAIN), *SKEWED, "--all")
    rows = [line.split() for line in shown.splitlines()]
    muls = [row for row in rows if row[1:3] == ["Mul", "skewed"]]
    assert len(muls) == 2
    assert all(row[-2:] == ["next:", "reference"] for row in muls)
    (neg,) = [line for line in shown.splitlines() if " Neg " in line and "else_branch" not in line]
    assert "not skewed: operator Neg has no kernel" in neg
    assert any("/else_branch: " in line for line in shown.splitlines())


def test_a_long_listing_is_cut_unless_all_is_wanted(model, capsys):
    body = " ".join(
        f"{'x' if i % 2 else 'm'}{i} = {'Abs' if i % 2 else 'Mul'} "
        + (f"(m{i - 1})" if i % 2 else f"({'x' if i == 0 else f'x{i - 1}'}, x)")
        for i in range(40)
    )
    head = '<ir_version: 9, opset_import: ["" : 20]> g (float[n] x) => (float[n] x39)'
    path = model(f"{head} {{ {body} }}")
    short = explain(capsys, path, *SKEWED)
    assert "  and 29 more, which --all shows" in short.splitlines()
    long = explain(capsys, path, *SKEWED, "--all")
    assert "which --all shows" not in long
    assert long.count("skewed (npu 0)") == 20


def test_json_has_everything(model, capsys):
    document = json.loads(explain(capsys, model(CHAIN), *SKEWED, "--json"))
    by_name = {node["node"]: node for node in document["nodes"][""]}
    assert sorted(node["provider"] for node in by_name.values()) == [
        "core",
        "reference",
        "reference",
        "skewed",
        "skewed",
    ]
    assert document["providers"] == ["skewed", "reference"]
    assert document["copies"] == []


def test_nodes_can_be_pinned_and_limited(model, capsys):
    path = model(CHAIN)
    document = json.loads(explain(capsys, path, *SKEWED, "--pin", "op:Mul=reference", "--json"))
    owners = {node["op_type"]: node for node in document["nodes"][""]}
    assert owners["Mul"]["provider"] == "reference"
    assert owners["Mul"]["reason"] == "pinned by 'op:Mul'"
    assert document["strategy"] == "greedy"
    document = json.loads(explain(capsys, path, *SKEWED, "--strategy", "cost", "--json"))
    assert document["basis"].startswith("asked for")
    assert document["predicted_seconds"] > 0
    limit = ["--max-partitions", "0"]
    assert main(["explain", path, *SKEWED, *limit]) == 1
    assert "max_partitions=0 contradicts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--providers", "nonsense"], "nonsense"),
        (["--pin", "op:Nothing=reference"], "pin 'op:Nothing' matches no node"),
        (["--pin", "*=nonsense"], "names provider 'nonsense', which isn't in the session"),
        (["--pin", "*=reference", "--pin", "*=reference"], "--pin * is given twice"),
        (["--memory-limit", "nonsense=5"], "memory_limits names provider 'nonsense'"),
        (["--memory-limit", "reference=5MiB"], "'reference', which works in host memory"),
        (["--memory-limit", "a=1", "--memory-limit", "a=2"], "--memory-limit a is given twice"),
        (["--providers", "absent"], "no such chip in this machine"),
        (["--dim", "m=3"], "No input has an open dimension 'm'"),
        (["--dim", "n=3", "--dim", "n=4"], "--dim n is given twice"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_1(arguments, message, model, capsys):
    assert main(["explain", model(CHAIN), *arguments]) == 1
    assert message in capsys.readouterr().err
