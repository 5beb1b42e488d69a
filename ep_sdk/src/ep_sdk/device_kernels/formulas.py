"""The one table of elementwise operators: which, since when, for which types, and their formulas.

A formula is kernel C with `{0}`, `{1}`, ... for the operands, `{T}` for the type it computes in,
`{E}` for the short code of the first operand's type, `{f}` for the suffix of literals, `{real}` for
`float` or `double`, and `{name}` for attributes. Claims, kernels and fusion all read it from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ep_core.types import DataType
from ep_sdk.device_kernels.elements import FLOATS, INTEGERS, NUMBERS

__all__ = ["FORMULAS", "Formula"]

_BOOL = frozenset({DataType.BOOL})
_SIGNED = frozenset(kind for kind in INTEGERS if "UINT" not in kind.name)
_UNSIGNED = INTEGERS - _SIGNED
_ANY = NUMBERS | _BOOL


@dataclass(frozen=True, slots=True)
class Formula:
    """One row.

    Attributes:
        text: the formula; for operators that fold any number of inputs, of two operands.
        types: of the inputs that share the schema's type `T`.
        since, until: versions; `until` 0 is the newest that the table knows.
        result: element type of the output, None for that of the first input.
        integers: formula for integers where it differs.
        folds: takes any number of inputs, two at a time.
        mean: the fold's result is divided by the number of inputs.
        attributes: names and defaults of float attributes that the formula names.
        parameter: the schema's name of the type.
    """

    text: str
    types: frozenset[DataType]
    since: int
    until: int = 0
    result: DataType | None = None
    integers: str = ""
    folds: bool = False
    mean: bool = False
    attributes: Mapping[str, float] = field(default_factory=dict)
    parameter: str = "T"


def _function(name: str, since: int, types: frozenset[DataType] = FLOATS) -> Formula:
    return Formula(f"{name}({{0}})", types, since)


def _compare(sign: str, types: frozenset[DataType], since: int) -> Formula:
    return Formula(f"({{0}} {sign} {{1}})", types, since, result=DataType.BOOL)


def _logical(text: str, since: int = 7) -> Formula:
    return Formula(text, _BOOL, since, result=DataType.BOOL)


_ERF_GELU = "({0} * 0.5{f} * (1.0{f} + erf({0} * 0.70710678118654752440{f})))"
_TANH_GELU = (
    "({0} * 0.5{f} * (1.0{f} + tanh(0.79788456080286535588{f} * "
    "({0} + 0.044715{f} * {0} * {0} * {0}))))"
)

FORMULAS: dict[str, tuple[Formula, ...]] = {
    # Of one input.
    "Abs": (Formula("fabs({0})", FLOATS, 6, integers="({0} < 0 ? ({T})-{0} : {0})"),),
    "Neg": (Formula("-{0}", FLOATS | _SIGNED, 6),),
    "Sign": (
        Formula(
            "({0} != {0} ? {0} : ({T})({0} > 0) - ({T})({0} < 0))",
            FLOATS,
            9,
        ),
        Formula("(({0} > 0) - ({0} < 0))", INTEGERS, 9),
    ),
    "Ceil": (_function("ceil", 6),),
    "Floor": (_function("floor", 6),),
    "Round": (_function("rint", 11),),
    "Sqrt": (_function("sqrt", 6),),
    "Exp": (_function("exp", 6),),
    "Log": (_function("log", 6),),
    "Reciprocal": (Formula("(1.0{f} / {0})", FLOATS, 6),),
    "Sin": (_function("sin", 7),),
    "Cos": (_function("cos", 7),),
    "Tan": (_function("tan", 7),),
    "Asin": (_function("asin", 7),),
    "Acos": (_function("acos", 7),),
    "Atan": (_function("atan", 7),),
    "Sinh": (_function("sinh", 9),),
    "Cosh": (_function("cosh", 9),),
    "Asinh": (_function("asinh", 9),),
    "Acosh": (_function("acosh", 9),),
    "Atanh": (_function("atanh", 9),),
    "Tanh": (_function("tanh", 6),),
    "Erf": (_function("erf", 9),),
    "Sigmoid": (Formula("sigmoid_{real}({0})", FLOATS, 6),),
    "Relu": (Formula("({0} < 0 ? ({T})0 : {0})", FLOATS | _SIGNED, 6),),
    "LeakyRelu": (
        Formula("({0} < 0 ? {0} * {alpha} : {0})", FLOATS, 6, attributes={"alpha": 0.01}),
    ),
    "Elu": (
        Formula("({0} < 0 ? {alpha} * expm1({0}) : {0})", FLOATS, 6, attributes={"alpha": 1.0}),
    ),
    "Selu": (
        Formula(
            "({gamma} * ({0} <= 0 ? {alpha} * expm1({0}) : {0}))",
            FLOATS,
            6,
            attributes={
                "alpha": 1.67326319217681884765625,
                "gamma": 1.05070102214813232421875,
            },
        ),
    ),
    "Celu": (
        Formula(
            "({0} < 0 ? {alpha} * expm1({0} / {alpha}) : {0})",
            FLOATS,
            12,
            attributes={"alpha": 1.0},
        ),
    ),
    "ThresholdedRelu": (
        Formula("({0} > {alpha} ? {0} : ({T})0)", FLOATS, 10, attributes={"alpha": 1.0}),
    ),
    "HardSigmoid": (
        Formula(
            "SMALLER(({T})1, LARGER(({T})0, {alpha} * {0} + {beta}))",
            FLOATS,
            6,
            attributes={"alpha": 0.2, "beta": 0.5},
        ),
    ),
    "HardSwish": (
        Formula(
            "({0} * SMALLER(({T})1, LARGER(({T})0, {0} / 6.0{f} + 0.5{f})))",
            FLOATS,
            14,
        ),
    ),
    "Softplus": (Formula("softplus_{real}({0})", FLOATS, 1),),
    "Softsign": (Formula("({0} / (1.0{f} + fabs({0})))", FLOATS, 1),),
    "Mish": (Formula("({0} * tanh(softplus_{real}({0})))", FLOATS, 18),),
    "Swish": (
        Formula("({0} * sigmoid_{real}({alpha} * {0}))", FLOATS, 24, attributes={"alpha": 1.0}),
    ),
    "Shrink": (
        Formula(
            "({0} < -{lambd} ? {0} + {bias} : ({0} > {lambd} ? {0} - {bias} : ({T})0))",
            FLOATS,
            9,
            attributes={"lambd": 0.5, "bias": 0.0},
        ),
    ),
    "IsNaN": (Formula("({0} != {0})", FLOATS, 9, result=DataType.BOOL, parameter="T1"),),
    "Not": (_logical("!{0}", 1),),
    "BitwiseNot": (Formula("~{0}", INTEGERS, 18),),
    # Of two inputs.
    "Add": (Formula("({0} + {1})", NUMBERS, 7),),
    "Sub": (Formula("({0} - {1})", NUMBERS, 7),),
    "Mul": (Formula("({0} * {1})", NUMBERS, 7),),
    "Div": (Formula("({0} / {1})", NUMBERS, 7, integers="divided_{E}({0}, {1})"),),
    "PRelu": (Formula("({0} < 0 ? {0} * {1} : {0})", NUMBERS, 9),),
    "Max": (Formula("LARGER({0}, {1})", NUMBERS, 8, folds=True),),
    "Min": (Formula("SMALLER({0}, {1})", NUMBERS, 8, folds=True),),
    "Sum": (Formula("({0} + {1})", FLOATS, 8, folds=True),),
    "Mean": (Formula("({0} + {1})", FLOATS, 8, folds=True, mean=True),),
    "And": (_logical("({0} && {1})"),),
    "Or": (_logical("({0} || {1})"),),
    "Xor": (_logical("(!{0} != !{1})"),),
    "Equal": (_compare("==", _ANY, 7),),
    "Less": (_compare("<", NUMBERS, 7),),
    "Greater": (_compare(">", NUMBERS, 7),),
    "LessOrEqual": (_compare("<=", NUMBERS, 12),),
    "GreaterOrEqual": (_compare(">=", NUMBERS, 12),),
    "BitwiseAnd": (Formula("({0} & {1})", INTEGERS, 18),),
    "BitwiseOr": (Formula("({0} | {1})", INTEGERS, 18),),
    "BitwiseXor": (Formula("({0} ^ {1})", INTEGERS, 18),),
}

GELU: Mapping[str, str] = {"none": _ERF_GELU, "tanh": _TANH_GELU}
"""By the attribute `approximate`."""

Text = Callable[..., str]
