"""Native convolution and pooling, and channels that stay innermost between them."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_native import check_same, compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native
node = helper.make_node


def conv(level, x, weights, bias=None, **attributes):
    constants = {"w": weights}
    if bias is not None:
        constants["b"] = bias
    nodes = [node("Conv", ["x", *constants], ["y"], **attributes)]
    return check_same(nodes, {"x": x}, level, constants, tolerance=4e-6)


@on_every_level
@pytest.mark.parametrize("channels", [1, 3, 15, 16, 33])
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (5, 2), (7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(level, channels, size, stride):
    edge = [size[0] // 2, size[1] // 2]
    native = conv(
        level,
        random(2, channels, 13, 11),
        random(20, channels, *size),
        random(20),
        strides=[stride, stride],
        pads=edge * 2,
    )
    assert native.kinds == ["transpose", "conv", "transpose"]


@on_every_level
@pytest.mark.parametrize(
    "attributes",
    [
        {"dilations": [2, 3], "pads": [1, 4, 3, 0]},
        {"strides": [3, 1], "pads": [0, 2, 0, 0]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
        {"auto_pad": "VALID"},
    ],
)
@pytest.mark.parametrize("channels", [2, 24])
def test_attributes_of_convolutions(level, attributes, channels):
    conv(level, random(1, channels, 14, 17), random(5, channels, 3, 4), **attributes)


@on_every_level
def test_deep_windows_are_cut_into_blocks(level):
    conv(level, random(1, 300, 6, 6), random(50, 300, 3, 3), pads=[1, 1, 1, 1])


def convolution_in_double(x, weights, bias, edge):
    x, weights, bias = (value.astype(np.float64) for value in (x, weights, bias))
    padded = np.pad(x, ((0, 0), (0, 0), edge[::2], edge[1::2]))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    result = np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True)
    return result + bias[:, None, None]


@on_every_level
@pytest.mark.parametrize(
    ("ins", "outs", "height", "width", "edge"),
    [
        (16, 20, 8, 9, [1, 1, 1, 1]),
        (33, 50, 13, 31, [0, 2, 1, 0]),
        (64, 100, 40, 24, [1, 1, 1, 1]),
        (170, 16, 9, 12, [1, 0, 1, 1]),
        (20, 200, 8, 8, [0, 0, 0, 0]),
    ],
)
def test_convolutions_in_tiles(level, ins, outs, height, width, edge):
    """Sizes that Winograd's method takes, in tiles of 4 x 4 and, with many channels, 2 x 2."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=edge),
        node("Relu", ["c"], ["r"]),
        node("Sigmoid", ["c"], ["s"]),
        node("Mul", ["c", "s"], ["m"]),
    ]
    x, bias = random(2, ins, height, width), random(outs)
    weights = random(outs, ins, 3, 3)
    constants = {"w": weights, "b": bias}
    shape = convolution_in_double(x, weights, bias, edge).shape
    rest = random(*shape).astype(np.float32)
    plain = check_same(nodes[:2], {"x": x}, level, constants, outputs=["r"], tolerance=8e-6)
    assert plain.kinds == ["transpose", "conv", "transpose"]
    [step] = [step for segment in plain.segments for step in segment._steps if step.kind == "conv"]
    assert step.attributes["winograd"] == (4 if max(ins, outs) <= 160 else 2)
    exact = convolution_in_double(x, weights, bias, edge)
    [found] = plain.run({"x": x})
    error = np.abs(found - np.maximum(exact, 0)).max() / np.abs(exact).max()
    assert error < 5e-6
    behind = [nodes[0], *nodes[2:], node("Add", ["m", "rest"], ["y"])]
    chained = check_same(behind, {"x": x, "rest": rest}, level, constants, tolerance=8e-6)
    assert "elementwise" not in chained.kinds


@on_every_level
@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2]},
        {"strides": [3, 2], "pads": [1, 0, 2, 1], "output_padding": [1, 0]},
        {"dilations": [2, 3], "pads": [2, 1, 0, 3]},
        {"strides": [4, 5], "dilations": [1, 2]},
    ],
)
@pytest.mark.parametrize("outs", [1, 20])
def test_transposed_convolutions(level, attributes, outs):
    nodes = [
        node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes),
        node("Relu", ["c"], ["r"]),
        node("Sigmoid", ["r"], ["y"]),
    ]
    constants = {"w": random(7, outs, 3, 2), "b": random(outs)}
    x = random(2, 7, 5, 6)
    native = check_same(nodes, {"x": x}, level, constants, tolerance=4e-6)
    assert native.kinds == ["transpose", "conv_transpose", "transpose"]
    check_same(nodes[:2], {"x": x}, level, constants, outputs=["r"], tolerance=4e-6)
    bare = [node("ConvTranspose", ["x", "w"], ["y"], **attributes)]
    check_same(bare, {"x": x}, level, {"w": constants["w"]}, tolerance=4e-6)


@on_every_level
def test_transposed_convolutions_of_sequences(level):
    attributes = {"strides": [2], "pads": [1, 2], "output_padding": [1]}
    nodes = [node("ConvTranspose", ["x", "w"], ["y"], **attributes)]
    check_same(nodes, {"x": random(2, 20, 9)}, level, {"w": random(20, 6, 4)}, tolerance=4e-6)


@on_every_level
@pytest.mark.parametrize("group", [1, 4])
def test_a_picture_with_an_open_number_of_channels(level, group):
    nodes = [node("Conv", ["x", "w"], ["c"], group=group), node("Relu", ["c"], ["y"])]
    weights = {"w": random(4, 4 // group, 3, 3)}
    shapes = {"x": ["n", "channels", "height", "width"]}
    check_same(nodes, {"x": random(1, 4, 9, 9)}, level, weights, shapes=shapes)


@on_every_level
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite_reaches_its_own_tile_alone(level, number):
    x = random(1, 16, 16, 16)
    x[0, 3, 2, 2] = number
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    model = model_of(nodes, {"x": x}, {"w": random(16, 16, 3, 3)})
    [found] = compile_model(model, level).run({"x": x})
    [expected] = compile_model(model, "none").run({"x": x})
    assert not np.isfinite(found[..., 1:4, 1:4]).any()
    np.testing.assert_allclose(found[..., 8:, 8:], expected[..., 8:, 8:], atol=1e-4)


@on_every_level
@pytest.mark.parametrize("channels", [5, 16, 40])
@pytest.mark.parametrize("width", [1, 3, 17])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_chains_behind_depthwise(level, channels, width, stride):
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], group=channels, strides=[stride] * 2, pads=[2] * 4),
        node("HardSwish", ["c"], ["h"]),
        node("Add", ["h", "scale"], ["y"]),
    ]
    constants = {"w": random(channels, 1, 5, 5), "b": random(channels)}
    constants["scale"] = random(channels, 1, 1)
    native = check_same(nodes, {"x": random(2, channels, 9, width)}, level, constants)
    assert native.kinds == ["transpose", "depthwise", "transpose"]


@on_every_level
@pytest.mark.parametrize("channels", [1, 8, 40])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise(level, channels, stride):
    x, w = random(2, channels, 12, 9), random(channels, 1, 3, 3)
    if channels == 1:
        w = random(1, 1, 3, 3)
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], group=channels, strides=[stride] * 2, pads=[1] * 4),
        node("Clip", ["c", "low", "high"], ["y"]),
    ]
    constants = {
        "w": w,
        "b": random(channels),
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    native = check_same(nodes, {"x": x}, level, constants)
    assert native.kinds == ["transpose", "conv" if channels == 1 else "depthwise", "transpose"]


@on_every_level
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "dilations": [2, 2], "pads": [2, 0, 1, 1]},
        {"kernel_shape": [4, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_pooling(level, op_type, attributes):
    x = random(2, 19, 13, 11)
    x[0, 3, 4, 5] = np.nan
    native = check_same([node(op_type, ["x"], ["y"], **attributes)], {"x": x}, level)
    assert native.kinds == ["transpose", "pool", "transpose"]


@on_every_level
def test_averages_that_count_padding(level):
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    check_same([node("AveragePool", ["x"], ["y"], **attributes)], {"x": random(1, 5, 6, 6)}, level)


@on_every_level
def test_channels_stay_innermost_through_a_block(level):
    """Two branches, a sum, per-channel scales, a mean and a product: two transposes in all."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"]),
        node("Mul", ["c2", "scale"], ["m"]),
        node("Add", ["m", "c1"], ["s"]),
        node("Concat", ["s", "r1"], ["t"], axis=1),
        node("GlobalAveragePool", ["t"], ["g"]),
        node("Sigmoid", ["g"], ["gate"]),
        node("Mul", ["t", "gate"], ["y"]),
    ]
    constants = {
        "w1": random(12, 5, 3, 3),
        "b1": random(12),
        "w2": random(12, 12, 1, 1),
        "scale": random(12, 1, 1),
    }
    native = check_same(nodes, {"x": random(2, 5, 8, 9)}, level, constants, tolerance=4e-6)
    assert not native.refused


@on_every_level
def test_a_picture_of_open_size(level):
    nodes = [node("Conv", ["x", "w"], ["c"], strides=[2, 2]), node("Relu", ["c"], ["y"])]
    shapes = {"x": ["batch", 3, "height", "width"]}
    for size in ((1, 3, 9, 9), (2, 3, 20, 7)):
        check_same(nodes, {"x": random(*size)}, level, {"w": random(4, 3, 3, 3)}, shapes=shapes)


@on_every_level
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("size", [(1, 1), (3, 3)])
def test_groups(level, groups, size):
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], group=groups, strides=[1, 2]),
        node("Relu", ["c"], ["y"]),
    ]
    constants = {"w": random(5 * groups, 4, *size), "b": random(5 * groups)}
    x = random(2, 4 * groups, 9, 8)
    native = check_same(nodes, {"x": x}, level, constants, tolerance=4e-6)
    assert native.kinds == ["transpose", "conv", "transpose"]


@on_every_level
@pytest.mark.parametrize(
    ("channels", "groups", "size", "attributes"),
    [
        (1, 1, 5, {"pads": [2, 2]}),
        (20, 1, 3, {"strides": [2], "dilations": [3], "pads": [1, 4]}),
        (6, 6, 3, {"pads": [1, 1]}),
        (6, 2, 4, {"auto_pad": "SAME_LOWER"}),
    ],
)
def test_sequences(level, channels, groups, size, attributes):
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], group=groups, **attributes),
        node("MaxPool", ["c"], ["p"], kernel_shape=[3], strides=[2]),
        node("Mul", ["p", "scale"], ["m"]),
        node("GlobalAveragePool", ["m"], ["g"]),
        node("Sub", ["m", "g"], ["y"]),
    ]
    constants = {
        "w": random(12, channels // groups, size),
        "b": random(12),
        "scale": random(12, 1),
    }
    x = random(2, channels, 31)
    native = check_same(nodes, {"x": x}, level, constants, tolerance=4e-6)
    assert native.kinds.count("transpose") == 3


@on_every_level
def test_a_depth_of_unknown_shape_behind_a_convolution(level):
    """The size of the result isn't declared; its rank follows from the input's."""
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Softmax", ["c"], ["y"], axis=-1)]
    shapes = {"x": ["n", 3, None, None]}
    check_same(nodes, {"x": random(1, 3, 9, 9)}, level, {"w": random(4, 3, 3, 3)}, shapes=shapes)


@on_every_level
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("size", [(14, 18), (3, 4), (7, 27), (1, 1)])
def test_resize(level, mode, coordinates, size):
    x = random(2, 5, 7, 9)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    scales = np.array([1, 1, size[0] / 7, size[1] / 9], np.float32)
    scales[2:] += np.float32(1e-6)
    sizes = np.array([2, 5, *size], np.int64)
    for names, constants in (
        (["x", "", "scales"], {"scales": scales}),
        (["x", "", "", "sizes"], {"sizes": sizes}),
    ):
        nodes = [node("Resize", names, ["y"], **attributes)]
        native = check_same(nodes, {"x": x}, level, constants, tolerance=4e-6)
        assert native.kinds == ["transpose", "resize", "transpose"]


@on_every_level
@pytest.mark.parametrize("rounding", ["round_prefer_ceil", "floor", "ceil"])
def test_rounding_of_resize(level, rounding):
    constants = {"scales": np.array([1, 1, 1.5, 0.5], np.float32)}
    nodes = [node("Resize", ["x", "", "scales"], ["y"], nearest_mode=rounding)]
    check_same(nodes, {"x": random(1, 3, 8, 10)}, level, constants)
