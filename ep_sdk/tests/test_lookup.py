"""Claims: which row takes a node, and what a person is told when none does."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ep_core.contracts import FusedGroup, ProviderFeatures
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.types import DataType, OpSet, SequenceType, SparseTensorType, TensorType
from ep_sdk import KernelTable
from ep_sdk.lookup import type_positions

FLOAT = DataType.FLOAT
F16 = DataType.FLOAT16
INT64 = DataType.INT64


def never(node):
    raise AssertionError("claims don't make kernels")


def one_node(op_type, inputs, outputs, version=14, domain="", **attributes):
    """A graph of one node; inputs and outputs are (name, type) pairs."""
    values = {name: ValueInfo(name, kind) for name, kind in (*inputs, *outputs) if name}
    node = Node(
        "n",
        op_type,
        domain,
        version,
        tuple(name for name, _ in inputs),
        tuple(name for name, _ in outputs),
        attributes,
    )
    given = tuple(values[name] for name, _ in inputs if name)
    made = tuple(values[name] for name, _ in outputs if name)
    return Graph("g", given, made, (node,), {}, OpSet({"": 17}), values)


def add_graph(left, right, version=14):
    return one_node("Add", [("a", left), ("b", right)], [("c", left)], version)


@pytest.fixture
def answer(host_provider):
    def ask(table, graph, **attributes):
        (support,) = host_provider(table, **attributes).get_capability(graph).nodes
        assert support.supported == (not support.reason)
        return support.reason

    return ask


def tensor(dtype, *shape):
    return TensorType(dtype, shape)


def test_takes_what_a_row_describes(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [FLOAT]})(never)
    assert answer(table, add_graph(tensor(FLOAT, 2), tensor(FLOAT, 2))) == ""


def test_unknown_operator(answer):
    table = KernelTable({"": 17})
    assert answer(table, add_graph(tensor(FLOAT), tensor(FLOAT))) == "operator Add has no kernel"
    custom = one_node("Foo", [("a", tensor(FLOAT))], [], 1, "acme.ai")
    assert answer(table, custom) == "operator Foo of domain 'acme.ai' has no kernel"


def test_version_outside_of_every_row(answer):
    table = KernelTable({"": 13})
    table.kernel("Add", since=7, until=12, types={"T": [FLOAT]})(never)
    table.kernel("Add", since=13, types={"T": [FLOAT]})(never)
    graph = add_graph(tensor(FLOAT), tensor(FLOAT), version=14)
    assert answer(table, graph) == "version 14 of Add: kernels cover 7..12, 13..13"
    old = add_graph(tensor(FLOAT), tensor(FLOAT), version=6)
    assert answer(table, old).startswith("version 6 of Add")
    assert answer(table, add_graph(tensor(FLOAT), tensor(FLOAT), version=12)) == ""


def test_dtype_is_named_with_its_input(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [FLOAT]})(never)
    graph = add_graph(tensor(FLOAT, 2), tensor(DataType.INT4, 2))
    assert answer(table, graph) == "dtype int4 of input 'b'"


def test_output_types_count_too(answer):
    table = KernelTable({"": 17})
    table.kernel("Cast", types={"T1": [FLOAT], "T2": [F16]})(never)
    graph = one_node("Cast", [("a", tensor(FLOAT))], [("b", tensor(INT64))], 13, to=7)
    assert answer(table, graph) == "dtype int64 of output 'b'"


def test_types_by_position(answer):
    table = KernelTable({"com.microsoft": 1})
    table.kernel("Fused", domain="com.microsoft", types={1: [FLOAT]})(never)
    inputs = [("a", tensor(INT64)), ("b", tensor(F16))]
    graph = one_node("Fused", inputs, [("c", None)], 1, "com.microsoft")
    assert answer(table, graph) == "dtype float16 of input 'b'"
    graph = one_node("Fused", inputs[:1], [("c", None)], 1, "com.microsoft")
    assert answer(table, graph) == ""


def test_named_types_need_a_schema(answer):
    table = KernelTable({"com.acme": 1})
    table.kernel("Fused", domain="com.acme", types={"T": [FLOAT]})(never)
    graph = one_node("Fused", [("a", tensor(FLOAT))], [("c", None)], 1, "com.acme")
    assert "should name input positions" in answer(table, graph)


def test_the_first_row_that_fits_wins(host_provider, graph_of, run_on):
    table = KernelTable({"": 17})
    table.kernel("Neg", types={"T": [F16]})(never)
    table.kernel("Neg", types={"T": [FLOAT]})(lambda node: lambda x: x * 10)
    table.kernel("Neg", types={"T": [FLOAT]})(never)
    graph = graph_of("(float[2] x) => (float[2] y) { y = Neg(x) }")
    (result,) = run_on(host_provider(table), graph, np.ones(2, np.float32))
    np.testing.assert_array_equal(result, [10, 10])


def test_the_closest_row_gives_the_reason(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [F16]})(never)
    table.kernel("Add", since=7, types={"T": [FLOAT]}, predicate=lambda n: "only odd shapes")(never)
    graph = add_graph(tensor(FLOAT, 2), tensor(FLOAT, 2))
    assert answer(table, graph) == "only odd shapes"


def test_a_predicate_that_raises_is_a_no(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, predicate=lambda n: n.constants[7])(never)
    graph = add_graph(tensor(FLOAT, 2), tensor(FLOAT, 2))
    assert (
        answer(table, graph) == "the condition on Add failed: IndexError: tuple index out of range"
    )


def test_unknown_types(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [FLOAT]})(never)
    assert answer(table, add_graph(None, tensor(FLOAT))) == "type of input 'a' is unknown"
    assert answer(table, add_graph(None, tensor(FLOAT)), accept_unknown_types=True) == ""
    reason = answer(table, add_graph(None, tensor(F16)), accept_unknown_types=True)
    assert reason == "dtype float16 of input 'b'"


def test_values_that_are_no_tensors(answer):
    table = KernelTable({"": 17})
    table.kernel("SequenceLength", types={})(never)
    table.kernel("SequenceEmpty", types={})(never)
    sequence = SequenceType(tensor(FLOAT))
    reading = one_node("SequenceLength", [("s", sequence)], [("n", tensor(INT64))], 11)
    making = one_node("SequenceEmpty", [], [("s", sequence)], 11)
    assert "'s' is seq(tensor(float))" in answer(table, reading)
    assert "output 's' is seq(tensor(float))" in answer(table, making)
    willing = ProviderFeatures(non_tensor_values=True)
    assert answer(table, reading, features=willing) == ""
    assert answer(table, making, features=willing) == ""


def test_element_type_inside_a_sequence_counts(answer):
    table = KernelTable({"": 17})
    table.kernel("SequenceLength", types={"S": [FLOAT]})(never)
    graph = one_node(
        "SequenceLength", [("s", SequenceType(tensor(F16)))], [("n", tensor(INT64))], 11
    )
    willing = ProviderFeatures(non_tensor_values=True)
    assert answer(table, graph, features=willing) == "dtype float16 of input 's'"


def test_sparse_tensors_are_never_taken(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7)(never)
    graph = add_graph(SparseTensorType(FLOAT), tensor(FLOAT))
    willing = ProviderFeatures(non_tensor_values=True)
    assert "sparse_tensor(float)" in answer(table, graph, features=willing)


def test_nodes_with_bodies_are_left_to_the_core(answer):
    table = KernelTable({"": 17})
    table.kernel("If")(never)
    body = Graph("body", (), (), (), {}, OpSet({"": 17}))
    graph = one_node("If", [("c", tensor(DataType.BOOL))], [], 16, then_branch=body)
    assert answer(table, graph) == "If has a body graph, which kernels don't run"


def test_strange_graphs_don_t_raise(answer):
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [FLOAT], "X": [FLOAT]})(never)
    assert "'X'" in answer(table, one_node("Add", [], []))
    table = KernelTable({"": 17})
    table.kernel("Add", since=7, types={"T": [FLOAT], 9: [FLOAT]})(never)
    many = [(f"x{i}", tensor(FLOAT)) for i in range(5)]
    assert answer(table, one_node("Add", many, many)) == ""
    assert answer(table, one_node("Add", [("", None)], [("", None)])) == ""


def test_variadic_inputs_share_their_parameter():
    node = Node("n", "Concat", "", 13, ("a", "", "c"), ("d",))
    assert type_positions(node, "T") == ((0, 1, 2), (0,))
    node = Node("n", "Gather", "", 13, ("a", "b"), ("c",))
    assert type_positions(node, "T") == ((0,), (0,))
    assert type_positions(node, "Tind") == ((1,), ())
    node = Node("n", "ReduceSum", "", 13, ("a", "b"), ("c",))
    assert type_positions(node, "tensor(int64)") == ((1,), ())


def test_constants_are_read_one_by_one(host_provider, graph_of):
    read = []

    def predicate(node):
        assert len(node.constants) == 3
        assert node.constants[0] is None
        read.append(node.constants[1].tolist())
        return

    table = KernelTable({"": 17})
    table.kernel("Clip", predicate=predicate)(never)
    graph = graph_of(
        "(float[2] x) => (float[2] y) { y = Clip(x, low, high) }",
        low=np.float32(1),
        high=np.float32(2),
    )
    graph.initializers["high"]._read = lambda: pytest.fail("the other constant was read")
    provider = host_provider(table)
    assert provider.get_capability(graph).nodes[0].supported
    assert read == [1.0]


def test_what_a_provider_fuses_is_told(host_provider, graph_of):
    def fused_groups(self, graph, answers):
        claimed = [at for at, answer in enumerate(answers) if answer.supported]
        return [FusedGroup(tuple(claimed))] if len(claimed) > 1 else []

    table = KernelTable({"": 17})
    table.kernel("Relu")(never)
    graph = graph_of("(float[4] x) => (float[4] y) { a = Relu(x) b = Relu(a) y = Neg(b) }")
    provider = host_provider(table, fused_groups=fused_groups)
    assert provider.get_capability(graph).groups == (FusedGroup((0, 1)),)
    assert host_provider(table).get_capability(graph).groups == ()


def test_two_thousand_nodes_in_fifty_milliseconds(host_provider, graph_of):
    lines = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(2000))
    graph = graph_of(f"(float[4] v0) => (float[4] v2000) {{ {lines} }}")
    table = KernelTable({"": 17})
    table.kernel("Relu", types={"T": [F16]})(never)
    table.kernel("Relu", types={"T": [FLOAT]}, predicate=lambda node: None)(never)
    provider = host_provider(table)
    best = 1.0
    for _ in range(10):
        start = time.process_time()
        capability = provider.get_capability(graph)
        best = min(best, time.process_time() - start)
    assert len(capability.nodes) == 2000
    assert all(support.supported for support in capability.nodes)
    assert best < 0.05
