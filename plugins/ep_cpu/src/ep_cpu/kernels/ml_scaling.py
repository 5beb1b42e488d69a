"""Features one by one: Binarizer, Imputer, Scaler, Normalizer, ArrayFeatureExtractor."""

from __future__ import annotations

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.ml_support import DOMAIN, feature_rows, float_rows, floats
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


@TABLE.kernel("Binarizer", domain=DOMAIN)
def _binarizer(node: KernelNode) -> Kernel:
    threshold = float(node.attr("threshold", 0.0))
    return lambda x: np.asarray(x > threshold).astype(x.dtype)


@TABLE.kernel("Imputer", domain=DOMAIN)
def _imputer(node: KernelNode) -> Kernel:
    numbers = floats(node, "imputed_value_floats")
    integers = np.array(node.attr("imputed_value_int64s", ()), np.int64)

    def run(x: Array) -> Array:
        whole = x.dtype.kind == "i"
        values = integers if whole else numbers
        if x.ndim == 0 or len(values) not in (1, x.shape[-1]):
            raise RunError(
                "Imputer needs one value, or one per feature, of the input's kind",
                expected=f"{'integers' if whole else 'floats'} for shape {x.shape}",
                got=len(values),
            )
        if whole:
            replaced = x == int(node.attr("replaced_value_int64", 0))
        else:
            old = x.dtype.type(node.attr("replaced_value_float", 0.0))
            replaced = np.isnan(x) if np.isnan(old) else x == old
        return np.where(replaced, values.astype(x.dtype), x)

    return run


@TABLE.kernel("Scaler", domain=DOMAIN)
def _scaler(node: KernelNode) -> Kernel:
    offset = floats(node, "offset")
    scale = floats(node, "scale")

    def run(x: Array) -> Array:
        width = x.shape[-1] if x.ndim else 1
        for name, values in (("offset", offset), ("scale", scale)):
            if len(values) not in (0, 1, width):
                raise RunError(
                    f"{name} of Scaler needs one value, or one per feature",
                    expected=f"1 or {width}",
                    got=len(values),
                )
        result = x if x.dtype == np.float32 else x.astype(np.float64)
        if len(offset):
            result = result - offset
        if len(scale):
            result = result * scale
        return np.array(result, np.float32)

    return run


@TABLE.kernel("Normalizer", domain=DOMAIN)
def _normalizer(node: KernelNode) -> Kernel:
    norm = text(node.attr("norm", "MAX")).upper()
    if norm not in ("MAX", "L1", "L2"):
        raise InvalidModelError("unknown norm of Normalizer", expected="MAX, L1, L2", got=norm)

    def run(x: Array) -> Array:
        rows = float_rows(x)
        if rows.shape[1] == 0:
            return np.zeros(x.shape, np.float32)
        if norm == "MAX":
            size = rows.max(axis=1, keepdims=True)
        elif norm == "L1":
            size = np.abs(rows).sum(axis=1, keepdims=True)
        else:
            size = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        scaled = rows / np.where(size == 0, 1, size)
        return scaled.astype(np.float32, copy=False).reshape(x.shape)

    return run


@TABLE.kernel("ArrayFeatureExtractor", domain=DOMAIN)
def _array_feature_extractor(node: KernelNode) -> Kernel:
    """A vector counts as one row, so that the result has two dimensions at least."""

    def run(x: Array, columns: Array) -> Array:
        chosen = columns.reshape(-1)
        width = x.shape[-1] if x.ndim else 0
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < width:
            raise RunError(
                "index out of range", expected=f"0 <= i < {width}", got=chosen.tolist()[:8]
            )
        rows = x if x.ndim > 1 else feature_rows(x)
        return np.take(rows, chosen, axis=-1)

    return run
