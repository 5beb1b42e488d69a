"""Chains become one kernel, and give the bits that their parts give."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from opencl_harness import floats, needs_device, open_provider, session

from ep_core.graph import Subgraph
from ep_core.loading.load import load_model

pytestmark = needs_device

SILU = """
    <ir_version: 9, opset_import: ["" : 20]>
    g (TYPE[8,33] x, TYPE[33] b) => (TYPE[8,33] y) {
        t = Add (x, b)
        s = Sigmoid (t)
        m = Mul (t, s)
        y = Relu (m)
    }
"""


def model_of(text):
    return onnx.parser.parse_model(text)


def count_steps(model, **options):
    provider = open_provider(**options)
    graph = load_model(model.SerializeToString()).graph
    program = provider.compile(Subgraph.cut(graph, range(len(graph.nodes))))
    steps = len(program._lowered.steps)
    provider.close()
    return steps


def test_a_chain_with_a_value_that_is_read_twice_is_one_kernel():
    model = model_of(SILU.replace("TYPE", "float"))
    assert count_steps(model) == 1
    assert count_steps(model, fuse=False) == 4


@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_fused_and_unfused_give_equal_bits(kind):
    model = model_of(SILU.replace("TYPE", kind))
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    feeds = {"x": floats(8, 33).astype(dtype), "b": floats(33, seed=1).astype(dtype)}
    found = []
    for fuse in (True, False):
        with session(model, {"fuse": fuse}) as running:
            found.append(running.run(None, feeds)[0])
    assert found[0].tobytes() == found[1].tobytes()


def test_what_others_need_stays_a_value():
    model = model_of("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[4] x) => (float[4] y, float[4] t) {
            t = Exp (x)
            y = Neg (t)
        }
    """)
    assert count_steps(model) == 2
    with session(model) as running:
        y, t = running.run(None, {"x": np.zeros(4, np.float32)})
    np.testing.assert_array_equal((y, t), ([-1] * 4, [1] * 4))


def test_a_small_producer_is_not_computed_for_every_reader_element():
    model = model_of("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[4,1] x, float[4,100] z) => (float[4,100] y) {
            t = Exp (x)
            y = Mul (t, z)
        }
    """)
    assert count_steps(model) == 2


def test_unknown_lengths_with_names_are_fused_and_without_are_not():
    text = """
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[n,4] x) => (float[n,4] y) {
            t = Exp (x)
            y = Neg (t)
        }
    """
    model = model_of(text)
    assert count_steps(model) == 1
    with session(model) as running:
        for length in (1, 7, 0):
            (y,) = running.run(None, {"x": np.zeros((length, 4), np.float32)})
            np.testing.assert_array_equal(y, -np.ones((length, 4), np.float32))


def groups_of(text):
    provider = open_provider()
    graph = load_model(model_of(text).SerializeToString()).graph
    found = [group.nodes for group in provider.get_capability(graph).groups]
    provider.close()
    return found


def test_groups_that_are_offered_are_what_is_fused():
    assert groups_of(SILU.replace("TYPE", "float")) == [(0, 1, 2, 3)]


def test_a_value_that_a_body_reads_keeps_its_producer_out_of_groups():
    assert (
        groups_of("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[4] x, bool c) => (float[4] y) {
            t = Exp (x)
            u = If (c) <
                then_branch = g1 () => (float[4] a) { a = Neg (t) },
                else_branch = g2 () => (float[4] b) { b = Abs (t) }
            >
            y = Add (t, u)
        }
    """)
        == []
    )
