"""Elementwise work in the tails of products: one launch, the same bits, and offered as a group."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from opencl_harness import chosen, floats, needs_device, open_provider, session

from ep_core.errors import RunError
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model

pytestmark = needs_device

CONV = """<ir_version: 9, opset_import: ["" : 20]>
g (TYPE[2,8,8,8] x, TYPE[8,CHANNELS,3,3] w, TYPE[8] b, TYPE[2,8,SIDE,SIDE] r, TYPE[8,1,1] c)
    => (TYPE[2,8,SIDE,SIDE] y) {
    k = Conv <pads = [1,1,1,1], MORE> (x, w, b)
    q = Mul (k, c)
    s = Abs (q)
    m = Mul (s, q)
    a = Add (m, r)
    y = Relu (a)
}"""

DENSE = """<ir_version: 9, opset_import: ["" : 20]>
g (TYPE[2,3,40] x, TYPE[40,33] w, TYPE[33] b, TYPE[2,3,33] r) => (TYPE[2,3,33] y) {
    k = MatMul (x, w)
    q = Add (k, b)
    s = LeakyRelu (q)
    y = Add (s, r)
}"""

BYTES = """<ir_version: 9, opset_import: ["" : 20]>
g (uint8[30,40] x, int8[40,33] w, uint8 z, float f) => (float[30,33] y) {
    k = MatMulInteger (x, w, z)
    q = Cast <to = 1> (k)
    y = Mul (q, f)
}"""

BYTES_CONV = """<ir_version: 9, opset_import: ["" : 20]>
g (uint8[1,8,9,9] x, int8[12,8,3,3] w, uint8 z, float f, float[12,1,1] b) => (float[1,12,7,7] y) {
    k = ConvInteger (x, w, z)
    q = Cast <to = 1> (k)
    s = Mul (q, f)
    y = Add (s, b)
}"""

QUANTIZED_CONV = """<ir_version: 9, opset_import: ["" : 20]>
g (uint8[1,8,9,9] x, float xs, uint8 z, int8[12,8,3,3] w, float[12] ws, int8[12] wz, float ys,
   int32[12] b, uint8[1,12,7,7] r) => (uint8[1,12,7,7] y) {
    k = QLinearConv (x, xs, z, w, ws, wz, ys, z, b)
    y = Max (k, r)
}"""

WAYS = {
    "planes": ("strides = [1,1]", 8, 8),
    "unfolded": ("strides = [2,2]", 8, 4),
    "in groups": ("group = 4", 2, 8),
    "depthwise": ("group = 8", 1, 8),
}


def steps_and_groups(model, **options):
    provider = open_provider(**options)
    graph = load_model(model.SerializeToString()).graph
    groups = [group.nodes for group in provider.get_capability(graph).groups]
    program = provider.compile(Subgraph.cut(graph, range(len(graph.nodes))))
    steps = len(program._lowered.steps)
    provider.close()
    return steps, groups


def check(text, feeds):
    model = onnx.parser.parse_model(text)
    count = len(model.graph.node)
    assert steps_and_groups(model) == (1, [tuple(range(count))])
    found = []
    for fuse in (True, False):
        with session(model, {"fuse": fuse}) as running:
            found.append(running.run(None, feeds)[0])
    assert found[0].tobytes() == found[1].tobytes()
    assert np.abs(found[0]).max() > 0


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("way", WAYS)
def test_convolutions(way, kind):
    more, channels, side = WAYS[way]
    text = CONV.replace("TYPE", kind).replace("CHANNELS", str(channels))
    text = text.replace("SIDE", str(side)).replace("MORE", more)
    shapes = {
        "x": (2, 8, 8, 8),
        "w": (8, channels, 3, 3),
        "b": (8,),
        "r": (2, 8, side, side),
        "c": (8, 1, 1),
    }
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    feeds = {n: floats(*s, seed=i).astype(dtype) for i, (n, s) in enumerate(shapes.items())}
    check(text, feeds)


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_products(kind):
    shapes = {"x": (2, 3, 40), "w": (40, 33), "b": (33,), "r": (2, 3, 33)}
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    feeds = {n: floats(*s, seed=i).astype(dtype) for i, (n, s) in enumerate(shapes.items())}
    check(DENSE.replace("TYPE", kind), feeds)


def test_products_of_bytes():
    random = np.random.default_rng(0)
    feeds = {
        "x": random.integers(0, 255, (30, 40), dtype=np.uint8),
        "w": random.integers(-128, 127, (40, 33), dtype=np.int8),
        "z": np.uint8(7),
        "f": np.float32(0.3),
    }
    check(BYTES, feeds)


def test_functions_stay_outside_on_processors():
    model = onnx.parser.parse_model(DENSE.replace("TYPE", "float").replace("LeakyRelu", "Gelu"))
    assert steps_and_groups(model) == (
        (2, [(1, 2, 3)]) if chosen().kind == "cpu" else (1, [(0, 1, 2, 3)])
    )


def test_what_others_read_too_is_stored():
    text = DENSE.replace("TYPE", "float").replace("(TYPE[2,3,33] y)", "")
    text = text.replace("=> (float[2,3,33] y)", "=> (float[2,3,33] y, float[2,3,33] k)")
    assert steps_and_groups(onnx.parser.parse_model(text)) == (2, [(1, 2, 3)])


def test_an_operand_along_rows_stays_outside():
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[4,5] x, float[5,6] w, float[4,1] r) => (float[4,6] y) {
        k = MatMul (x, w)
        y = Add (k, r)
    }"""
    assert steps_and_groups(onnx.parser.parse_model(text)) == (2, [])


def test_a_product_with_a_vector_has_no_columns():
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[4,5] x, float[5] w, float[4] r) => (float[4] y) {
        k = MatMul (x, w)
        y = Add (k, r)
    }"""
    model = onnx.parser.parse_model(text)
    assert steps_and_groups(model) == (2, [])
    feeds = {"x": floats(4, 5), "w": floats(5, seed=1), "r": floats(4, seed=2)}
    with session(model) as running:
        (found,) = running.run(None, feeds)
    np.testing.assert_allclose(found, feeds["x"] @ feeds["w"] + feeds["r"], rtol=1e-5)


def test_an_operand_smaller_than_the_model_says_is_an_error():
    """Names of lengths are promises that feeds may break."""
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n,5] x, float[5,6] w, float[m,6] a) => (float[n,6] y) {
        k = MatMul (x, w)
        t = Relu (a)
        y = Add (k, t)
    }"""
    model = onnx.parser.parse_model(text.replace("[m,", "[n,"))
    with session(model) as running, pytest.raises((RunError, ValueError)) as caught:
        running.run(None, {"x": floats(4, 5), "w": floats(5, 6), "a": floats(2, 6)})
    assert "n" in str(caught.value) or "doesn't fit" in str(caught.value)


def test_convolutions_of_bytes():
    random = np.random.default_rng(2)
    feeds = {
        "x": random.integers(0, 255, (1, 8, 9, 9), dtype=np.uint8),
        "w": random.integers(-128, 127, (12, 8, 3, 3)).astype(np.int8),
        "z": np.array(7, np.uint8),
    }
    more = {"f": np.array(0.01, np.float32), "b": floats(12, 1, 1)}
    check(BYTES_CONV, {**feeds, **more})
    scales = {"xs": np.float32(0.02), "ws": np.abs(floats(12)) * 0.01, "ys": np.float32(0.05)}
    zeros = {"wz": random.integers(-3, 3, 12).astype(np.int8), "b": np.arange(12, dtype=np.int32)}
    rest = {"r": random.integers(0, 60, (1, 12, 7, 7), dtype=np.uint8)}
    check(
        QUANTIZED_CONV, {**feeds, **{n: np.asarray(v) for n, v in scales.items()}, **zeros, **rest}
    )
