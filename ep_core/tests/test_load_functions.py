"""Model-local functions: inlined rightly, and refused before they can do harm."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ep_core.errors import InvalidModelError, ModelLimitError, NotSupportedError
from ep_core.loading.load import LoadLimits, load_model

node = helper.make_node
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)]


def function(name, nodes, inputs=("a",), outputs=("b",), *, opsets=OPSETS, **more):
    return helper.make_function("loc", name, inputs, outputs, nodes, opsets, **more)


def call(name, inputs, outputs, **attributes):
    return node(name, inputs, outputs, domain="loc", **attributes)


def model(functions, nodes, *, opsets=OPSETS):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [x, c], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def branch(*nodes):
    last = nodes[-1].output[0]
    return helper.make_graph(nodes, "branch", [], [helper.make_empty_tensor_value_info(last)])


def test_calls_are_replaced_by_what_they_compute():
    scale = function(
        "Scale",
        [
            node("Constant", [], ["k"]),
            node("Mul", ["a", "k"], ["m"]),
            node("If", ["t"], ["b"], then_branch=branch(node("Neg", ["m"], ["n"])),
                 else_branch=branch(node("Identity", ["m"], ["n"]))),
        ],
        inputs=("a", "t"),
        attributes=["by"],
    )  # fmt: skip
    scale.node[0].attribute.add(name="value_float", type=1, ref_attr_name="by")
    twice = function(
        "Twice",
        [call("Scale", ["a", "t"], ["h"], by=3.0), call("Scale", ["h", "t"], ["b"], by=0.5)],
        inputs=("a", "t"),
    )
    unused = function("Unused", [call("Unused", ["a"], ["b"])])
    nodes = [call("Twice", ["x", "c"], ["h"]), node("Add", ["h", "x"], ["y"])]
    proto = model([twice, scale, unused], nodes)
    graph = load_model(proto).graph
    assert {n.domain for n in graph.nodes} == {""}
    assert graph.type_of("y").static_shape == (2,)
    feeds = {"x": np.array([1, 2], np.float32), "c": np.array(True)}
    (found,) = ReferenceEvaluator(graph.to_model()).run(None, feeds)
    assert found.tolist() == [2.5, 5.0]  # x * -3 * -0.5 + x


def test_unused_functions_are_harmless():
    graph = load_model(
        model([function("F", [node("Neg", ["a"], ["b"])])], [node("Neg", ["x"], ["y"])])
    )
    assert [n.op_type for n in graph.graph.nodes] == ["Neg"]


def test_recursion():
    itself = function("F", [call("F", ["a"], ["b"])])
    through_if = function(
        "F",
        [
            node("Cast", ["a"], ["t"], to=TensorProto.BOOL),
            node("If", ["t"], ["b"], then_branch=branch(call("F", ["a"], ["n"])),
                 else_branch=branch(node("Neg", ["a"], ["n"]))),
        ],
    )  # fmt: skip
    ring = [function(f"F{i}", [call(f"F{(i + 1) % 3}", ["a"], ["b"])]) for i in range(3)]
    for functions, name, path in (
        ([itself], "F", "'loc.F' -> 'loc.F'"),
        ([through_if], "F", "'loc.F' -> 'loc.F'"),
        (ring, "F0", "'loc.F0' -> 'loc.F1' -> 'loc.F2' -> 'loc.F0'"),
    ):
        with pytest.raises(InvalidModelError, match=f"recursive functions: {path}"):
            load_model(model(functions, [call(name, ["x"], ["y"])]))


def test_exponential_growth_is_seen_before_it_happens():
    levels = [function("F0", [node("Neg", ["a"], ["b"])])]
    for i in range(1, 40):
        calls = [call(f"F{i - 1}", ["a"], ["h"]), call(f"F{i - 1}", ["h"], ["b"])]
        levels.append(function(f"F{i}", calls))
    started = time.perf_counter()
    with pytest.raises(ModelLimitError, match="max_nodes"):
        load_model(model(levels, [call("F39", ["x"], ["y"])]))
    assert time.perf_counter() - started < 1
    small = load_model(model(levels, [call("F5", ["x"], ["y"])]))
    assert len(small.graph.nodes) == 32


def test_chains_and_nesting_are_bounded():
    chain = [function("F0", [node("Neg", ["a"], ["b"])])]
    chain += [function(f"F{i}", [call(f"F{i - 1}", ["a"], ["b"])]) for i in range(1, 400)]
    with pytest.raises(ModelLimitError, match="max_function_depth"):
        load_model(model(chain, [call("F399", ["x"], ["y"])]))
    proto = model(chain, [call("F99", ["x"], ["y"])])
    assert len(load_model(proto).graph.nodes) == 1
    with pytest.raises(ModelLimitError, match="max_function_depth"):
        load_model(proto, limits=LoadLimits(max_function_depth=99))
    deep = [function("F0", [node("Neg", ["a"], ["b"])], inputs=("a", "t"))]
    for i in range(1, 60):
        inner = branch(call(f"F{i - 1}", ["a", "t"], ["n"]))
        other = branch(node("Neg", ["a"], ["n"]))
        choose = node("If", ["t"], ["b"], then_branch=inner, else_branch=other)
        deep.append(function(f"F{i}", [choose], inputs=("a", "t")))
    with pytest.raises(ModelLimitError, match="max_nesting_depth"):
        load_model(model(deep, [call("F59", ["x", "c"], ["y"])]))
    load_model(model(deep, [call("F20", ["x", "c"], ["y"])]))


def test_malformed_functions():
    good = function("F", [node("Neg", ["a"], ["b"])])
    with pytest.raises(InvalidModelError, match=r"function 'loc\.F' is defined twice"):
        load_model(model([good, good], [call("F", ["x"], ["y"])]))
    with pytest.raises(InvalidModelError, match="too many inputs"):
        load_model(model([good], [call("F", ["x", "x"], ["y"])]))
    repeated = function("F", [node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["b"])])
    with pytest.raises(InvalidModelError, match="'b' is defined twice in function"):
        load_model(model([repeated], [call("F", ["x"], ["y"])]))
    unsorted_nodes = function("F", [node("Neg", ["h"], ["b"]), node("Abs", ["a"], ["h"])])
    with pytest.raises(InvalidModelError):
        load_model(model([unsorted_nodes], [call("F", ["x"], ["y"])]))


def test_opsets_of_functions():
    older = [helper.make_opsetid("", 15), helper.make_opsetid("loc", 1)]
    same_meaning = function("F", [node("Neg", ["a"], ["b"])], opsets=older)
    graph = load_model(model([same_meaning], [call("F", ["x"], ["y"])])).graph
    assert [n.op_type for n in graph.nodes] == ["Neg"]
    ancient = [helper.make_opsetid("", 11), helper.make_opsetid("loc", 1)]
    other_meaning = function("F", [node("Softmax", ["a"], ["b"])], opsets=ancient)
    with pytest.raises(NotSupportedError, match="'Softmax' of opset 11"):
        load_model(model([other_meaning], [call("F", ["x"], ["y"])]))
    only_there = [*OPSETS, helper.make_opsetid("org.example", 4)]
    brings = function("F", [node("Op", ["a"], ["b"], domain="org.example")], opsets=only_there)
    graph = load_model(model([brings], [call("F", ["x"], ["y"])])).graph
    assert graph.nodes[0].since_version == 4
    assert graph.opsets["org.example"] == 4
