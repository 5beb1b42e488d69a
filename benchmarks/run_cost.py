"""What `session.run` costs by itself: a model of one Identity node, beside ONNX Runtime.

The computing is next to nothing, so that checking feeds, walking the plan and making the outputs
is what is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from ep_core import InferenceSession
from table import print_table

__all__ = ["main"]

ROUNDS = 31
RUNS_PER_ROUND = 2000
SHAPES: tuple[tuple[int, ...], ...] = ((1,), (1, 1000), (64, 1000))


def identity_model(shape: tuple[int, ...]) -> bytes:
    """A float32 model of one node whose leading dimension is free."""
    dims: list[str | int | None] = ["batch", *shape[1:]]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "identity",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
    )
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(model.SerializeToString())


def microseconds(run: Callable[..., Any], feeds: dict[str, Any]) -> float:
    """Time one round and return the microseconds of one run."""
    begin = time.perf_counter()
    for _ in range(RUNS_PER_ROUND):
        run(None, feeds)
    return (time.perf_counter() - begin) / RUNS_PER_ROUND * 1e6


def compare(shape: tuple[int, ...]) -> tuple[str, str, str, str]:
    """Measure one shape and return a row of the table."""
    model = identity_model(shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones(shape, np.float32)}
    with InferenceSession(model) as ours:
        microseconds(ours.run, feeds)
        microseconds(theirs.run, feeds)
        pairs = [
            (microseconds(ours.run, feeds), microseconds(theirs.run, feeds)) for _ in range(ROUNDS)
        ]
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    our_time, their_time = (statistics.median(side) for side in zip(*pairs, strict=True))
    return f"float32 {list(shape)}", f"{our_time:.2f}", f"{their_time:.2f}", f"{ratio:.2f}"


def main() -> None:
    """Measure and print."""
    print_table(
        f"One Identity node, median of {ROUNDS} rounds of {RUNS_PER_ROUND} runs",
        ("input", "ep-core, us", "onnxruntime, us", "ratio"),
        [compare(shape) for shape in SHAPES],
    )
