"""The memory plan of a partition: how much it saves, and that it is never trusted blindly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ep_core.errors import AllocationError
from ep_core.graph import Subgraph, ValueInfo
from ep_core.types import DataType, TensorType
from ep_sdk import KernelTable

TABLE = KernelTable({"": 21})


@TABLE.kernel("Neg", writes_out=True)
def _neg(node):
    return lambda x, out=None: np.negative(x, out=out)


@TABLE.kernel("Add", writes_out=True)
def _add(node):
    return lambda x, y, out=None: np.add(x, y, out=out)


@TABLE.kernel("Abs")
def _abs(node):
    return lambda x: np.abs(x)


@TABLE.kernel("Identity", view=True)
def _identity(node):
    return lambda x: x


def compile_all(host_provider, graph):
    return host_provider(TABLE).compile(Subgraph.cut(graph, range(len(graph.nodes))))


def run(part, *inputs):
    outputs = [None] * len(part.accepts_outputs)
    part.run(inputs, outputs, None)
    return outputs


def chain(count, shape="1024"):
    lines = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(count))
    return f"(float[{shape}] v0) => (float[{shape}] v{count}) {{ {lines} }}"


def test_a_chain_of_ten_lies_in_two_places(host_provider, graph_of):
    part = compile_all(host_provider, graph_of(chain(10)))
    assert part.plan.planned_bytes == 2 * 4096
    assert part.plan.unshared_bytes == 9 * 4096
    x = np.arange(1024, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(run(part, x)[0], x)


def test_outputs_and_what_they_may_alias_stay_out(host_provider, graph_of):
    text = "(float[16] x) => (float[16] b, float[16] c) { a = Neg(x) b = Identity(a) c = Neg(a) }"
    part = compile_all(host_provider, graph_of(text))
    assert part.plan.planned_bytes == 0


def test_values_of_unknown_size_stay_out(host_provider, graph_of):
    part = compile_all(host_provider, graph_of(chain(10, "N")))
    assert part.plan.planned_bytes == 0
    for length in (3, 5, 0):
        assert run(part, np.ones(length, np.float32))[0].shape == (length,)


def test_views_keep_what_they_show_alive(host_provider, graph_of):
    """`a` is read last by Identity, but `v` shows it until the end."""
    text = (
        "(float[16] x) => (float[16] y) { a = Neg(x) v = Identity(a) b = Neg(x) c = Neg(b)"
        " d = Neg(c) e = Neg(d) y = Add(v, e) }"
    )
    part = compile_all(host_provider, graph_of(text))
    assert part.plan.planned_bytes == 3 * 64
    x = np.arange(16, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(run(part, x)[0], np.zeros(16))


def test_one_arena_serves_run_after_run(host_provider, graph_of):
    part = compile_all(host_provider, graph_of(chain(4)))
    x = np.ones(1024, np.float32)
    for _ in range(5):
        run(part, x)
    (frame,) = part._frames
    views = [value for value in frame if isinstance(value, np.ndarray)]
    assert len(views) == 3
    assert all(view.ctypes.data % 64 == 0 for view in views)


def test_results_of_earlier_runs_stay_as_they_are(host_provider, graph_of):
    part = compile_all(host_provider, graph_of(chain(4)))
    kept = [(n, run(part, np.full(1024, n, np.float32))[0]) for n in range(6)]
    for n, result in kept:
        np.testing.assert_array_equal(result, np.full(1024, n))


def with_type(graph, name, *shape, dtype=DataType.FLOAT):
    """The graph, with an untrue declaration of one value."""
    lie = ValueInfo(name, TensorType(dtype, shape))
    return graph.replace(values={**graph.values, name: lie})


@pytest.mark.parametrize("shape", [(3, 8), (1,), (4, 8), (2, 4, 8)])
def test_a_declared_shape_that_is_untrue(host_provider, graph_of, shape):
    """numpy would broadcast (1, 8) into (4, 8) without a word."""
    text = "(float[1,8] x) => (float[1,8] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"
    part = compile_all(host_provider, with_type(graph_of(text), "a", *shape))
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    for _ in range(3):
        (y,) = run(part, x)
        assert y.shape == (1, 8)
        np.testing.assert_array_equal(y, -x)


def test_a_declared_dtype_that_is_untrue(host_provider, graph_of):
    text = "(float[8] x) => (float[8] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"
    part = compile_all(host_provider, with_type(graph_of(text), "a", 8, dtype=DataType.DOUBLE))
    for _ in range(3):
        (y,) = run(part, np.ones(8, np.float32))
        assert y.dtype == np.float32


def test_an_untrue_output_shape_with_memory_given(host_provider, graph_of):
    text = "(float[1,8] x) => (float[1,8] y) { a = Neg(x) y = Neg(a) }"
    part = compile_all(host_provider, with_type(graph_of(text), "y", 4, 8))
    x = np.ones((1, 8), np.float32)
    for _ in range(3):
        memory = [np.zeros((1, 8), np.float32)]
        part.run([x], memory, None)
        np.testing.assert_array_equal(memory[0], x)


def test_a_shape_that_turns_untrue_later(host_provider, graph_of):
    """Abs makes what it gets; after a fitting first run it gets something else."""
    text = "(float[N,8] x) => (float[1,8] y) { a = Abs(x) b = Neg(a) c = Neg(b) y = Neg(c) }"
    graph = graph_of(text)
    for name in "abcy":
        graph = with_type(graph, name, 1, 8)
    part = compile_all(host_provider, graph)
    assert part.plan.planned_bytes > 0
    for rows in (1, 1, 3, 1):
        x = np.ones((rows, 8), np.float32)
        np.testing.assert_array_equal(run(part, x)[0], -x)


def test_an_input_that_isn_t_as_declared(host_provider, graph_of):
    part = compile_all(host_provider, graph_of(chain(4, "4")))
    for length in (4, 4, 1, 8, 4):
        x = np.arange(length, dtype=np.float32)
        np.testing.assert_array_equal(run(part, x)[0], x)


def test_no_memory_for_the_arena(host_provider, graph_of, monkeypatch):
    part = compile_all(host_provider, graph_of(chain(4)))
    x = np.ones(1024, np.float32)
    run(part, x)

    def no_memory(nbytes, alignment):
        raise MemoryError("none left")

    monkeypatch.setattr("ep_sdk.host_program.aligned_bytes", no_memory)
    with pytest.raises(AllocationError, match="none left"):
        run(part, x)


def test_sizes_beyond_any_machine_are_not_planned(host_provider, graph_of):
    text = "(float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"
    graph = with_type(graph_of(text), "a", 2**40, 2**40)
    part = compile_all(host_provider, graph)
    np.testing.assert_array_equal(run(part, np.ones(2, np.float32))[0], [-1, -1])


def test_a_view_that_leaves_before_what_it_shows(host_provider, graph_of):
    """Outputs may be wanted in any order; `a` must not be written where `v` would show it."""
    graph = graph_of("(float[4] x) => (float[4] a, float[4] v) { a = Neg(x) v = Identity(a) }")
    subgraph = dataclasses.replace(Subgraph.cut(graph, [0, 1]), outputs=("v", "a"))
    part = host_provider(TABLE).compile(subgraph)
    for _ in range(3):
        outputs = [None, np.zeros(4, np.float32)]
        part.run([np.ones(4, np.float32)], outputs, None)
        outputs[0][...] = 7
        np.testing.assert_array_equal(outputs[1], [-1] * 4)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_graph_gives_what_numpy_gives(data):
    """Random graphs of Neg, Add, Abs and Identity against plain numpy, over three runs."""
    from ep_core.contracts import API_VERSION, ProviderInfo
    from ep_core.graph import Graph, Node
    from ep_core.types import DeviceInfo, OpSet
    from ep_sdk import KernelProvider

    provider_class = type("P", (KernelProvider,), {"table": TABLE})
    provider = provider_class(
        ProviderInfo("test", "1", API_VERSION), DeviceInfo("test", "0", "cpu"), {}
    )
    x = np.arange(1, 9, dtype=np.float32)
    values = {"v0": x}
    nodes = []
    for number in range(data.draw(st.integers(1, 14))):
        op_type = data.draw(st.sampled_from(["Neg", "Add", "Abs", "Identity"]))
        names = sorted(values)
        count = 2 if op_type == "Add" else 1
        reads = tuple(data.draw(st.sampled_from(names)) for _ in range(count))
        name = f"v{number + 1}"
        nodes.append(Node(f"n{number}", op_type, "", 13, reads, (name,)))
        function = {"Neg": np.negative, "Add": np.add, "Abs": np.abs, "Identity": np.copy}[op_type]
        values[name] = function(*(values[read] for read in reads))
    made = sorted(set(values) - {"v0"})
    wanted = data.draw(st.lists(st.sampled_from(made), min_size=1, unique=True))
    infos = {name: ValueInfo(name, TensorType(DataType.FLOAT, (8,))) for name in values}
    graph = Graph(
        "g",
        (infos["v0"],),
        tuple(infos[name] for name in wanted),
        tuple(nodes),
        {},
        OpSet({"": 17}),
        infos,
    )
    subgraph = Subgraph.cut(graph, range(len(nodes)))
    order = data.draw(st.permutations(subgraph.outputs))
    subgraph = dataclasses.replace(subgraph, outputs=tuple(order))
    part = provider.compile(subgraph)
    for _ in range(3):
        memory = [
            np.full(8, 77, np.float32) if data.draw(st.booleans()) else None
            for _ in subgraph.outputs
        ]
        outputs = list(memory)
        part.run([x] if subgraph.inputs else [], outputs, None)
        for name, value, given_memory in zip(subgraph.outputs, outputs, memory, strict=True):
            np.testing.assert_array_equal(value, values[name])
            assert given_memory is None or value is given_memory
        for position, value in enumerate(outputs):
            others = [x, *outputs[:position]]
            assert not any(np.shares_memory(value, other) for other in others)
            value[...] = 55
    np.testing.assert_array_equal(x, np.arange(1, 9))
    provider.close()
