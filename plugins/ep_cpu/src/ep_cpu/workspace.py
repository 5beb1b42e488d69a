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
    ArgMax ArgMin AveragePool BatchNormalization BiasGelu Clip CumSum DequantizeLinear
    DynamicQuantizeLinear Erf FastGelu FusedMatMul Gelu GlobalAveragePool GlobalMaxPool
    GroupNormalization Hardmax InstanceNormalization LRN LayerNormalization LogSoftmax
    LpNormalization MatMulInteger MaxPool Mean MeanVarianceNormalization OneHot PRelu QLinearMatMul
    QuantizeLinear QuickGelu RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Resize RotaryEmbedding
    Shrink SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
    Softmax TopK Trilu
    """
)
_TEMPORARIES = 3
"""Arrays as large as all inputs and outputs together, in the type that is computed in."""

_CONVOLVING = frozenset(("Conv", "ConvInteger", "ConvTranspose", "FusedConv", "QLinearConv"))
"""These copy windows into columns as well."""

_RECURRENT = frozenset(("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"))
"""These have the gates and the states of all steps as well."""

_ATTENDING = {("", "Attention"): 4, ("com.microsoft", "MultiHeadAttention"): 6}
"""These have tables of queries against keys as well; the position of past keys among inputs."""
_TABLES = 6
_REPEATED = 4
_PATTERN_BYTES = 32
"""For each query and key: of masks and of what is causal, before there are scores."""

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
    beside: int | None = 0 if operator in _WIDENING else None
    if operator in _CONVOLVING:
        beside = _columns(node)
    elif operator in _RECURRENT:
        beside = _steps(node)
    elif (node.node.domain, operator) in _ATTENDING:
        beside = _scores(node, wide)
    return None if beside is None else slack + _TEMPORARIES * wide + beside


def _columns(node: KernelNode) -> int:
    """Bytes of all windows of one sample, copied."""
    weight = next((kind for kind in reversed(node.input_types) if len(_lengths(kind)) > 2), None)
    narrow, wide = _lengths(node.input_types[0]), _lengths(node.output_types[0])
    if node.node.op_type == "ConvTranspose":
        narrow, wide = wide, narrow
    return math.prod((*_lengths(weight)[2:], *narrow[1:2], *wide[2:], _computed_size(node)))


def _steps(node: KernelNode) -> int | None:
    """Bytes of the gates and, once alone and twice joined, the states of all steps."""
    steps, weight = (_lengths(node.input_types[at]) for at in (0, 2))
    if len(steps) != 3 or len(weight) != 3:
        return None
    directions, *sides = weight
    rows = directions * max(sides) + (1 + 2 * directions) * min(sides)
    return steps[0] * steps[1] * rows * _computed_size(node)


def _scores(node: KernelNode, wide: int) -> int | None:
    """Bytes of tables of queries against keys, and of keys and values repeated for each query head.

    Args:
        wide: bytes of all inputs and outputs in the type that is computed in.
    """
    past_at = _ATTENDING[node.node.domain, node.node.op_type]
    query = _lengths(node.input_types[0])
    key = _lengths(node.input_types[1]) if node.has_input(1) else query
    past = _lengths(node.input_types[past_at])[-2:-1] if node.has_input(past_at) else ()
    if min(len(query), len(key)) < 3:
        return None
    heads = query[1] if len(query) == 4 else node.attr("q_num_heads") or node.attr("num_heads", 1)
    key_heads = key[1] if len(key) == 4 else node.attr("kv_num_heads") or heads
    queries, keys = (x[2] if len(x) == 4 else x[1] for x in (query, key))
    table = query[0] * queries * (keys + sum(past))
    table_bytes = heads * _TABLES * _computed_size(node) + _PATTERN_BYTES
    return table * table_bytes + (heads // max(1, key_heads) - 1) * _REPEATED * wide


def _computed_size(node: KernelNode) -> int:
    return 8 if node.input_dtype(0) is DataType.DOUBLE else 4


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
