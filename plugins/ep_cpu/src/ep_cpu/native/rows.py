"""What works along axes: normalisation, Softmax, reductions."""

from __future__ import annotations

from ep_core.types import DataType
from ep_cpu.native.steps import NativeStep, shape_of
from ep_cpu.native.table import (
    NOT_FLOAT,
    Answer,
    Translate,
    all_floats,
    integers,
    native_step,
    operator,
    rank_of,
)
from ep_sdk.kernels import KernelNode


@operator("LayerNormalization")
def _layer_normalization(node: KernelNode) -> Answer:
    if not all_floats(node) or node.wants_output(1) or node.wants_output(2):
        return NOT_FLOAT
    return _normalization(node, centred=1)


@operator("RMSNormalization")
def _rms_normalization(node: KernelNode) -> Answer:
    return _normalization(node, centred=0) if all_floats(node) else NOT_FLOAT


def _normalization(node: KernelNode, centred: int) -> Answer:
    rank = rank_of(node, 0)
    if rank is None or int(node.attr("stash_type", 1)) != 1:
        return "an unknown rank, or another type of sums"
    axis = int(node.attr("axis", -1))
    lengths = shape_of(node.input_types[0])
    for index in range(1, len(node.node.inputs)):
        if node.has_input(index):
            shape = shape_of(node.input_types[index])
            if shape is None or lengths is None or shape != lengths[axis % rank :]:
                return "a scale or bias that is broadcast"
    return NativeStep(
        "layer_normalization",
        (*node.node.inputs, *("",) * (3 - len(node.node.inputs))),
        node.node.outputs[:1],
        {"axis": axis, "epsilon": float(node.attr("epsilon", 1e-5)), "centred": centred},
        (node.node,),
    )


def _softmax(logarithm: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        rank = rank_of(node, 0)
        if not all_floats(node) or rank == 0:
            return NOT_FLOAT
        axis = int(node.attr("axis", -1 if node.version >= 13 else 1))
        # Before version 13 everything from the axis on was one row.
        if node.version < 13 and axis != -1 and (rank is None or axis % rank != rank - 1):
            return "an axis that isn't the last"
        return native_step(node, "softmax", axis=axis, logarithm=logarithm)

    return make


operator("Softmax")(_softmax(0))
operator("LogSoftmax")(_softmax(1))


def _reduction(kind: int) -> Translate:
    def make(node: KernelNode) -> Answer:
        rank = rank_of(node, 0)
        if node.input_dtype(0) is not DataType.FLOAT or not rank:
            return NOT_FLOAT
        axes = node.attr("axes", ())
        if node.has_input(1):
            value = node.constants[1]
            if value is None:
                return "axes that aren't constant"
            axes = integers(value)
        if not axes and node.attr("noop_with_empty_axes", 0):
            return "nothing to reduce"
        gone = sorted({axis % rank for axis in axes}) or list(range(rank))
        if gone != list(range(gone[0], gone[-1] + 1)):
            return "axes that don't lie side by side"
        shape = shape_of(node.input_types[0])
        if shape is None or 0 in shape:
            return "an unknown or empty shape"
        keep = int(node.attr("keepdims", 1))
        return native_step(
            node, "reduce", inputs=(node.node.inputs[0], ""), kind=kind, keep=keep, axes=gone
        )

    return make


for _kind, _name in enumerate(
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1")
):
    operator(_name)(_reduction(_kind))
