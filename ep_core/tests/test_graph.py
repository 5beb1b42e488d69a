"""The read-only graph: derived views, cuts, and that nothing can be changed."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from ep_core.graph import Graph, Initializer, Node, Subgraph, ValueInfo
from ep_core.types import DataType, OpSet, TensorType

FLOAT2 = TensorType(DataType.FLOAT, (2,))


def node(name, inputs, outputs, **attributes):
    return Node(name, "Op", "mine", 1, tuple(inputs), tuple(outputs), attributes)


def graph(nodes, inputs=("x",), outputs=("y",), initializers=(), **more):
    constants = {name: Initializer.from_array(name, np.ones(2)) for name in initializers}
    return Graph(
        name="g",
        inputs=tuple(ValueInfo(name, FLOAT2) for name in inputs),
        outputs=tuple(ValueInfo(name) for name in outputs),
        nodes=tuple(nodes),
        initializers=constants,
        opsets=OpSet({"mine": 1}),
        **more,
    )


INNER = graph([node("i", ["a", "k"], ["t"])], inputs=(), outputs=("t",), initializers=("k",))
BODY = graph([node("b", ["x", "w"], ["s"], inner=INNER)], inputs=(), outputs=("s",))
WHOLE = graph(
    [
        node("first", ["x", ""], ["a", ""]),
        node("second", ["a", "w"], ["b"], body=BODY, more=(INNER, BODY)),
        node("third", ["b", "a"], ["y"]),
    ],
    initializers=("w", "d"),
    overridable=frozenset({"d"}),
)


def test_producers_and_consumers():
    assert WHOLE.producers == {"a": 0, "b": 1, "y": 2}
    assert WHOLE.consumers == {"x": (0, 1), "a": (1, 2), "w": (1,), "b": (2,)}


def test_captures_go_through_all_levels():
    assert INNER.captures == ("a",)
    assert BODY.captures == ("x", "w", "a")
    assert WHOLE.captures == ()
    second = WHOLE.nodes[1]
    assert second.captures == ("x", "w", "a")
    assert list(second.bodies) == ["body", "more[0]", "more[1]"]
    assert list(second.reads) == ["a", "w", "x", "w", "a"]
    assert graph([], inputs=(), outputs=("z",)).captures == ("z",)


def test_types_and_constants():
    assert WHOLE.type_of("x") is None  # `values` is what tells, and it is empty here
    typed = WHOLE.replace(values={"x": ValueInfo("x", FLOAT2)})
    assert typed.type_of("x") == FLOAT2
    assert WHOLE.type_of("w") == TensorType(DataType.DOUBLE, (2,))
    assert WHOLE.type_of("nobody") is None
    assert WHOLE.constant("w") is WHOLE.initializers["w"]
    assert WHOLE.constant("d") is None
    assert WHOLE.constant("x") is None


def test_cuts():
    cut = Subgraph.cut(WHOLE, [2, 1], name="part")
    assert [n.name for n in cut.nodes] == ["second", "third"]
    assert cut.inputs == ("a", "x")
    assert cut.outputs == ("y",)
    assert set(cut.constants) == {"w"}
    whole = cut.as_graph()
    assert (whole.name, whole.input_names, whole.output_names) == ("part", ("a", "x"), ("y",))
    assert Subgraph.cut(WHOLE, [0]).outputs == ("a",)
    assert Subgraph.cut(WHOLE, [1]).outputs == ("b",)


def test_an_output_used_inside_and_outside_is_an_output():
    chain = graph([node("p", ["x"], ["a"]), node("q", ["a"], ["y"])], outputs=("y", "a"))
    assert Subgraph.cut(chain, [0, 1]).outputs == ("a", "y")


def test_nothing_can_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        WHOLE.name = "other"
    with pytest.raises(TypeError):
        WHOLE.initializers["w"] = None
    with pytest.raises(TypeError):
        WHOLE.nodes[1].attributes["body"] = None
    with pytest.raises(ValueError, match="read-only"):
        WHOLE.initializers["w"].numpy()[0] = 2
    given = {"a": 1}
    made = node("n", [], [], **given)
    given["a"] = 2
    assert made.attributes["a"] == 1


def test_initializers_read_once_and_only_when_asked():
    reads = []

    def read():
        reads.append(1)
        return np.arange(3)

    lazy = Initializer("w", DataType.INT64, (3,), read)
    assert (lazy.type, lazy.nbytes, reads) == (TensorType(DataType.INT64, (3,)), 24, [])
    other = lazy.renamed("v")
    assert reads == []
    assert other.numpy() is lazy.numpy()
    assert reads == [1]
    assert other.name == "v"


def test_initializers_in_threads():
    lazy = Initializer("w", DataType.INT64, (3,), lambda: np.arange(3))
    found = []
    threads = [threading.Thread(target=lambda: found.append(lazy.numpy())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(array.tolist() == [0, 1, 2] for array in found)


def test_packed_sizes():
    sizes = {DataType.INT4: 2, DataType.UINT2: 1, DataType.DOUBLE: 24, DataType.STRING: 0}
    for kind, size in sizes.items():
        assert Initializer("w", kind, (3,), lambda: np.zeros(3)).nbytes == size


def test_keys_and_texts():
    assert node("n", [], []).key == "mine.Op"
    assert Node("n", "Conv", "", 11, (), ()).key == "Conv"
    assert repr(Node("n", "Conv", "", 11, (), ())) == "<Conv 'n'>"
    assert repr(WHOLE) == "<Graph 'g': 3 nodes>"
    assert repr(Initializer.from_array("w", np.ones(2))) == "Initializer('w', double, (2,))"
