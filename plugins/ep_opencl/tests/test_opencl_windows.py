"""Windows that don't fit their input, for every operator that slides one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from opencl_harness import needs_device, session

from ep_core.errors import RunError

pytestmark = needs_device

OPERATORS = {
    "Conv": ("float", "Conv (x, w)"),
    "Conv with an epilogue": ("float", "Relu (c)"),
    "dilated Conv": ("float", "Conv <dilations = [2]> (x, v)"),
    "ConvInteger": ("uint8", "ConvInteger (x, w)"),
    "MaxPool": ("float", "MaxPool <kernel_shape = [5]> (x)"),
    "MaxPool rounding up": ("float", "MaxPool <kernel_shape = [5], ceil_mode = 1> (x)"),
    "MaxPool with positions": ("float", "MaxPool <kernel_shape = [5]> (x)"),
    "AveragePool": ("float", "AveragePool <kernel_shape = [5]> (x)"),
    "LpPool": ("float", "LpPool <kernel_shape = [5]> (x)"),
}
"""By name, the type of the elements and the node's text; each window spans five elements."""


def opened(name):
    """A session in which the length of the input is known only in a run."""
    kind, text = OPERATORS[name]
    before = "c = Conv (x, w)" if "(c)" in text else ""
    results = "y, positions" if "positions" in name else "y"
    gives = "int32" if name == "ConvInteger" else kind
    outputs = f"{gives}[A, B, C] y"
    if "positions" in name:
        outputs += ", int64[A, B, C] positions"
    ones = ", ".join("1" * 10)
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    g ({kind}[N, 1, L] x) => ({outputs})
    <{kind}[2, 1, 5] w = {{{ones}}}, {kind}[2, 1, 3] v = {{1, 1, 1, 1, 1, 1}}> {{
        {before}
        {results} = {text}
    }}""")
    return session(model)


def counted(name, images, length):
    dtype = np.uint8 if OPERATORS[name][0] == "uint8" else np.float32
    return {"x": np.ones((images, 1, length), dtype)}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_longer_than_the_input_is_an_error(name):
    with opened(name) as running:
        with pytest.raises(RunError, match="longer than the padded input, by 2"):
            running.run(None, counted(name, 1, 3))
        # Just long enough: one window, and the session works after the error.
        assert running.run(None, counted(name, 1, 5))[0].shape[2] == 1


@pytest.mark.parametrize("name", OPERATORS)
def test_a_batch_of_no_images_is_legal(name):
    with opened(name) as running:
        shape = running.run(None, counted(name, 0, 6))[0].shape
    assert shape[0] == 0
    assert shape[2] == 2


def test_padding_counts_as_input():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    g (float[1, 1, L] x) => (float[1, 1, M] y) {
        y = MaxPool <kernel_shape = [5], pads = [1, 1]> (x)
    }""")
    with session(model) as running:
        found = running.run(None, {"x": np.arange(3, dtype=np.float32).reshape(1, 1, 3)})
        assert found[0].tolist() == [[[2.0]]]
        with pytest.raises(RunError, match="by 1"):
            running.run(None, {"x": np.zeros((1, 1, 2), np.float32)})
