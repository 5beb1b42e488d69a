"""What counts as the same work, and what it is fed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from ep_core.errors import NotSupportedError
from ep_core.graph import Subgraph, ValueInfo
from ep_core.loading.load import load_model
from ep_core.placement.roofline import Sizes
from ep_core.tuning.feeds import feed
from ep_core.tuning.work import work_of
from ep_core.types import DataType, TensorType


def graph_of(body, inputs="float[2, 3] x", outputs="float[2, 3] y", **constants):
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    graph = load_model(model).graph
    # Where a shape depends on values, inference doesn't take over what the model declares.
    return graph.replace(values={**graph.values, **{info.name: info for info in graph.outputs}})


def key(graph, *indices):
    return work_of(graph, indices or (0,), Sizes(graph, {})).key


LARGE = np.ones((40, 40), np.float32)


def layer(name="x", weight="w", **constants):
    given = f"float[4, 40] {name}"
    return graph_of(f"y = MatMul({name}, {weight})", given, "float[4, 40] y", **constants)


def test_names_and_the_contents_of_weights_dont_count():
    one, other = layer(w=LARGE), layer("a", "b", b=LARGE * 3)
    assert key(one) == key(other)


@pytest.mark.parametrize(
    "other",
    [
        layer(w=LARGE.astype(np.float32)[:, :20]),
        graph_of("y = MatMul(x, w)", "float[5, 40] x", "float[5, 40] y", w=LARGE),
        graph_of("y = MatMul(x, w)", "double[4, 40] x", "double[4, 40] y", w=LARGE.astype(float)),
        graph_of("y = MatMul(x, w)", "float[4, 40] x, float[40, 40] w", "float[4, 40] y"),
        graph_of("y = MatMul(x, w)", "float[n, 40] x", "float[n, 40] y", w=LARGE),
        graph_of("y = Gemm(x, w)", "float[4, 40] x", "float[4, 40] y", w=LARGE),
    ],
    ids=["weight's shape", "shape", "dtype", "no constant", "symbolic", "operator"],
)
def test_types_shapes_and_operators_count(other):
    assert key(layer(w=LARGE)) != key(other)


def test_attributes_and_small_constants_count():
    def transposed(*perm):
        return graph_of(f"y = Transpose<perm=[{perm[0]}, {perm[1]}]>(x)")

    def reshaped(*shape):
        return graph_of("y = Reshape(x, s)", outputs="float[3, 2] y", s=np.int64(shape))

    assert key(transposed(0, 1)) != key(transposed(1, 0))
    assert key(reshaped(3, 2)) != key(reshaped(-1, 2))
    assert key(reshaped(3, 2)) == key(reshaped(3, 2))


def test_an_input_that_is_given_twice_is_other_work_than_two():
    two = graph_of("y = Add(x, z)", "float[2, 3] x, float[2, 3] z")
    assert key(graph_of("y = Add(x, x)")) != key(two)


def test_outputs_that_nobody_reads_count():
    values = "v, i = TopK(x, k) y = Neg(v)"
    both = "v, i = TopK(x, k) y = Neg(v) z = Neg(i)"
    one = graph_of(values, "float[9] x", "float[2] y", k=np.int64([2]))
    other = graph_of(both, "float[9] x", "float[2] y, int64[2] z", k=np.int64([2]))
    assert key(one) != key(other)
    assert work_of(one, (0,), Sizes(one, {})).graph.output_names == ("value_3",)


def test_partitions_count_with_their_boundary():
    graph = graph_of("a = Abs(x) b = Neg(a) y = Abs(b)")
    assert len({key(graph, 0, 1), key(graph, 1, 2), key(graph, 0, 1, 2)}) == 3
    assert key(graph, 0, 1) == key(graph, 0, 1)


def test_captures_of_bodies_keep_their_names():
    graph = graph_of(
        "z = Abs(x) y = If (c) <then_branch = t () => (float[2, 3] p) { p = Neg(z) },"
        " else_branch = e () => (float[2, 3] q) { q = Abs(x) }>",
        "float[2, 3] x, bool c",
    )
    alone = work_of(graph, (1,), Sizes(graph, {}))
    cut = Subgraph.cut(alone.graph, (0,))
    assert set(cut.inputs) == {"c", "z", "x"}
    cut.to_model()


# ---------------------------------------------------------------- feeds


def feeds(graph, *indices):
    cut = Subgraph.cut(graph, indices or range(len(graph.nodes)))
    return [feed(graph, cut.nodes, name, Sizes(graph, {})) for name in cut.inputs]


def test_feeds_have_the_type_and_the_assumed_shape():
    given = "float[batch, 3] x, float16[2, n] h, int32[4] i, bool[2] b, string[2] s"
    graph = graph_of(
        "y = Neg(x) h1 = Neg(h) i1 = Neg(i) b1 = Not(b) s1 = Identity(s)",
        given,
        "float[batch, 3] y, float16[2, n] h1, int32[4] i1, bool[2] b1, string[2] s1",
    )
    x, h, i, b, s = feeds(graph)
    assert (x.shape, x.dtype, h.shape, h.dtype) == ((1, 3), np.float32, (2, 64), np.float16)
    assert 0.1 <= x.min() < x.max() <= 0.9
    assert (i.dtype, i.tolist()) == (np.int32, [0, 0, 0, 0])
    assert (b.dtype, b.tolist(), s.tolist()) == (np.bool_, [True, True], ["a", "a"])
    for one, other in zip(feeds(graph), [x, h, i, b, s], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("int4", ml_dtypes.int4),
        ("uint2", ml_dtypes.uint2),
        ("float4e2m1", ml_dtypes.float4_e2m1fn),
        ("double", np.float64),
        ("uint8", np.uint8),
    ],
)
def test_narrow_types_too(text, dtype):
    graph = graph_of("y = Identity(x)", f"{text}[7] x", f"{text}[7] y")
    (x,) = feeds(graph)
    assert (x.shape, x.dtype) == ((7,), np.dtype(dtype))


@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "expected"),
    [
        ("y = Reshape(x, s)", "float[2, 3] x, int64[1] s", "float[6] y", [6]),
        ("y = Expand(x, s)", "float[3] x, int64[2] s", "float[5, 3] y", [5, 3]),
        ("y = ConstantOfShape(s)", "int64[2] s", "float[5, 3] y", [5, 3]),
        ("y = Tile(x, s)", "float[2, 3] x, int64[2] s", "float[4, 9] y", [2, 3]),
        ("y, i = TopK(x, s)", "float[2, 9] x, int64[1] s", "float[2, 4] y, int64[2, 4] i", [4]),
        ("y = Gather(x, s)", "float[2, 9] x, int64[2] s", "float[2, 9] y", [0, 0]),
    ],
)
def test_integers_that_say_how_much_to_do_follow_from_shapes(body, inputs, outputs, expected):
    *_, told = feeds(graph_of(body, inputs, outputs))
    assert told.tolist() == expected
    assert told.dtype == np.int64


def test_a_range_counts_to_its_length():
    _, limit, step = feeds(
        graph_of("y = Range(a, b, c)", "float a, float b, float c", "float[7] y")
    )
    assert (float(limit), float(step), limit.dtype) == (7.0, 1.0, np.float32)


def test_what_tells_a_shape_of_another_length_isnt_made_up():
    graph = graph_of("y = Reshape(x, s)", "float[2, 3] x, int64[1] s", "float[6] y")
    told = {"s": ValueInfo("s", TensorType(DataType.INT64, (3,)))}
    graph = graph.replace(values={**graph.values, **told})
    with pytest.raises(ValueError, match="reshape"):
        feeds(graph)


def test_sequences_arent_made_up():
    graph = graph_of("y = SequenceLength(x)", "seq(float[2]) x", "int64 y")
    with pytest.raises(NotSupportedError, match="seq"):
        feeds(graph)
