"""Claims: OpenVINO's own answers under ONNX names, and reasons for everything else."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from openvino_harness import graph_of, open_provider, reasons

from ep_core.graph import Initializer
from ep_core.types import DataType, TensorType
from ep_openvino import answers
from ep_openvino.library import open_core
from ep_openvino.provider import OpenVinoProvider
from ep_openvino.side_by_side import read_apart
from ep_openvino.signature import NodeSignature, signature_of


def reason(provider: OpenVinoProvider, text: str, **constants: object) -> str:
    """Why the last node of a graph is refused."""
    graph = graph_of(text)
    made = {name: Initializer.from_array(name, np.asarray(v)) for name, v in constants.items()}
    inputs = tuple(info for info in graph.inputs if info.name not in made)
    return reasons(provider, graph.replace(inputs=inputs, initializers=made))[-1]


def test_a_whole_network_is_taken(provider: OpenVinoProvider) -> None:
    graph = graph_of("""g (float[n,3,32,32] x, float[8,3,3,3] w, float[8] b) => (float[n,8] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        r = Relu (c)
        p = GlobalAveragePool (r)
        f = Flatten (p)
        y = Softmax (f)
    }""")
    assert reasons(provider, graph) == [""] * 5


def test_one_node_is_refused_and_the_others_are_taken(provider: OpenVinoProvider) -> None:
    strange = graph_of("""g (float[4,4] x) => (float[4,4] y, float d) {
        r = Relu (x)
        d = Det (r)
        y = Sigmoid (r)
    }""")
    found = reasons(provider, strange)
    assert [bool(text) for text in found] == [False, True, False]
    assert "No conversion rule found for operations: Det" in found[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (double[2] x) => (double[2] y) { y = Relu (x) }", "double, which OpenVINO computes in"),
        ("g (uint64[2] x) => (uint64[2] y) { y = Identity (x) }", "uint64, which OpenVINO"),
        ("g (int64[2] x) => (int64[2] y) { y = Abs (x) }", "'x' is int64, which OpenVINO"),
        ("g (float[2] x) => (int64[2] y) { y = Cast <to = 7> (x) }", "'y' is int64, which"),
        ("g (bfloat16[2] x) => (bfloat16[2] y) { y = Relu (x) }", r"tensor\(bfloat16\), which"),
        ("g (string[2] x) => (string[2] y) { y = Identity (x) }", r"tensor\(string\), which"),
        ("g (seq(float[2]) x) => (int64 y) { y = SequenceLength (x) }", "takes tensors only"),
        ("g (optional(float[2]) x) => (bool y) { y = OptionalHasElement (x) }", "tensors only"),
    ],
)
def test_values_that_it_does_not_compute_as_declared(
    provider: OpenVinoProvider, text: str, expected: str
) -> None:
    assert re.search(expected, reason(provider, text))


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather (x, i) }",
        "g (float[4,3] x) => (int64[2] y) { y = Shape (x) }",
        "g (int64[4,3] x) => (int64[2] y) { y = Shape (x) }",
        "g (float[4,3] x) => (int64[4,1] y) { y = ArgMax <axis = 1> (x) }",
        "g (float[4,3] x, int64[2] s) => (float[a,b] y) { y = Reshape (x, s) }",
    ],
)
def test_int64_that_counts_elements_is_taken(provider: OpenVinoProvider, text: str) -> None:
    assert reason(provider, text) == ""


def test_shapes_that_are_worked_out_are_taken(provider: OpenVinoProvider) -> None:
    graph = graph_of("""g (float[n,m,8] x) => (float[a,b] y) {
        zero = Constant <value_ints = [0]> ()
        eight = Constant <value_ints = [8]> ()
        s = Shape (x)
        n = Gather (s, zero)
        rest = Slice (s, zero, eight)
        k = Mul (rest, eight)
        t = Concat <axis = 0> (n, k)
        y = Reshape (x, t)
    }""")
    nodes = tuple(node for node in graph.nodes if node.op_type != "Constant")
    constants = {
        "zero": Initializer.from_array("zero", np.array([0])),
        "eight": Initializer.from_array("eight", np.array([8])),
    }
    assert reasons(provider, graph.replace(nodes=nodes, initializers=constants)) == [""] * 6


def test_shapes_of_equal_numbers(provider: OpenVinoProvider) -> None:
    text = """g (float[n,m] x) => (int64[2] y)
        {{ s = Shape (x)  t = Shape (s)  c = ConstantOfShape <value = int64[1] {{{}}}> (t)
           y = Mul (s, c) }}"""
    assert reason(provider, text.format(-1)) == ""
    assert "int64" in reason(provider, text.format(2**40))


def test_what_openvino_gets_wrong_of_shapes_is_refused(provider: OpenVinoProvider) -> None:
    text = "g (float[n,m] x) => (int64[2] y) { s = Shape (x)  y = Abs (s) }"
    assert "int64" in reason(provider, text)


def test_int64_constants_count_by_their_values(provider: OpenVinoProvider) -> None:
    text = "g (float[4] x, int64[1] c) => (int64[1] y) { s = Shape (x)  y = Mul (s, c) }"
    assert reason(provider, text, c=[8]) == ""
    # A length of 30,000 times this is more than 32 bits hold.
    assert "int64" in reason(provider, text, c=[100_000])
    assert reason(provider, text.replace("Mul", "Add"), c=[100_000]) == ""
    assert "int64" in reason(provider, text.replace("Mul", "Add"), c=[2**40])
    assert "int64" in reason(provider, text)


def test_shapes_that_are_not_known_can_be_left_to_others() -> None:
    provider = open_provider(dynamic_shapes="off")
    assert "dynamic_shapes is off" in reason(
        provider, "g (float[n] x) => (float[n] y) { y = Relu (x) }"
    )
    assert reason(provider, "g (float[3] x) => (float[3] y) { y = Relu (x) }") == ""
    provider.close()


def test_the_body_of_a_loop_is_left_to_the_core(provider: OpenVinoProvider) -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] a) { a = Relu (x) },
            else_branch = e () => (float[2] b) { b = Neg (x) }
        >
    }"""
    assert "bodies" in reason(provider, text)


def test_openvino_is_asked_once_about_equal_nodes(
    provider: OpenVinoProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_known", {})
    asked = []
    real = answers.read_apart
    monkeypatch.setattr(answers, "read_apart", lambda *a: asked.append(a) or real(*a))
    text = "g (float[7,n] x) => (float[7,n] y) { a = Elu (x)  b = Elu (a)  y = Elu (b) }"
    graph = graph_of(text)
    assert reasons(provider, graph) == [""] * 3
    assert reasons(provider, graph_of(text.replace("n]", "other]"))) == [""] * 3
    assert len(asked) == 1
    changed = graph_of(text.replace("b = Elu", "b = Elu <alpha = 2.0>"))
    assert reasons(provider, changed) == [""] * 3
    assert len(asked) == 2


def signatures_of(text: str, opset: int = 20) -> list[NodeSignature]:
    graph = graph_of(text, opset)
    return [signature_of(graph, node) for node in graph.nodes]


def test_answers_about_many_are_those_about_each(provider: OpenVinoProvider) -> None:
    asked = answers.Answers(open_core(), "CPU")
    text = """g (float[4,4] x, int64[4] k, uint8[4,4] u) => (float[4,4] y) {
        d = Det (x)
        s = Softplus (x)
        i = Identity (x)
        h = Shape (x)
        c = Concat <axis = 0> (x, x, i)
        v, w = TopK <axis = 1> (x, k)
        p, q, r = Split <axis = 0, num_outputs = 3> (c)
        f = StringNormalizer (u)
        e = Erf (x)
        y = MatMul (x, s)
    }"""
    wanted = [*signatures_of(text), *signatures_of(text.replace(", num_outputs = 3", ""), 12)]
    together = asked._ask(wanted)
    alone = {}
    for signature in wanted:
        alone |= asked._ask([signature])
    assert together == alone
    assert any("can't read" in told for told in alone.values())
    assert list(alone.values()).count("") > 8


def test_models_that_were_read_together_have_nothing_in_common() -> None:
    graphs = [
        signature.graph
        for signature in signatures_of(
            "g (float[n,4] x, float[4,2] w) => (float[n,2] y) { a = Relu (x)  y = MatMul (a, w) }"
        )
    ]
    relu, product = read_apart(open_core(), graphs)
    kinds = sorted(operator.get_type_name() for operator in relu.get_ops())
    assert kinds == ["Parameter", "Relu", "Result"]
    assert "MatMul" in [op.get_type_name() for op in product.get_ops()]
    assert len(product.inputs) == 2
    assert product.outputs[0].get_partial_shape()[1].get_length() == 2


def test_a_signature_is_made_anew_where_the_surroundings_differ() -> None:
    graph = graph_of("g (float[n,4] x) => (float[n,4] y) { y = Relu (x) }")
    (node,) = graph.nodes
    known = signature_of(graph, node)
    assert signature_of(graph, node) is known
    fixed = {
        n: replace(i, type=TensorType(DataType.FLOAT, (2, 4))) for n, i in graph.values.items()
    }
    assert signature_of(graph.replace(values=fixed), node).key != known.key
