"""Claims: pure, quiet on strange graphs, and kept: what is claimed compiles and runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import onnx.defs
from onnx import parser

from ep_compliance.checks import check
from ep_compliance.driving.bench import (
    OPSET,
    Bench,
    Probe,
    agree,
    claimed_chain,
    claims_all,
    one_node,
    run_once,
    whole,
)
from ep_compliance.driving.drive import ask, compiled, drive_subgraph
from ep_compliance.driving.findings import Broken, NotClaimed
from ep_core.contracts import Capability, ExecutionProvider
from ep_core.graph import Graph, Initializer, Node, Subgraph, ValueInfo
from ep_core.loading.load import load_model
from ep_core.types import DataType, OpSet, SequenceType, TensorType

_OPSETS = OpSet({"": 17, "com.microsoft": 1, "com.example.nobody": 3})
_FLOATS = TensorType(DataType.FLOAT, (2, 3))
_COMMON = ("Add", "Relu", "Conv", "Reshape", "Cast", "Gather", "Concat", "Slice", "Clip", "LSTM")
_UNARY = ("Identity", "Relu", "Abs", "Neg", "Sign", "Sqrt", "Exp", "Tanh", "Floor", "Not")
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or", "Equal", "Less", "MatMul")


# ---------------------------------------------------------------- graphs that nobody meant well


def _graph(nodes: list[Node], values: dict[str, TensorType | SequenceType | None]) -> Graph:
    infos = {name: ValueInfo(name, kind) for name, kind in values.items()}
    made = {name for node in nodes for name in node.outputs}
    inputs = [info for name, info in infos.items() if name not in made]
    outputs = [infos.get(name, ValueInfo(name)) for node in nodes for name in node.outputs if name]
    return Graph("strange", tuple(inputs), tuple(outputs), tuple(nodes), {}, _OPSETS, infos)


def _node(op_type: str, inputs: list[str], outputs: list[str], **more: object) -> Node:
    domain = str(more.pop("domain", ""))
    version = more.pop("since_version", 13)
    assert isinstance(version, int)
    return Node("n", op_type, domain, version, tuple(inputs), tuple(outputs), more)


def _unknown_operators() -> Iterator[Graph]:
    for op_type, domain in [
        ("NoSuchOperator", ""),
        ("Relu", "com.example.nobody"),
        ("", ""),
        ("relu", ""),
        ("Ünïcode\N{SNOWMAN}", "\N{SNOWMAN}"),
        ("Add" * 5000, ""),
    ]:
        node = _node(op_type, ["x"], ["y"], domain=domain, since_version=1)
        yield _graph([node], {"x": _FLOATS, "y": _FLOATS})


def _unknown_types() -> Iterator[Graph]:
    odd: list[TensorType | SequenceType | None] = [
        None,
        TensorType(DataType.FLOAT, None),
        TensorType(DataType.FLOAT, ("N", None)),
        TensorType(DataType.STRING, (2,)),
        TensorType(DataType.COMPLEX128, (2,)),
        TensorType(DataType.INT4, (2, 3)),
        TensorType(DataType.FLOAT8E8M0, ()),
        TensorType(DataType.FLOAT, (0,) * 40),
        TensorType(DataType.FLOAT, (2**62, 2**62)),
        SequenceType(_FLOATS),
        SequenceType(None),
    ]
    for op_type in _COMMON:
        for kind in odd:
            yield _graph([_node(op_type, ["x", "x"], ["y"])], {"x": kind, "y": None})


def _malformed_nodes() -> Iterator[Graph]:
    values: dict[str, TensorType | SequenceType | None] = {"x": _FLOATS, "y": _FLOATS}
    for op_type in _COMMON:
        yield _graph([_node(op_type, [], ["y"])], {"y": _FLOATS})
        yield _graph([_node(op_type, ["", "", ""], ["y"])], {"y": _FLOATS})
        yield _graph([_node(op_type, ["x"] * 50, ["y"])], values)
        yield _graph([_node(op_type, ["x"], [])], {"x": _FLOATS})
        yield _graph([_node(op_type, ["x"], ["", "y"])], values)
        yield _graph([_node(op_type, ["x", "nowhere"], ["y"])], values)
        yield _graph([_node(op_type, ["x"], ["y"], since_version=9999)], values)
        for junk in ("text", b"\xff", -(2**63), float("nan"), (), (1, 2) * 40, np.zeros(0)):
            names = ("axis", "axes", "to", "perm", "alpha", "kernel_shape", "pads", "hidden_size")
            attributes = dict.fromkeys(names, junk)
            yield _graph([_node(op_type, ["x", "x"], ["y"], **attributes)], values)


def _empty() -> Iterator[Graph]:
    yield Graph("empty", (), (), (), {}, _OPSETS)
    lone = Initializer.from_array("c", np.ones(3, np.float32))
    info = ValueInfo("c", lone.type)
    yield Graph("constant", (), (info,), (), {"c": lone}, OpSet({}), {"c": info})
    through = ValueInfo("x", _FLOATS)
    yield Graph("through", (through,), (through,), (), {}, _OPSETS, {"x": through})


def _bodies() -> Iterator[Graph]:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[N] x) => (float[N] y) {
        z = Relu(x)
        y = If (c) <
            then_branch = t () => (float[N] a) { a = Add(z, x) },
            else_branch = e () => (float[N] b) { b = Neg(z) }
        >
    }"""
    graph = load_model(parser.parse_model(text)).graph
    yield graph
    for node in graph.nodes:
        yield from node.bodies.values()
    for op_type in ("If", "Loop", "Scan"):
        yield _graph([_node(op_type, ["x"], ["y"])], {"x": _FLOATS, "y": _FLOATS})


def _tempting() -> Iterator[Graph]:
    """Graphs that invite to fuse, with something in the way: a node, an output, another chain."""
    square = TensorType(DataType.FLOAT, (4, 4))
    chain = [
        _node("MatMul", ["x", "x"], ["m"]),
        _node("Add", ["m", "x"], ["a"]),
        _node("Relu", ["a"], ["r"]),
        _node("Sigmoid", ["r"], ["s"]),
        _node("Mul", ["r", "s"], ["y"]),
    ]
    around = [
        _node("Relu", ["x"], ["a"]),
        _node("Thing", ["a"], ["b"], domain="com.example.nobody", since_version=1),
        _node("Add", ["a", "b"], ["c"]),
        _node("Tanh", ["c"], ["y"]),
    ]
    apart = [
        _node("Relu", ["x"], ["a"]),
        _node("Abs", ["z"], ["b"]),
        _node("Sqrt", ["a"], ["c"]),
        _node("Relu", ["b"], ["y"]),
    ]
    for nodes in (chain, around, apart):
        names = {name for node in nodes for name in (*node.inputs, *node.outputs)}
        yield _graph(nodes, dict.fromkeys(sorted(names), square))


def _check_quiet(bench: Bench, graphs: Iterator[Graph], *, none_claimed: bool = False) -> None:
    with bench.open() as provider:
        for graph in graphs:
            capability = ask(provider, graph)
            if capability != ask(provider, graph):
                raise Broken(f"get_capability is impure on graph {graph.name!r}")
            if none_claimed and any(support.supported for support in capability.nodes):
                raise Broken(f"claims the operator {graph.nodes[0].key[:60]!r}, which nobody knows")


@check("claims/unknown-operators")
def unknown_operators(bench: Bench) -> None:
    """Operators that don't exist are refused with a reason."""
    _check_quiet(bench, _unknown_operators(), none_claimed=True)


@check("claims/unknown-types")
def unknown_types(bench: Bench) -> None:
    """Values of unknown, rare and impossible types raise nothing."""
    _check_quiet(bench, _unknown_types())


@check("claims/malformed-nodes")
def malformed_nodes(bench: Bench) -> None:
    """Missing inputs, too many, and attributes of wrong types raise nothing."""
    _check_quiet(bench, _malformed_nodes())


@check("claims/empty-graphs")
def empty_graphs(bench: Bench) -> None:
    """A graph without nodes gets an answer without entries."""
    _check_quiet(bench, _empty())


@check("claims/bodies")
def bodies(bench: Bench) -> None:
    """Control flow, and bodies that capture outer values, raise nothing."""
    _check_quiet(bench, _bodies())
    with bench.open() as provider:
        if provider.features.control_flow:
            return
        for graph in _bodies():
            for node, support in zip(graph.nodes, ask(provider, graph).nodes, strict=True):
                if node.bodies and support.supported:
                    raise Broken(f"claims {node.op_type} though `control_flow` isn't declared")


@check("claims/groups")
def groups(bench: Bench) -> None:
    """Fused groups are of claimed nodes, connected, convex, and share none; asked twice, equal."""
    _check_quiet(bench, _tempting())


# ---------------------------------------------------------------- pure


@check("claims/pure")
def pure(bench: Bench) -> None:
    """The answer doesn't depend on what was asked, compiled or run before, or on which thread."""
    with bench.open() as provider:
        probe = claimed_chain(provider)
        graphs = [probe.subgraph.graph, *_bodies(), *_unknown_types()]
        first = [ask(provider, graph) for graph in graphs]
        backwards = [ask(provider, graph) for graph in reversed(graphs)][::-1]
        if first != backwards:
            raise Broken("get_capability is impure: the order of questions changes the answers")
        repeatable = provider.features.deterministic
        drive_subgraph(provider, probe.subgraph, probe.inputs, repeatable=repeatable)
        if first != [ask(provider, graph) for graph in graphs]:
            raise Broken("get_capability is impure: it answers differently after a run")
        answers = _ask_on_threads(provider, graphs, 4)
        if any(answer != first for answer in answers):
            raise Broken("get_capability answers differently when four threads ask at once")
    with bench.open() as provider:
        if first != [ask(provider, graph) for graph in graphs]:
            raise Broken("get_capability answers differently once the device is opened again")


def _ask_on_threads(
    provider: ExecutionProvider, graphs: list[Graph], count: int
) -> list[list[Capability] | str]:
    answers: list[list[Capability] | str] = [""] * count

    def work(number: int) -> None:
        try:
            answers[number] = [ask(provider, graph) for graph in graphs]
        except Broken as finding:
            answers[number] = str(finding)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


# ---------------------------------------------------------------- kept


@check("claims/kept")
def kept(bench: Bench) -> None:
    """For every element type: a claimed one-node graph compiles, runs and keeps its contracts."""
    tried = 0
    with bench.open() as provider:
        for dtype in DataType:
            for op_type, arity in [*((o, 1) for o in _UNARY), *((o, 2) for o in _BINARY)]:
                tried += _try_node(provider, op_type, arity, dtype)
    if not tried:
        raise NotClaimed("claims none of the common operators")


def _is_valid(op_type: str, dtype: DataType) -> bool:
    schema = onnx.defs.get_schema(op_type, OPSET)
    return f"tensor({dtype.text})" in schema.inputs[0].types


def _try_node(provider: ExecutionProvider, op_type: str, arity: int, dtype: DataType) -> bool:
    if not _is_valid(op_type, dtype):
        return False
    graph = one_node(op_type, arity, dtype, [[2, 2]] * arity)
    if not claims_all(provider, graph):
        return False
    if dtype is DataType.STRING:
        value = np.full((2, 2), "text", object)
    else:
        value = np.ones((2, 2)).astype(dtype.numpy)
    repeatable = provider.features.deterministic
    try:
        drive_subgraph(provider, whole(graph), [value] * arity, repeatable=repeatable)
    except Broken as finding:
        raise Broken(f"{op_type} of {dtype.text}: {finding}") from finding
    return True


@check("claims/parts")
def parts(bench: Bench) -> None:
    """Any part of a claimed graph compiles alone, and the parts give what the whole gives."""
    with bench.open() as provider:
        probe = claimed_chain(provider, length=4)
        graph = probe.subgraph.graph
        together = _run(provider, probe)
        for cut in (1, 2, 3):
            known = dict(zip(graph.input_names, probe.inputs, strict=True))
            for indices in (range(cut), range(cut, 4)):
                part = Subgraph.cut(graph, indices, f"part_{indices.start}")
                values = tuple(known[name] for name in part.inputs)
                made = _run(provider, Probe(part, values))
                known.update(zip(part.outputs, made, strict=True))
            apart = [known[name] for name in probe.subgraph.outputs]
            if not _near(provider, together, apart):
                raise Broken(f"the graph cut after node {cut} gives other values than as a whole")


def _near(provider: ExecutionProvider, a: list[object], b: list[object]) -> bool:
    """Fusing may round differently, so equal bits would be too much to ask."""
    return agree(provider, a, b) or all(
        np.allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), rtol=1e-2)
        for x, y in zip(a, b, strict=True)
    )


def _run(provider: ExecutionProvider, probe: Probe) -> list[object]:
    with compiled(provider, probe.subgraph) as partition:
        return run_once(provider, partition, probe.inputs, len(probe.subgraph.outputs))
