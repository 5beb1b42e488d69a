"""The simulator computes what the ONNX specification says, for every version that it claims.

Newest versions: the specification's own node tests, as shipped by the onnx package. Older ones:
values worked out by hand from the operator's documentation at that version.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases

from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DataType
from ep_sdk.simulator.launch import TABLE


def _official_cases():
    """The node tests of the simulator's operators.

    Modules are named after operators; underscores are left out, because the onnx package has moved
    between `or`, `or_` and the like.
    """
    ours = {row.op_type for row in TABLE}
    wanted = {op_type.lower() for op_type in ours} | {"lessequal", "greaterequal"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node_cases.__path__):
            if module.name.replace("_", "") in wanted:
                importlib.import_module(f"{node_cases.__name__}.{module.name}")
    found = {}
    for case in node_cases._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in ours and not nodes[0].domain:
            found[case.name] = case
    return list(found.values())


def _make_constant(model, name, array):
    """Turn an input into a constant, as in nearly every real model."""
    kept = [value for value in model.graph.input if value.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))


_HOST_INPUTS = {
    "Reshape": ("shape",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
    "ReduceSum": ("axes",),
    "ReduceMean": ("axes",),
    "ReduceMax": ("axes",),
    "ReduceMin": ("axes",),
    "ReduceProd": ("axes",),
}


def test_official_node_tests(simulator, run_on):
    """Each case is run or refused for its types; and the refused ones are few."""
    device = simulator()
    refused = []
    count = 0
    for case in _official_cases():
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        op_type = model.graph.node[0].op_type
        for inputs, expected in case.data_sets:
            arrays = []
            for value, array in zip(case.model.graph.input, inputs, strict=True):
                if value.name in _HOST_INPUTS.get(op_type, ()):
                    _make_constant(model, value.name, array)
                else:
                    arrays.append(array)
            graph = load_model(model).graph
            (support,) = device.get_capability(graph).nodes
            if not support.supported:
                refused.append((case.name, support.reason))
                continue
            if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
                continue
            (result,) = run_on(device, graph, *arrays)
            assert result.dtype == expected[0].dtype, case.name
            np.testing.assert_allclose(
                result,
                expected[0],
                rtol=1e-3 if result.dtype == np.float16 else 1e-6,
                atol=1e-7,
                err_msg=case.name,
            )
            count += 1
    assert count >= 200
    reasons = ("dtype ", "only dense tensors", "casts to element type")
    odd = [(name, why) for name, why in refused if not any(reason in why for reason in reasons)]
    assert odd == []


def run(run_on, provider, graph_of, text, *arrays, opset=17, **constants):
    graph = graph_of(text, opset=opset, **constants)
    (support,) = provider.get_capability(graph).nodes
    assert support.supported, support.reason
    return run_on(provider, graph, *arrays)[0]


CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("opset", [7, 11, 12])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_before_13_runs_over_all_axes_from_its_axis_on(
    simulator, run_on, graph_of, opset, axis
):
    text = f"(float[2,3,4] x) => (float[2,3,4] y) {{ y = Softmax <axis = {axis}> (x) }}"
    result = run(run_on, simulator(), graph_of, text, CUBE, opset=opset)
    axes = tuple(range(axis, 3))
    powers = np.exp(CUBE - CUBE.max(axis=axes, keepdims=True))
    np.testing.assert_allclose(result, powers / powers.sum(axis=axes, keepdims=True), rtol=1e-6)


def test_softmax_defaults(simulator, run_on, graph_of):
    text = "(float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }"
    device = simulator()
    old = run(run_on, device, graph_of, text, CUBE, opset=12)
    np.testing.assert_allclose(old.sum(axis=(1, 2)), [1, 1], rtol=1e-6)
    new = run(run_on, device, graph_of, text, CUBE, opset=13)
    np.testing.assert_allclose(new.sum(axis=2), np.ones((2, 3)), rtol=1e-6)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("opset", [7, 11, 12])
def test_reductions_take_axes_as_attribute(simulator, run_on, graph_of, op_type, opset):
    text = f"(float[2,3,4] x) => (float[2,4] y) {{ y = {op_type} <axes = [1], keepdims = 0> (x) }}"
    expected = {
        "ReduceSum": np.sum,
        "ReduceMean": np.mean,
        "ReduceMax": np.max,
        "ReduceMin": np.min,
    }
    result = run(run_on, simulator(), graph_of, text, CUBE, opset=opset)
    np.testing.assert_array_equal(result, expected[op_type](CUBE, axis=1))


def test_reduce_sum_takes_axes_as_input_from_13_and_others_from_18(simulator, run_on, graph_of):
    device = simulator()
    axes = np.array([0, -1])
    text = "(float[2,3,4] x) => (float[1,3,1] y) {{ y = {}(x, axes) }}"
    result = run(run_on, device, graph_of, text.format("ReduceSum"), CUBE, opset=13, axes=axes)
    np.testing.assert_array_equal(result, CUBE.sum(axis=(0, 2), keepdims=True))
    result = run(run_on, device, graph_of, text.format("ReduceMax"), CUBE, opset=18, axes=axes)
    np.testing.assert_array_equal(result, CUBE.max(axis=(0, 2), keepdims=True))


def test_reduce_with_no_axes(simulator, run_on, graph_of):
    device = simulator()
    everything = "(float[2,3,4] x) => (float[1,1,1] y) { y = ReduceSum(x) }"
    assert run(run_on, device, graph_of, everything, CUBE).item() == 276
    nothing = "(float[2,3,4] x) => (float[2,3,4] y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }"
    np.testing.assert_array_equal(run(run_on, device, graph_of, nothing, CUBE), CUBE)


def test_reductions_of_nothing(simulator, run_on, graph_of):
    """ReduceMax 20: of an empty set it is minus infinity, or the type's smallest value."""
    device = simulator()
    empty = np.zeros((0, 2), np.float32)
    text = "(float[0,2] x) => (float[1,2] y) {{ y = {}(x, axes) }}"
    for op_type, expected in (
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceMean", np.nan),
    ):
        result = run(
            run_on, device, graph_of, text.format(op_type), empty, opset=18, axes=np.array([0])
        )
        np.testing.assert_array_equal(result, [[expected, expected]])


def test_integer_sums_wrap_and_keep_their_type(simulator, run_on, graph_of):
    text = "(int32[2] x) => (int32[1] y) { y = ReduceSum(x) }"
    result = run(run_on, simulator(), graph_of, text, np.int32([2**31 - 1, 1]))
    assert result.dtype == np.int32
    assert result.item() == -(2**31)


@pytest.mark.parametrize("opset", [11, 12])
def test_squeeze_and_unsqueeze_before_13(simulator, run_on, graph_of, opset):
    device = simulator()
    x = CUBE.reshape(2, 1, 3, 1, 4)
    text = "(float[2,1,3,1,4] x) => (float[2,3,1,4] y) { y = Squeeze <axes = [1]> (x) }"
    assert run(run_on, device, graph_of, text, x, opset=opset).shape == (2, 3, 1, 4)
    text = "(float[2,1,3,1,4] x) => (float[2,3,4] y) { y = Squeeze(x) }"
    assert run(run_on, device, graph_of, text, x, opset=opset).shape == (2, 3, 4)
    text = "(float[2,3,4] x) => (float[1,2,3,4,1] y) { y = Unsqueeze <axes = [0, 4]> (x) }"
    assert run(run_on, device, graph_of, text, CUBE, opset=opset).shape == (1, 2, 3, 4, 1)


def test_slice_before_10(simulator, run_on, graph_of):
    text = (
        "(float[2,3,4] x) => (float[2,2,2] y)"
        " { y = Slice <axes = [1, 2], starts = [1, -3], ends = [1000, -1]> (x) }"
    )
    result = run(run_on, simulator(), graph_of, text, CUBE, opset=9)
    np.testing.assert_array_equal(result, CUBE[:, 1:, 1:3])


@pytest.mark.parametrize(
    ("x", "expected"),
    [([-5, -1, 0, 1, 9], [-2, -1, 0, 1, 6]), ([7, 2, 3, -7, 4], [6, 2, 3, -2, 4])],
)
@pytest.mark.parametrize("opset", [6, 11, 13])
def test_clip_takes_bounds_as_attributes_and_later_as_inputs(
    simulator, run_on, graph_of, x, expected, opset
):
    x = np.float32(x)
    if opset < 11:
        text = "(float[5] x) => (float[5] y) { y = Clip <min = -2.0, max = 6.0> (x) }"
        result = run(run_on, simulator(), graph_of, text, x, opset=opset)
    else:
        text = "(float[5] x) => (float[5] y) { y = Clip(x, low, high) }"
        result = run(
            run_on,
            simulator(),
            graph_of,
            text,
            x,
            opset=opset,
            low=np.float32(-2),
            high=np.float32(6),
        )
    np.testing.assert_array_equal(result, expected)
    text = "(float[5] x) => (float[5] y) { y = Clip(x, , high) }"
    result = run(run_on, simulator(), graph_of, text, x, high=np.float32(0))
    np.testing.assert_array_equal(result, np.minimum(x, 0))


def test_gemm_before_c_became_optional(simulator, run_on, graph_of):
    a, b, c = CUBE[0], CUBE[1], np.float32([1, 2, 3])
    text = (
        "(float[4,3] a, float[3,4] b, float[3] c) => (float[3,3] y)"
        " { y = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (a, b, c) }"
    )
    result = run(run_on, simulator(), graph_of, text, a.T.copy(), b, c, opset=7)
    np.testing.assert_allclose(result, 0.5 * (a @ b.T) + 2 * c, rtol=1e-6)


def test_integers_divide_towards_zero(simulator, run_on, graph_of):
    text = "(int32[4] a, int32[4] b) => (int32[4] y) { y = Div(a, b) }"
    a, b = np.int32([7, -7, 7, -7]), np.int32([2, 2, -2, -2])
    result = run(run_on, simulator(), graph_of, text, a, b)
    np.testing.assert_array_equal(result, [3, -3, -3, 3])


def test_reshape_rules(simulator, run_on, graph_of):
    device = simulator()
    text = "(float[2,3,4] x) => (float[M,N] y) { y = Reshape(x, shape) }"
    result = run(run_on, device, graph_of, text, CUBE, shape=np.array([0, -1]))
    assert result.shape == (2, 12)
    text = "(float[0,3] x) => (float[M,N] y) { y = Reshape <allowzero = 1> (x, shape) }"
    empty = np.zeros((0, 3), np.float32)
    assert run(run_on, device, graph_of, text, empty, shape=np.array([3, 0])).shape == (3, 0)


@pytest.mark.parametrize("start_end", [(0, None), (1, None), (-1, None), (0, 2), (1, -1), (-9, 9)])
def test_shape_from_15_may_be_a_part(simulator, run_on, graph_of, start_end):
    start, end = start_end
    bounds = f"start = {start}" + ("" if end is None else f", end = {end}")
    text = f"(float[2,3,4] x) => (int64[N] y) {{ y = Shape <{bounds}> (x) }}"
    result = run(run_on, simulator(), graph_of, text, CUBE, opset=15)
    np.testing.assert_array_equal(result, (2, 3, 4)[start:end])


@pytest.mark.parametrize(
    "source", [np.float32, np.float16, np.float64, np.int32, np.int64, np.bool_]
)
@pytest.mark.parametrize("target", ["FLOAT", "FLOAT16", "DOUBLE", "INT32", "INT64", "BOOL"])
def test_casts(simulator, run_on, graph_of, source, target):
    array = np.array([0, 1, 2]).astype(source)
    kind, name = DataType[target], DataType.from_numpy(array.dtype).text
    text = f"({name}[3] x) => ({kind.text}[3] y) {{ y = Cast <to = {int(kind)}> (x) }}"
    result = run(run_on, simulator(), graph_of, text, array)
    assert result.dtype == kind.numpy
    np.testing.assert_array_equal(result, array.astype(kind.numpy))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[4] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }", "a constant 'shape'"),
        ("(float[4] x, int64[1] s) => (float[N] y) { y = ReduceSum(x, s) }", "a constant 'axes'"),
        ("(float[4] x, int64[1] s) => (float[N] y) { y = Slice(x, c, s) }", "a constant 'ends'"),
        ("(float[4] x, int64[1] s) => (float[N] y) { y = Squeeze(x, s) }", "a constant 'axes'"),
    ],
)
def test_what_the_host_must_know_has_to_be_constant(simulator, graph_of, text, reason):
    (support,) = simulator().get_capability(graph_of(text, c=np.array([0]))).nodes
    assert (support.supported, support.reason) == (False, f"needs {reason}")


def test_versions_before_broadcasting_are_not_claimed(simulator, graph_of):
    graph = graph_of("(float[4] x) => (float[4] y) { y = Add(x, x) }", opset=6)
    (support,) = simulator().get_capability(graph).nodes
    assert support.reason == "version 6 of Add: kernels cover 7..28"


def test_a_latency_is_an_estimate_of_cost_and_nothing_else_is(simulator, graph_of):
    graph = graph_of("(float[4] x) => (float[4] z) { y = Add(x, x) z = Identity(y) }")
    assert [s.cost for s in simulator().get_capability(graph).nodes] == [None, None]
    slow = simulator(kernel_latency_us=250)
    assert [s.cost for s in slow.get_capability(graph).nodes] == [250e-6, 0.0]
    refused = graph_of("(float[4] x) => (float[4] y) { y = Celu(x) }")
    assert slow.get_capability(refused).nodes[0].cost is None


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("(float[N] x, float[M] y) => (float[K] z) { z = Add(x, y) }", [(3,), (4,)]),
        ("(float[N,M] x, float[M,K] y) => (float[N,K] z) { z = MatMul(x, y) }", [(2, 3), (4, 2)]),
        ("(float[N] x) => (float[A,B] z) { z = Reshape(x, s) }", [(7,)]),
        ("(float[N,M] x) => (float[M] z) { z = Squeeze(x, zero) }", [(2, 3)]),
        (
            "(float[N] x, float[M,K] y) => (float[A] z) { z = Concat <axis = 0> (x, y) }",
            [(2,), (2, 2)],
        ),
    ],
)
def test_shapes_that_don_t_fit_are_run_errors_that_name_the_node(
    simulator, graph_of, run_on, text, arrays
):
    from ep_core.errors import RunError

    graph = graph_of(text, s=np.array([2, 3]), zero=np.array([0]))
    device = simulator()
    part = device.compile(Subgraph.cut(graph, range(len(graph.nodes))))
    stream = device.create_stream()
    inputs = [device.allocator.allocate(shape, DataType.FLOAT, stream) for shape in arrays]
    with pytest.raises(RunError, match=rf"node '{graph.nodes[0].name}'"):
        part.run(inputs, [None], stream)
    for buffer in inputs:
        device.allocator.release(buffer, stream)


def test_an_index_out_of_range_is_an_error_of_the_stream(simulator, graph_of, whole, to_device):
    from ep_core.errors import RunError

    device = simulator()
    part = device.compile(
        whole(graph_of("(float[4] x, int64[2] i) => (float[2] y) { [pick] y = Gather(x, i) }"))
    )
    stream = device.create_stream()
    inputs = [
        to_device(device, stream, np.ones(4, np.float32)),
        to_device(device, stream, np.array([0, 4])),
    ]
    outputs = [None]
    part.run(inputs, outputs, stream)
    with pytest.raises(
        RunError, match=r"node 'pick' \(Gather\).*IndexError.*float\[4\], int64\[2\]"
    ):
        stream.synchronize()
    for buffer in (*inputs, *outputs):
        device.allocator.release(buffer, stream)
