"""Products with weights of 4 bits in native code, against the kernels in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_native import compile_model, model_of, needs_native, on_every_level, random
from onnx import helper

pytestmark = needs_native


def weights(rows, depth, block, zeros):
    source = np.random.default_rng([rows, depth, block])
    blocks = -(-depth // block)
    made = {
        "w": source.integers(0, 256, (rows, blocks, block // 2)).astype(np.uint8),
        "s": (source.random(rows * blocks) + 0.1).astype(np.float32),
    }
    if zeros == "bytes":
        made["z"] = source.integers(0, 256, rows * -(-blocks // 2)).astype(np.uint8)
    elif zeros == "floats":
        made["z"] = (source.random((rows, blocks)) * 15).astype(np.float32)
    return made


@on_every_level
@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize(("rows", "depth", "block"), [(5, 32, 32), (100, 70, 16), (49, 257, 128)])
def test_blocks_of_weights(level, zeros, rows, depth, block):
    constants = {**weights(rows, depth, block, zeros), "b": random(rows)}
    inputs = ["x", "w", "s", "z" if zeros != "none" else "", "", "b"]
    nodes = [
        helper.make_node(
            "MatMulNBits",
            inputs,
            ["p"],
            domain="com.microsoft",
            N=rows,
            K=depth,
            block_size=block,
            bits=4,
        ),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    for shape in ((1, depth), (2, 7, depth)):
        feeds = {"x": random(*shape)}
        model = model_of(nodes, feeds, constants)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        (expected,) = compile_model(model, "none").run(feeds)
        for threads in (1, 3):
            native = compile_model(model, level, threads)
            (found,) = native.run(feeds)
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5 * expected.max())
            assert native.kinds[0] == "nibble_matmul"
            assert not native.refused
