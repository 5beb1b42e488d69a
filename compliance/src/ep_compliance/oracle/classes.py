"""Which operator may err by how much: the classes of operators and where their limits come from.

- *Exact*: data movement, integers, comparisons, and the operations that IEEE 754 defines exactly
  or rounds correctly (Add, Sub, Mul): one rounding, so no unit to spare.
- *Units in the last place*: elementwise functions. Limits are those that the OpenCL C specification
  (section 7.4, single precision, full profile) sets for the same functions, the widest promise that
  hardware vendors publish and keep; Div and Sqrt are held to 1. Formulas that ONNX writes with a
  cancellation, such as exp(x) - 1, may lose what the formula loses: `formula_loss`.
- *Sums*: linear operators. `number_of_terms` counts K from shapes; the oracle evaluates the same
  operator on magnitudes for the scale.
- *Conditioned*: everything compound. The oracle disturbs inputs and intermediate results by
  roundings and measures what comes out (Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997).
- *Quantizing*: one step where the exact value is near a tie, or where the definition leaves the
  arithmetic before the rounding open, with a limit on the normalised mean square error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ep_compliance.oracle.precision import Array
from ep_compliance.texts import words

__all__ = [
    "CONDITIONED_FACTOR",
    "CONDITIONED_FLOOR",
    "CONDITIONED_ULPS",
    "DRAWING",
    "EXACT_OPERATORS",
    "INTERPOLATING",
    "MOVEMENT",
    "QUANTIZING",
    "SIGNED_ZERO_OPERATORS",
    "SINGLE_PRECISION",
    "STEP_ERROR",
    "SUMS",
    "ULPS",
    "formula_loss",
    "number_of_terms",
]

MOVEMENT = words(
    "ArrayFeatureExtractor CenterCropPad Compress Concat ConcatFromSequence ConstantOfShape "
    "DepthToSpace Expand ExpandDims EyeLike Flatten Gather GatherElements GatherND Identity "
    "MaxUnpool OneHot Optional OptionalGetElement OptionalHasElement Pad Reshape ReverseSequence "
    "Scatter SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
    "SequenceLength Shape Size Slice SpaceToDepth Split SplitToSequence Squeeze TensorScatter Tile "
    "Transpose Trilu Unsqueeze Where"
)
"""Move data, bit by bit."""

EXACT_OPERATORS = MOVEMENT | words(
    "Abs Add And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast "
    "CastLike Ceil Clip Dropout Equal Floor GlobalMaxPool Greater GreaterOrEqual Hardmax Imputer "
    "IsInf IsNaN LabelEncoder Less LessOrEqual Max MaxPool MaxRoiPool Min Mod Mul MurmurHash3 Neg "
    "NhwcMaxPool NonMaxSuppression NonZero Not Or PRelu ReduceMax ReduceMin Relu Round "
    "ScatterElements ScatterND Shrink Sign Sub ThresholdedRelu TopK Unique Xor"
)
"""One rounding at most, which IEEE 754 defines."""

SIGNED_ZERO_OPERATORS = MOVEMENT | words(
    "Abs Add BitCast Cast CastLike Ceil Div Floor Mul Neg Round Sqrt Sub"
)
"""Operators that move zeros, or whose zeros IEEE 754 defines. Others (Max, Relu, Sign, ...) may
give either zero, because ONNX defines them by comparisons, to which both are equal."""

ULPS: Mapping[str, float] = {
    "Div": 1,
    "Sqrt": 1,
    "Reciprocal": 1,
    "LeakyRelu": 1,
    "DequantizeLinear": 1,
    "Range": 1,
    "Scaler": 2,
    "Acos": 4,
    "Acosh": 4,
    "Asin": 4,
    "Asinh": 4,
    "Atan": 5,
    "Atanh": 5,
    "Cos": 4,
    "Cosh": 4,
    "Erf": 16,
    "Exp": 3,
    "Log": 3,
    "Pow": 16,
    "Sin": 4,
    "Sinh": 4,
    "Tan": 5,
    "Tanh": 5,
    # Formulas of the functions above: their units, and one for each further operation.
    "Celu": 6,
    "Elu": 5,
    "Gelu": 8,
    "HardSigmoid": 2,
    "HardSwish": 4,
    "Mish": 16,
    "Selu": 6,
    "Sigmoid": 6,
    "Softplus": 8,
    "Softsign": 2,
    "Swish": 8,
}
"""Units in the last place of elementwise functions."""

_LOSS_OF_ONE = {"Celu", "Elu", "HardSigmoid", "HardSwish", "Selu", "Softplus"}
_LOSS_OF_INPUT = {"Gelu", "HardSwish", "Mish"}

SUMS = words(
    "AveragePool Col2Im Conv ConvTranspose CumSum Einsum Gemm GlobalAveragePool MatMul Mean "
    "ReduceL1 ReduceMean ReduceSum ReduceSumSquare Sum"
)
"""Linear in each float input: the same operator on magnitudes gives the scale of the sum."""

QUANTIZING = words(
    "QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool "
    "QLinearLeakyRelu QLinearMatMul QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax "
    "QLinearWhere"
)
"""Round a scaled sum to an integer; the order of scaling isn't defined, so a step may be off."""

STEP_ERROR = 1e-3
"""Normalised mean square error of quantizing operators: a step of 1 in a range of 255 whose values
spread over a quarter of it would be 2.4e-4 if it happened everywhere."""

SINGLE_PRECISION = words("AffineGrid Attention DeformConv Gelu HardSwish")
"""Operators that `onnx.reference` computes with float32 constants or steps, even in float64."""

DRAWING = words(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
)
"""Random outputs."""

CONDITIONED_ULPS = 8.0
"""Room of compound operators for roundings after the last sum or function: a few operations, each
of one unit, or one function of up to 5."""

INTERPOLATING = words("GridSample Resize RoiAlign Upsample")
"""Read at computed coordinates, whose rounding moves the result by a part of the values' range."""

CONDITIONED_FLOOR = 4.0
"""Eps of the largest output: what compound operators may lose where large parts cancel."""

CONDITIONED_FACTOR = 8.0
"""Times the largest of a few measured spreads. Inputs are disturbed by one rounding each; real
kernels round a handful of times between input and output."""


def formula_loss(op_type: str, x: Array, attributes: Mapping[str, Any]) -> Array | float:
    """What the definition of an elementwise formula may lose, in units of eps.

    `alpha * (exp(x) - 1)` is off by a rounding of 1 near 0, `x * (1 + erf(x / sqrt 2)) / 2` by one
    of x for negative x, and so on.

    Args:
        x: the input, float64.
        attributes: of the node.
    """
    if op_type in _LOSS_OF_INPUT:
        return 4.0 * np.abs(x)
    if op_type in _LOSS_OF_ONE:
        return 2.0 * max(1.0, abs(float(attributes.get("alpha", 1.7))))
    return 0.0


def number_of_terms(
    op_type: str,
    shapes: Sequence[tuple[int, ...] | None],
    output: tuple[int, ...],
    attributes: Mapping[str, Any],
) -> int:
    """K: how many terms an element of the output sums up, from above.

    Args:
        shapes: of the inputs, None for what is left out or no tensor.
        output: shape of the first output.
    """
    first = shapes[0] or ()
    if op_type in ("Sum", "Mean"):
        return len(shapes)
    if op_type == "MatMul":
        return first[-1] + 1
    if op_type == "Gemm":
        return first[0 if attributes.get("transA") else 1] + 2
    if op_type == "Conv":
        return math.prod((shapes[1] or ())[1:]) + 1
    if op_type == "ConvTranspose":
        weights = shapes[1] or ()
        return weights[0] * math.prod(weights[2:]) + 1
    if op_type == "AveragePool":
        return math.prod(attributes.get("kernel_shape", (1,)))
    if op_type in ("GlobalAveragePool", "Col2Im"):
        return math.prod(first[2:])
    if op_type == "CumSum":
        return max(first, default=1)
    if op_type == "Einsum":
        labels = {dim for shape in shapes for dim in enumerate(shape or ())}
        return math.prod(dim for _, dim in labels)
    size, left = math.prod(first), math.prod(output)
    return max(1, size // left) if left else 1
