"""Products with weights of a few bits."""

from __future__ import annotations

import numpy as np

from ep_core.types import DataType
from ep_cpu.kernels.contrib_packed_weights import unpack_bits
from ep_cpu.native.steps import NativeStep
from ep_cpu.native.table import NOT_FLOAT, Answer, operator, rank_of
from ep_sdk.kernels import KernelNode

_ZEROS = 3
_GROUPS = 4
_BIAS = 5


@operator("MatMulNBits", domain="com.microsoft")
def _matmul_nbits(node: KernelNode) -> Answer:
    """Of 4 bits, with constant weights; other widths are for the kernels in Python."""
    if node.input_dtype(0) is not DataType.FLOAT or rank_of(node, 0) == 0:
        return NOT_FLOAT
    if int(node.attr("bits", 4)) != 4 or node.has_input(_GROUPS):
        return "another number of bits, or groups"
    codes, scales = node.constants[1], node.constants[2]
    if codes is None or scales is None or scales.dtype != np.float32:
        return "weights that aren't constant, or other scales than float32"
    rows, depth = int(node.attr("N")), int(node.attr("K"))
    block = int(node.attr("block_size"))
    blocks = -(-depth // block)
    if codes.shape != (rows, blocks, block // 2) or scales.size != rows * blocks or block % 2:
        return "weights of another shape"
    zeros = _zero_points(node, rows, blocks)
    if isinstance(zeros, str):
        return zeros
    bias = node.node.inputs[_BIAS] if node.has_input(_BIAS) else ""
    if bias and node.input_dtype(_BIAS) is not DataType.FLOAT:
        return NOT_FLOAT
    output = node.node.outputs[0]
    names = (f"{output}\0scales", f"{output}\0zeros")
    values = (scales.reshape(rows, blocks), zeros)
    return NativeStep(
        "nibble_matmul",
        (*node.node.inputs[:2], bias, *names),
        node.node.outputs,
        {"k": depth},
        (node.node,),
        constants=dict(zip(names, values, strict=True)),
    )


def _zero_points(
    node: KernelNode, rows: int, blocks: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | str:
    """One per block as float32, or why there are none."""
    if not node.has_input(_ZEROS):
        return np.full((rows, blocks), 8, np.float32)
    zeros = node.constants[_ZEROS]
    if zeros is None or zeros.dtype not in (np.uint8, np.float32):
        return "zero points that aren't constant, or of another type"
    if zeros.dtype == np.float32:
        fits = zeros.size == rows * blocks
        return zeros.reshape(rows, blocks) if fits else "zero points of another shape"
    width = -(-blocks // 2)
    if zeros.size != rows * width:
        return "zero points of another shape"
    codes = unpack_bits(zeros.reshape(rows, width), 4)[:, :blocks]
    return np.ascontiguousarray(codes, np.float32)
