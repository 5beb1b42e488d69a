"""Unary mathematics and tests that one numpy ufunc computes, in the type of the input."""

from __future__ import annotations

import numpy as np

from ep_cpu.kernels.support import HALF, Array, as_array, is_numpys
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_UFUNCS: dict[str, np.ufunc] = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}


def ufunc_kernel(ufunc: np.ufunc) -> Kernel:
    """A kernel that applies `ufunc` to its one input."""

    def run(x: Array, *, out: Array | None = None) -> Array:
        return as_array(ufunc(x, out=out))

    return run


def _register(op_type: str, ufunc: np.ufunc) -> None:
    @TABLE.kernel(op_type, writes_out=True)
    def make(node: KernelNode) -> Kernel:
        return ufunc_kernel(ufunc)


for _op_type, _ufunc in _UFUNCS.items():
    _register(_op_type, _ufunc)


def _float_test(ufunc: np.ufunc) -> Kernel:
    """Apply a test to floats; 8-bit and narrower types go through float32, which holds them."""

    def run(x: Array, *, out: Array | None = None) -> Array:
        if not is_numpys(x.dtype) and x.dtype not in HALF:
            x = x.astype(np.float32)
        return as_array(ufunc(x, out=out))

    return run


@TABLE.kernel("IsNaN", writes_out=True)
def _is_nan(node: KernelNode) -> Kernel:
    return _float_test(np.isnan)


@TABLE.kernel("IsInf", writes_out=True)
def _is_inf(node: KernelNode) -> Kernel:
    negative = bool(node.attr("detect_negative", 1))
    positive = bool(node.attr("detect_positive", 1))
    if negative and positive:
        return _float_test(np.isinf)
    # Values below say which infinity counts; with neither, nothing equals NaN.
    wanted = np.float32(np.inf if positive else -np.inf if negative else np.nan)

    def run(x: Array, *, out: Array | None = None) -> Array:
        wide = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        return as_array(np.equal(wide, wanted, out=out))

    return run
