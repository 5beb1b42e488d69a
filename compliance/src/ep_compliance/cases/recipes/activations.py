"""Activations with attributes, clipping, dropout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe
from ep_compliance.cases.recipes.elementwise import unary_samples
from ep_core.types import DataType

__all__: list[str] = []

_VARIANTS = {
    "Celu": {"alpha": 2.0},
    "Elu": {"alpha": 0.3},
    "HardSigmoid": {"alpha": 0.5, "beta": 0.6},
    "LeakyRelu": {"alpha": 0.1},
    "Selu": {"alpha": 2.0, "gamma": 3.0},
    "Shrink": {"lambd": 1.5, "bias": 0.5},
    "Swish": {"alpha": 1.7},
    "ThresholdedRelu": {"alpha": 2.0},
}


@recipe(
    "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Shrink Sigmoid Softplus Softsign "
    "Swish ThresholdedRelu"
)
def activation(ask: Ask) -> Iterator[Sample]:
    """One input of any shape; defaults, and other values of every attribute."""
    yield from unary_samples(ask)
    if ask.op_type in _VARIANTS:
        yield Sample("attributes", [ask.random(3, 5)], _VARIANTS[ask.op_type], core=True)
    if ask.op_type == "Gelu":
        yield Sample("tanh", [ask.random(3, 5)], {"approximate": "tanh"})
    if ask.is_float:
        yield Sample("far out", [ask.random(64, low=-40, high=40)])
        yield Sample("near zero", [ask.random(64, low=-1e-3, high=1e-3)])


@recipe("Clip")
def clip(ask: Ask) -> Iterator[Sample]:
    """Bounds as attributes before version 11, as inputs since."""
    if ask.version < 11:
        yield Sample("both", [ask.random(3, 4)], {"min": -1.0, "max": 1.5}, core=True)
        yield Sample("low", [ask.random(3, 4)], {"min": -1.0}, core=True)
        yield Sample("none", [ask.random(3, 4)], core=True)
        return
    low = np.asarray(1).astype(ask.dtype.numpy)
    high = np.asarray(5 if ask.dtype.is_integer else 2).astype(ask.dtype.numpy)
    x = ask.random(3, 4)
    yield Sample("both", [x, low, high], core=True)
    yield Sample("low", [x, low], core=True)
    yield Sample("high", [x, None, high], core=True)
    yield Sample("none", [x], core=True)
    yield Sample("constant", [x, low, high], constants=[1, 2])
    yield Sample("rank0", [ask.random(), low, high])
    yield Sample("empty", [ask.random(0, 3), low, high])
    yield Sample("symbolic", [x, low, high], symbolic=True)
    if ask.version >= 13:
        # Since 13 the definition is Min(max, Max(x, min)).
        yield Sample("crossed", [x, high, low])


@recipe("Dropout")
def dropout(ask: Ask) -> Iterator[Sample]:
    """Inference: the identity, with a mask of ones where it is asked for."""
    attributes = {"is_test": 1} if ask.has("is_test") else {}
    x = ask.random(3, 4)
    yield Sample("plain", [x], attributes, core=True)
    yield Sample("rank0", [ask.random()], attributes)
    yield Sample("empty", [ask.random(0, 2)], attributes)
    if ask.version >= 10:
        yield Sample("mask", [x], attributes, outputs=2, core=True)
    if ask.version < 12:
        return
    for kind in ask.types(1):
        # 3/4 in every type but float8e8m0, which has powers of two only.
        ratio = np.array(0.75 if kind is not DataType.FLOAT8E8M0 else 0.5, kind.numpy)
        yield Sample(f"ratio {kind.text}", [x, ratio], core=True)
        inputs = [x, ratio, np.array(False)]
        yield Sample(f"not training {kind.text}", inputs, outputs=2, core=True)
    nothing = np.array(0.0, np.float32)
    yield Sample("training, ratio 0", [x, nothing, np.array(True)], outputs=2)
