"""What kernels take for themselves while they run: memory beside inputs and outputs.

numpy makes temporary arrays, and how many is known by measuring. The factors here are upper bounds
of what was measured, operator by operator; a test holds them against tracemalloc. Operators that
aren't listed weren't measured, or take what shapes alone don't tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ep_core.types import DataType, TensorType, ValueType
from ep_sdk.kernels import KernelNode

__all__ = ["workspace_of"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SLACK_BYTES = 1 << 17
"""Of numpy's buffers for converting types, and of small objects."""

_SPARING = _names(
    """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Concat
    ConstantOfShape DepthToSpace Div Dropout Equal Expand Flatten Floor Gather GatherElements
    GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min Mod Mul Neg Not Or
    Pad Reciprocal Relu Reshape ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split
    Squeeze Sub Tile Transpose Unsqueeze Where Xor
    """
)
"""A third of inputs and outputs at most, whatever their type."""

_SPARING_IN_FULL = _names(
    """
    Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Exp Gemm HardSigmoid HardSwish LeakyRelu Log
    MatMul Mish Pow Round Selu Sigmoid Sin Sinh Softplus Softsign Sqrt Sum Swish Tan Tanh
    ThresholdedRelu
    """
)
"""The same in float32 and float64, which nothing has to be widened to."""

_WIDENING = _SPARING_IN_FULL | _names(
    """
    ArgMax ArgMin AveragePool BatchNormalization Clip CumSum DequantizeLinear DynamicQuantizeLinear
    Erf GRU Gelu GlobalAveragePool GlobalMaxPool GroupNormalization Hardmax InstanceNormalization
    LRN LSTM LayerNormalization LogSoftmax LpNormalization MatMulInteger MaxPool Mean
    MeanVarianceNormalization PRelu QLinearMatMul QuantizeLinear QuickGelu RMSNormalization RNN
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Resize Shrink SimplifiedLayerNormalization Softmax TopK Trilu
    """
)
_TEMPORARIES = 3
"""Arrays as large as all inputs and outputs together, in the type that is computed in."""

_CONVOLVING = frozenset(("Conv", "ConvInteger", "ConvTranspose", "FusedConv", "QLinearConv"))
"""These copy windows into columns as well."""

_UNWIDENED = (DataType.FLOAT, DataType.DOUBLE)


def workspace_of(node: KernelNode) -> int | None:
    """Bytes that the kernel of a node takes at most; None where that isn't known."""
    operator = node.node.op_type
    given = [kind for at, kind in enumerate(node.input_types) if node.has_input(at)]
    kinds = [*given, *(kind for at, kind in enumerate(node.output_types) if node.wants_output(at))]
    plain, wide = _total(kinds, widened=False), _total(kinds, widened=True)
    if plain is None or wide is None:
        return None
    slack = min(_SLACK_BYTES, 4096 + 4 * wide)
    is_full = node.input_dtype(0) in _UNWIDENED
    if operator in _SPARING or (operator in _SPARING_IN_FULL and is_full):
        return slack + plain // 3
    if operator in _CONVOLVING:
        return slack + _TEMPORARIES * wide + _columns(node)
    return slack + _TEMPORARIES * wide if operator in _WIDENING else None


def _columns(node: KernelNode) -> int:
    """Bytes of all windows of one sample, copied."""
    weight = next((kind for kind in reversed(node.input_types) if len(_lengths(kind)) > 2), None)
    narrow, wide = _lengths(node.input_types[0]), _lengths(node.output_types[0])
    if node.node.op_type == "ConvTranspose":
        narrow, wide = wide, narrow
    size = 8 if node.input_dtype(0) is DataType.DOUBLE else 4
    return math.prod((*_lengths(weight)[2:], *narrow[1:2], *wide[2:], size))


def _lengths(kind: ValueType | None) -> tuple[int, ...]:
    return (kind.static_shape or ()) if isinstance(kind, TensorType) else ()


def _total(kinds: Iterable[ValueType | None], *, widened: bool) -> int | None:
    total = 0
    for kind in kinds:
        shape = kind.static_shape if isinstance(kind, TensorType) else None
        if shape is None or not isinstance(kind, TensorType) or kind.dtype is DataType.STRING:
            return None
        size = kind.dtype.numpy.itemsize
        if widened and kind.dtype not in _UNWIDENED:
            is_float = kind.dtype.numpy.kind not in "biu"
            size = max(size, 4 if is_float else 8)
        total += math.prod(shape) * size
    return total
