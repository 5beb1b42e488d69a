"""Products of matrices."""

from __future__ import annotations

from ep_cpu.native.steps import shape_of
from ep_cpu.native.table import (
    NOT_FLOAT,
    Answer,
    all_floats,
    native_step,
    operator,
    rank_of,
)
from ep_sdk.kernels import KernelNode


@operator("MatMul")
def _matmul(node: KernelNode) -> Answer:
    if not all_floats(node):
        return NOT_FLOAT
    # Unknown ranks are taken for those of matrices; the plan refuses vectors.
    if any(rank_of(node, index) in (0, 1) for index in range(2)):
        return "a vector"
    return native_step(node, "matmul", inputs=(*node.node.inputs, ""))


@operator("Gemm")
def _gemm(node: KernelNode) -> Answer:
    if not all_floats(node):
        return NOT_FLOAT
    if rank_of(node, 0) != 2 or rank_of(node, 1) != 2 or node.attr("transA", 0):
        return "a transposed first operand, or unknown ranks"
    if float(node.attr("alpha", 1.0)) != 1.0 or float(node.attr("beta", 1.0)) != 1.0:
        return "factors"
    bias = ""
    if node.has_input(2):
        bias = node.node.inputs[2]
        shape = shape_of(node.input_types[2])
        weight = shape_of(node.input_types[1])
        if shape is None or weight is None:
            return "a bias of unknown shape"
        width = weight[0 if node.attr("transB", 0) else 1]
        # The bias must be the whole width: that of a single column would be repeated.
        if not shape or shape[-1] != width or any(length != 1 for length in shape[:-1]):
            return "a bias that isn't a vector"
    step = native_step(node, "matmul", inputs=(*node.node.inputs[:2], bias))
    return step.with_attributes(b_order=[1, 0]) if node.attr("transB", 0) else step
