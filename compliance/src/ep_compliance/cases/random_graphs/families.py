"""Families of operators: what a graph is made of, so that small providers get graphs too.

A graph takes a few operators of its family only ("swarm testing": Groce et al., ISSTA 2012). That
finds more than using all of them everywhere, and a provider needs but those few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ep_compliance.cases.random_graphs.draws import Draws
from ep_compliance.cases.random_graphs.values import Shape
from ep_compliance.texts import words
from ep_core.types import DataType

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """What graphs of one kind are made of.

    Attributes:
        basic: operators of which every graph has some.
        others: further operators.
        dtypes: element types; one that stands there twice comes twice as often.
        ranks: of most values.
        most_length: of an axis.
    """

    basic: Sequence[str]
    others: Sequence[str]
    dtypes: Sequence[DataType]
    ranks: tuple[int, int] = (0, 4)
    most_length: int = 5

    def shape(self, draws: Draws) -> Shape:
        """The shape that a graph begins with."""
        lengths = [draws.between(1, self.most_length) for _ in range(draws.between(*self.ranks))]
        # Few graphs have something empty in them; an image never has.
        if lengths and self.ranks[0] < 3 and draws.chance(5):
            lengths[draws.below(len(lengths))] = 0
        return tuple(lengths)


def _listed(text: str) -> list[str]:
    return sorted(words(text))


_FLOATS = (
    *([DataType.FLOAT] * 6),
    DataType.FLOAT16,
    DataType.FLOAT16,
    DataType.BFLOAT16,
    DataType.DOUBLE,
)
_SINGLE = (*([DataType.FLOAT] * 4), DataType.FLOAT16)

_ARITHMETIC = _listed("Abs Add Identity Max Min Mul Neg Relu Sub")
_MOVING = _listed("Concat Expand Reshape Slice Squeeze Transpose Unsqueeze")
_REDUCING = _listed(
    "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare"
)
_SMOOTH = _listed(
    "Atan Clip Cos Div Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mean Mish PRelu Pow "
    "Reciprocal Selu Sigmoid Sin Softplus Softsign Sqrt Sum Tanh"
)
_LOGICAL = _listed("And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Where Xor")

FAMILIES: Mapping[str, Family] = {
    # What providers begin with.
    "first": Family(
        _listed("Add MatMul Mul Relu Sub"), (), (*([DataType.FLOAT] * 5), DataType.FLOAT16)
    ),
    "arithmetic": Family(_ARITHMETIC, (), (*_FLOATS, DataType.INT32, DataType.INT64)),
    "elementwise": Family(_ARITHMETIC, _SMOOTH, _FLOATS),
    "movement": Family(
        _MOVING,
        _listed("Flatten Gather GatherElements Identity Pad Shape Split Tile Trilu"),
        (
            *([DataType.FLOAT] * 3),
            *(DataType.FLOAT16, DataType.INT64, DataType.INT32, DataType.BOOL),
            *(DataType.UINT8, DataType.INT8, DataType.DOUBLE, DataType.BFLOAT16),
        ),
    ),
    "dense": Family(
        _listed("Add Gemm MatMul Mul Relu Softmax Transpose"),
        _listed("Div Dropout Erf Gelu LayerNormalization ReduceMean Reshape Sigmoid Sub Tanh"),
        _FLOATS,
        ranks=(2, 3),
        most_length=6,
    ),
    "images": Family(
        _listed("Add AveragePool Conv MaxPool Relu"),
        _listed(
            "BatchNormalization Clip Concat DepthToSpace Flatten GlobalAveragePool GlobalMaxPool "
            "GroupNormalization HardSwish InstanceNormalization LeakyRelu Mul Pad Sigmoid Slice "
            "SpaceToDepth Split Transpose"
        ),
        _SINGLE,
        ranks=(3, 4),
        most_length=6,
    ),
    "reductions": Family(
        _REDUCING,
        _listed("Add CumSum Div LayerNormalization LogSoftmax Mul Softmax Sqrt Sub"),
        (*_FLOATS, DataType.INT32, DataType.INT64),
        ranks=(1, 4),
    ),
    "whole": Family(
        _listed("Add Cast Div Mul Sub"),
        _listed(
            "Abs BitwiseAnd BitwiseOr BitwiseXor Concat CumSum Gather MatMul Max Min Mod Neg "
            "ReduceMax ReduceSum Relu"
        ),
        (DataType.INT32, DataType.INT64, DataType.INT64, DataType.INT8, DataType.UINT8),
    ),
    "choices": Family(
        _listed("Cast Equal Greater Less Where"),
        _listed(
            "Add And ArgMax ArgMin Ceil Floor GreaterOrEqual LessOrEqual Mul Not Or ReduceMax "
            "Round Sign TopK Xor"
        ),
        (*([DataType.FLOAT] * 4), DataType.FLOAT16, DataType.INT32, DataType.INT64, DataType.UINT8),
    ),
    "quantized": Family(
        _listed("DequantizeLinear QuantizeLinear"),
        _listed(
            "Add Concat Gemm MatMul MatMulInteger MaxPool Mul QLinearMatMul Relu Reshape Transpose"
        ),
        (DataType.FLOAT,),
        ranks=(2, 4),
    ),
    "mixed": Family(
        _ARITHMETIC + _MOVING,
        _SMOOTH + _REDUCING + _LOGICAL + _listed("Cast Gemm MatMul Softmax Conv Pad Split Gather"),
        (*_FLOATS, DataType.INT64),
    ),
}
"""Every family by name; the order is that of the cases."""
