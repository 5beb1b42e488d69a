"""Graphs from a few lines of text, and the question all pass tests ask: is the result the same?

The oracle is `onnx.reference`, on the exported graphs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from math import prod

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ep_core.loading.load import load_model
from ep_core.passes import PASSES, Pass
from ep_core.passes._driver import PassContext, run_pass
from ep_core.passes._scope import Names
from ep_core.types import DataType

FLOATS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.25, 1e-40, 3e38, 0.1]
LENGTHS = (3, 1, 0)
"""What a symbolic dimension is tried with."""


def graph(signature, body, *, opset=17, **constants):
    """Load `g signature { body }`; constants are arrays by name, types of outputs don't matter."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = onnx.parser.parse_model(f"{header} g {signature} {{ {body} }}")
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    for output in model.graph.output:
        output.ClearField("type")
    return load_model(model).graph


def evaluate(graph, node, inputs):
    """Compute one node on constants, as the session's evaluator does."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(graph.to_model()).run(None, {})


def refuse(graph, node, inputs):
    """An evaluator that computes nothing."""
    return


def find(name):
    (found,) = (step for step in PASSES if step.name == name)
    return found


def apply(step, before, evaluate=evaluate):
    """Run one pass and check that a second time changes nothing."""
    step = step if isinstance(step, Pass) else find(step)
    context = PassContext(evaluate, Names(before))
    after = run_pass(step, before, context)
    again = run_pass(step, after, PassContext(evaluate, Names(after)))
    assert again is after, f"{step.name} isn't idempotent"
    return after


def operators(graph):
    """How many nodes of each operator there are, bodies included."""
    found = Counter(node.op_type for node in graph.nodes)
    for node in graph.nodes:
        for body in node.bodies.values():
            found += operators(body)
    return found


def run(graph, feeds):
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(graph.to_model()).run(None, feeds)


def example(kind, length, special=True):
    """An array of that type; symbolic dimensions get `length`."""
    shape = tuple(dim if isinstance(dim, int) else length for dim in kind.shape)
    dtype = kind.dtype.numpy
    if kind.dtype is DataType.STRING:
        values = itertools.cycle(["a", "", "é"])
    elif kind.dtype is DataType.BOOL:
        values = itertools.cycle([True, False, True])
    elif kind.dtype.is_integer:
        limits = np.iinfo(dtype)
        values = itertools.cycle([limits.min, limits.max, 0, 1, 7])
    elif special:
        values = itertools.cycle(FLOATS)
    else:
        return np.random.default_rng(7).normal(size=shape).astype(dtype)
    count = prod(shape)
    with np.errstate(all="ignore"):
        return np.array(list(itertools.islice(values, count)), dtype).reshape(shape)


def feeds_for(graph, length=3, special=True):
    return {
        info.name: example(info.type, length, special)
        for info in graph.inputs
        if info.name not in graph.overridable
    }


def assert_same_bits(before, after, feeds):
    """Both graphs give the same types, shapes and bits, NaNs and signs of zero included."""
    for name, left, right in zip(
        before.output_names, run(before, feeds), run(after, feeds), strict=True
    ):
        left, right = np.asarray(left), np.asarray(right)
        assert left.dtype == right.dtype, name
        assert left.shape == right.shape, name
        if left.dtype == object:
            assert left.tolist() == right.tolist(), name
        else:
            assert left.tobytes() == right.tobytes(), (name, left, right)


def assert_near(before, after, feeds, rtol):
    for left, right in zip(run(before, feeds), run(after, feeds), strict=True):
        assert left.dtype == right.dtype
        left, right = left.astype(np.float64), right.astype(np.float64)
        np.testing.assert_allclose(right, left, rtol=rtol, atol=rtol)


def check(step, before, becomes, *, feeds=None, lengths=LENGTHS):
    """The pass turns `before` into a graph of these operators with the same bits as results."""
    after = apply(step, before)
    assert operators(after) == Counter(becomes.split())
    for length in lengths:
        assert_same_bits(before, after, feeds or feeds_for(before, length))
    return after


def check_near(step, before, becomes, *, rtol=1e-5, feeds=None):
    """Like `check`, up to rounding and on ordinary numbers."""
    after = apply(step, before)
    assert operators(after) == Counter(becomes.split())
    assert_near(before, after, feeds or feeds_for(before, special=False), rtol)
    return after


def check_untouched(step, before):
    """The pass finds nothing to do."""
    assert apply(step, before) is before


def type_named(name):
    """The element type that text models call `name`."""
    return DataType[name.upper()]


def numbers(*shape, dtype=np.float32):
    """Ordinary random numbers, always the same for one shape."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)
