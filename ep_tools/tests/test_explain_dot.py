"""`ep explain --dot`: text that Graphviz takes, whatever names a model has."""

from __future__ import annotations

import re
import shutil
import subprocess

import onnx
import pytest
from onnx import TensorProto, helper

from ep_tools.cli import main

pytestmark = pytest.mark.usefixtures("providers")

SKEWED = ["--providers", "skewed,reference", "--level", "0"]
HOSTILE = [
    '"];}',
    "</script>",
    "a\\",
    'q"\\"',
    "&lt;&",
    "\u202e\u2028",
    "tab\there",
    "é" * 10_000,
    "\\N",
]

TOKEN = re.compile(
    r'\s+|"(?:[^"\\]|\\.)*"|->|[A-Za-z_\x80-\uffff][\w\x80-\uffff]*|-?\d+|[{}\[\];=,]'
)


def parse(text: str) -> dict:
    """Read the part of the DOT grammar that graphs are written in; nothing else is let through.

    https://graphviz.org/doc/info/lang.html
    """
    tokens = []
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        assert found, f"no token at {text[at : at + 40]!r}"
        if not found[0].isspace():
            tokens.append(found[0])
        at = found.end()
    graph = {"nodes": {}, "edges": [], "clusters": {}}
    rest = iter(tokens)

    def attributes() -> dict[str, str]:
        got = {}
        while (name := next(rest)) != "]":
            if name == ",":
                continue
            assert next(rest) == "="
            got[name] = next(rest)
        return got

    def statements(cluster: str | None) -> None:
        for token in rest:
            if token == "}":
                return
            if token == ";":
                continue
            if token == "subgraph":
                name = next(rest)
                assert next(rest) == "{"
                graph["clusters"][name] = []
                statements(name)
                continue
            follows = next(rest)
            if follows == "=":
                next(rest)
            elif follows == "->":
                target = next(rest)
                assert next(rest) == "["
                graph["edges"].append((token, target, attributes()))
            else:
                assert follows == "["
                got = attributes()
                if token not in ("graph", "node", "edge"):
                    assert token not in graph["nodes"]
                    graph["nodes"][token] = got
                    graph["clusters"][cluster].append(token)
        raise AssertionError("a brace isn't closed")

    assert (next(rest), next(rest), next(rest)) == ("digraph", "placement", "{")
    statements(None)
    assert not list(rest)
    return graph


def dot_of(capsys, path: str, *arguments: str) -> str:
    assert main(["explain", path, *arguments, "--dot", "-"]) == 0
    return capsys.readouterr().out


def hostile_model(tmp_path) -> str:
    previous = "x"
    nodes = []
    for place, name in enumerate(HOSTILE):
        nodes.append(helper.make_node(["Abs", "Neg"][place % 2], [previous], [name], name=name))
        previous = name
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [2])],
        [value(previous, TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "hostile.onnx"
    onnx.save(model, path)
    return str(path)


def test_nodes_edges_and_clusters(model, capsys):
    path = model("""
        <ir_version: 9, opset_import: ["" : 20]>
        chain (float[n] x, bool flag) => (float[n] y, float[n] z) {
            a = Abs (x)  b = Mul (a, x)  y = Neg (b)
            z = If (flag) <
                then_branch = yes () => (float[n] p) { p = Abs (y) },
                else_branch = no () => (float[n] q) { q = Neg (y) }
            >
        }
    """)
    graph = parse(dot_of(capsys, path, *SKEWED))
    members = {name: len(nodes) for name, nodes in graph["clusters"].items() if "_p" in name}
    assert members == {
        "cluster_s0_p0": 1,
        "cluster_s0_p1": 1,
        "cluster_s0_p2": 1,
        "cluster_s1_p0": 1,
        "cluster_s2_p0": 1,
    }
    labels = {name: node["label"] for name, node in graph["nodes"].items()}
    assert labels["s0_n1"] == r'"Mul\nMul_1"'
    inside = [(a, b) for a, b, _ in graph["edges"] if a.startswith("s0") and b.startswith("s0")]
    assert sorted(inside) == [
        ("s0_i0", "s0_n0"),
        ("s0_i0", "s0_n1"),
        ("s0_i1", "s0_n3"),
        ("s0_n0", "s0_n1"),
        ("s0_n1", "s0_n2"),
        ("s0_n2", "s0_n3"),
        ("s0_n2", "s0_o0"),
        ("s0_n3", "s0_o1"),
    ]
    bodies = [edge for edge in graph["edges"] if edge[2].get("style") == "dotted"]
    assert [edge[2]["lhead"] for edge in bodies] == ["cluster_s1", "cluster_s2"]


def test_hostile_names_stay_inside_their_quotes(tmp_path, capsys):
    graph = parse(dot_of(capsys, hostile_model(tmp_path), *SKEWED))
    operators = [node for node in graph["nodes"].values() if "fillcolor" in node]
    assert len(operators) == len(HOSTILE)
    assert r'\n\"];}"' in operators[0]["label"]
    assert max(len(node["label"]) for node in operators) < 200


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the command dot of Graphviz")
def test_graphviz_draws_it(tmp_path, capsys):
    text = dot_of(capsys, hostile_model(tmp_path), *SKEWED)
    drawn = subprocess.run(
        ["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout.count('class="node"') == len(HOSTILE) + 2
