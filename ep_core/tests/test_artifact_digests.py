"""Digests of subgraphs: equal for equal ones, different for everything a compiler may look at."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from storing_provider import WEIGHT, subgraph_of

from ep_core.artifacts.content import Digest, add_subgraph
from ep_core.errors import NotSupportedError
from ep_core.graph import Initializer, Subgraph, ValueInfo
from ep_core.types import DataType, OpSet


def digest_of(subgraph):
    digest = Digest()
    add_subgraph(digest, subgraph)
    return digest.result()


def with_attribute(attribute):
    subgraph = subgraph_of()
    nodes = tuple(node.replace(attributes={"a": attribute}) for node in subgraph.graph.nodes)
    return Subgraph.cut(subgraph.graph.replace(nodes=nodes), range(3))


def test_parts_of_a_digest_do_not_run_into_each_other():
    seen = set()
    for texts in (
        ("a", "b"),
        ("ab",),
        ("a", "b", ""),
        ("", "a", "b"),
        ("atext 1\0b",),
        ("atext\0b",),
    ):
        digest = Digest()
        digest.add_text(*texts)
        seen.add(digest.result())
    assert len(seen) == 6


def first_node(**changes):
    def change(subgraph):
        nodes = subgraph.graph.nodes
        graph = subgraph.graph.replace(nodes=(nodes[0].replace(**changes), *nodes[1:]))
        return replace(subgraph, graph=graph)

    return change


def in_graph(**changes):
    return lambda subgraph: replace(subgraph, graph=subgraph.graph.replace(**changes))


def with_types(subgraph):
    values = {**subgraph.graph.values, "a": ValueInfo("a", None)}
    return in_graph(values=values)(subgraph)


CHANGES = {
    "name of a node": first_node(name="other"),
    "domain": first_node(domain="com.microsoft"),
    "operator": first_node(op_type="Sub"),
    "version of an operator": first_node(since_version=7),
    "inputs of a node": first_node(inputs=("w", "x")),
    "outputs of a node": first_node(outputs=("other",)),
    "operator sets": in_graph(opsets=OpSet({"": 18})),
    "types inside": with_types,
    "order of inputs": lambda subgraph: replace(subgraph, inputs=("x", "z")),
    "outputs": lambda subgraph: replace(subgraph, outputs=("y", "a")),
    "which are inputs": lambda subgraph: replace(subgraph, inputs=("x", "y"), outputs=()),
    "nodes": lambda subgraph: replace(subgraph, indices=(0, 1)),
    "names of constants": lambda subgraph: replace(
        subgraph, constants={"v": subgraph.constants["w"]}
    ),
}


def test_everything_that_a_compiler_sees_counts():
    base = subgraph_of()
    digests = [digest_of(base), *(digest_of(change(base)) for change in CHANGES.values())]
    assert len(set(digests)) == len(digests)


def test_what_a_compiler_does_not_see_does_not_count():
    base = subgraph_of()
    same = [
        replace(base, name="other"),
        in_graph(name="other", doc="text")(base),
        first_node(attributes={"a": 1, "b": 2})(base),
        first_node(attributes={"b": 2, "a": 1})(base),
    ]
    assert digest_of(same[0]) == digest_of(same[1]) == digest_of(base)
    assert digest_of(same[2]) == digest_of(same[3])


PLAIN = subgraph_of().graph
LOOKS = [
    *(1, 1.0, "1", b"1", (1,), (1.0,), ((1,),), (), ("1",), (1, 1), ("1", "1"), ("11",), -1),
    *(float("inf"), float("nan"), 0.0, -0.0, "\ud800"),
    *(np.array([1]), np.array(1), np.array([[1]]), np.array([1], np.int32), np.array([1.0])),
    *(np.array(["1"], object), np.array([], np.int64), np.array([], np.int32)),
    *(PLAIN, PLAIN.replace(nodes=PLAIN.nodes[:2]), (PLAIN,), (PLAIN, PLAIN)),
    PLAIN.inputs[0].type,
]


def test_attributes_that_look_alike_have_digests_of_their_own():
    digests = [digest_of(with_attribute(look)) for look in LOOKS]
    assert len(set(digests)) == len(LOOKS)
    assert digests == [digest_of(with_attribute(look)) for look in LOOKS]


def test_an_attribute_of_no_known_kind_is_refused():
    with pytest.raises(NotSupportedError, match="type object has no digest"):
        digest_of(with_attribute(object()))


WEIGHTS = {
    "float": np.float32([[0, 1, 2], [3, 4, 5]]),
    "int4": np.array([[0, 1, 2], [3, 4, 5]], ml_dtypes.int4),
    "bfloat16": np.array([[0, 1, 2], [3, 4, 5]], ml_dtypes.bfloat16),
    "bool": np.array([[False, True, False], [True, True, False]]),
    "complex64": np.array([[0, 1j, 2], [3, 4, 5]], np.complex64),
    "strings": np.array([["a", "b", "c"], ["d", "e", ""]], object),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_every_element_of_the_weights_matters_and_their_layout_does_not(kind):
    def digest(array):
        constants = {"w": Initializer.from_array("w", array)}
        return digest_of(replace(subgraph_of(), constants=constants))

    array = WEIGHTS[kind]
    assert digest(array) == digest(np.asfortranarray(array))
    assert digest(array[1]) == digest(np.repeat(array[1], 2)[::2])
    assert digest(array) != digest(array.reshape(3, 2))
    for place in np.ndindex(array.shape):
        changed = array.copy()
        changed[place] = array[1, 1] if array[place] != array[1, 1] else array[0, 0]
        assert digest(changed) != digest(array)


def test_weights_are_hashed_once():
    reads = []

    class Counting(Initializer):
        def numpy(self):
            reads.append(self.name)
            return super().numpy()

    weight = Counting("w", DataType.FLOAT, (4,), WEIGHT.copy)
    subgraph = replace(subgraph_of(), constants={"w": weight})
    first = digest_of(subgraph)
    assert digest_of(replace(subgraph, name="another")) == first
    assert reads == ["w"]
