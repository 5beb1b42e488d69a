"""Products of matrices: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, as_array, compute_dtype, text, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """Numpy's matmul; 16-bit floats are multiplied and summed in float32.

    Raises:
        RunError: an operand is a scalar or the inner lengths differ.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise RunError("MatMul needs at least one dimension", got=(a.shape, b.shape))
    if a.dtype != compute_dtype(a.dtype):
        return np.asarray(np.matmul(widen(a), widen(b))).astype(a.dtype)
    # A stack of matrices times one matrix is one large product, which BLAS does at full speed.
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous and a.shape[-1] == b.shape[0]:
        count = math.prod(a.shape[:-1])
        rows = a.reshape(count, a.shape[-1])
        if out is not None and out.flags.c_contiguous:
            np.matmul(rows, b, out=out.reshape(count, b.shape[1]))
            return out
        product = np.asarray(np.matmul(rows, b))
        return product.reshape(*a.shape[:-1], b.shape[1])
    return as_array(np.matmul(a, b, out=out))


@TABLE.kernel("MatMul", writes_out=True)
def _matmul(node: KernelNode) -> Kernel:
    weight = node.constants[1]
    if weight is None or weight.dtype == compute_dtype(weight.dtype):
        return matmul
    wide_weight = widen(weight)

    def run(a: Array, b: Array, *, out: Array | None = None) -> Array:
        product = matmul(widen(a), wide_weight).astype(a.dtype)
        if out is None:
            return product
        np.copyto(out, product)
        return out

    return run


# ---------------------------------------------------------------- Gemm


def _scaled(value: Array, factor: float) -> Array:
    if factor == 1.0:
        return value
    if value.dtype.kind in "iu":
        return (value * factor).astype(value.dtype)
    return np.asarray(value * value.dtype.type(factor))


def gemm(
    a: Array,
    b: Array,
    c: Array | None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out: Array | None = None,
) -> Array:
    """Alpha * a @ b + beta * c, where `c` broadcasts to the product; no 16-bit floats."""
    if a.ndim != 2 or b.ndim != 2:
        raise RunError("Gemm needs two matrices", got=(a.shape, b.shape))
    product = as_array(np.matmul(a, b, out=out))
    if alpha != 1.0:
        product[...] = _scaled(product, alpha)
    if c is not None:
        np.add(product, _scaled(c, beta), out=product)
    return product


@TABLE.kernel("Gemm", writes_out=True)
def _gemm(node: KernelNode) -> Kernel:
    alpha = float(node.attr("alpha", 1.0))
    beta = float(node.attr("beta", 1.0))
    transpose_a = bool(node.attr("transA", 0))
    transpose_b = bool(node.attr("transB", 0))

    def run(a: Array, b: Array, c: Array | None = None, *, out: Array | None = None) -> Array:
        left = a.T if transpose_a else a
        right = b.T if transpose_b else b
        if a.dtype == compute_dtype(a.dtype):
            return gemm(left, right, c, alpha=alpha, beta=beta, out=out)
        wide_c = None if c is None else widen(c)
        result = gemm(widen(left), widen(right), wide_c, alpha=alpha, beta=beta)
        if out is None:
            return result.astype(a.dtype)
        out[...] = result.astype(a.dtype)
        return out

    return run


# ---------------------------------------------------------------- Einsum


def _einsum_equation(equation: str) -> str:
    """The equation without blanks; numpy wants none around the ellipsis or arrow."""
    return "".join(equation.split())


@TABLE.kernel("Einsum", since=12)
def _einsum(node: KernelNode) -> Kernel:
    equation = _einsum_equation(text(node.attr("equation")))

    def run(*inputs: Array) -> Array:
        dtype = inputs[0].dtype
        result: Any = np.einsum(equation, *(widen(value) for value in inputs), optimize=True)
        return np.array(result, dtype=dtype)

    return run


@TABLE.kernel("Det", since=11)
def _det(node: KernelNode) -> Kernel:
    def run(x: Array) -> Array:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise RunError("Det needs square matrices", got=f"shape {x.shape}")
        return np.asarray(np.linalg.det(widen(x))).astype(x.dtype, copy=False)

    return run
