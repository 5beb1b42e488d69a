"""What operators are said to take on processors; no device is needed."""

from __future__ import annotations

import onnx.parser
import pytest

from ep_core.loading.load import load_model
from ep_core.types import DeviceSpeed
from ep_opencl.costs import processor_seconds
from ep_sdk.lookup import describe_node

SPEED = DeviceSpeed(5e10, 1e10, operator_seconds=2e-5, partition_seconds=8e-5)


def seconds(text):
    head = '<ir_version: 9, opset_import: ["" : 20]> g '
    graph = load_model(onnx.parser.parse_model(head + text)).graph
    return processor_seconds(describe_node(graph, graph.nodes[0], {}, None), SPEED)


def conv(x, w, y, attributes=""):
    return seconds(
        f"(float[{x}] x, float[{w}] w) => (float[{y}] y) {{ y = Conv{attributes}(x, w) }}"
    )


def test_a_depthwise_convolution_takes_five_times_its_arithmetic():
    found = conv("1,64,30,30", "64,1,3,3", "1,64,28,28", "<group=64>")
    assert found == pytest.approx(2e-5 + 5 * 2 * 64 * 28 * 28 * 9 / 5e10)


def test_and_more_with_steps():
    with_steps = conv("1,64,30,30", "64,1,3,3", "1,64,14,14", "<group=64, strides=[2,2]>")
    assert with_steps == pytest.approx(2e-5 + 20 * 2 * 64 * 14 * 14 * 9 / 5e10)


def test_unfolding_is_paid_by_bytes():
    found = conv("1,3,64,64", "8,3,3,3", "1,8,31,31", "<strides=[2,2]>")
    arithmetic = 2 * 8 * 31 * 31 * 27 / 5e10
    assert found == pytest.approx(2e-5 + arithmetic + 2 * 4 * 27 * 31 * 31 / 1e10)


def test_what_the_declared_speed_is_right_for_is_left_to_it():
    assert conv("1,64,30,30", "64,64,3,3", "1,64,28,28") is None
    assert conv("1,64,30,30", "64,64,1,1", "1,64,15,15", "<strides=[2,2]>") is None
    assert seconds("(float[9] x) => (float[9] y) { y = Relu(x) }") is None


def test_unknown_lengths_are_left_to_the_core():
    assert conv("n,64,30,30", "64,1,3,3", "n,64,28,28", "<group=64>") is None


def test_transposed_convolutions_and_pools():
    found = seconds(
        """(float[1,8,10,10] x, float[8,4,2,2] w) => (float[1,4,20,20] y) {
            y = ConvTranspose<strides=[2,2]>(x, w)
        }"""
    )
    assert found == pytest.approx(2e-5 + 2.5 * 2 * 800 * 16 / 5e10)
    pool = "(float[1,8,10,10] x) => (float[1,8,8,8] y) { y = MaxPool<kernel_shape=[3,3]>(x) }"
    assert seconds(pool) == pytest.approx(2e-5 + 8 * 64 * 9 / (0.03 * 5e10))
