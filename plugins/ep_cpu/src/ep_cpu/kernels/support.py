"""Small helpers that the kernel files share: dtypes, axes, scalars, errors.

No kernel and no row belongs here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.kernels import KernelNode

__all__ = [
    "FLOATS",
    "HALF",
    "is_numpys",
    "Array",
    "as_array",
    "attribute_dtype",
    "check_axis",
    "compute_dtype",
    "finish",
    "from_constant",
    "int_list",
    "optional_input",
    "scalar",
    "text",
    "unit_axes",
    "widen",
]

Array = np.ndarray[Any, Any]

FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16})

_FIRST_USER_TYPE = 256
"""NPY_USERDEF in numpy's C interface."""
HALF = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
"""Types whose sums, products of matrices and compound formulas are computed in float32."""

_FLOAT32 = np.dtype(np.float32)


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type to compute in: float32 for 16-bit floats, else `dtype` itself."""
    return _FLOAT32 if dtype in HALF else dtype


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """True for numpy's own types, False for those that ml_dtypes adds.

    By number: `isbuiltin` says no for a dtype that came out of a pickle.
    """
    return dtype.num < _FIRST_USER_TYPE


def widen(array: Array) -> Array:
    """`array` in its compute type; no copy unless it is a 16-bit float."""
    return array.astype(np.float32) if array.dtype in HALF else array


def finish(result: Any, dtype: np.dtype[Any]) -> Array:
    """`result` as an array of `dtype`; numpy turns rank 0 into scalars, this turns it back."""
    return np.asarray(result).astype(dtype, copy=False)


def as_array(value: Any) -> Array:
    """Turn numpy scalars, which rank-0 computations give, back into arrays."""
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def check_axis(axis: int, rank: int) -> int:
    """Return `axis` counted from the front.

    Raises:
        RunError: it is outside `[-rank, rank)`.
    """
    if not -rank <= axis < rank:
        raise RunError("axis out of range", expected=f"-{rank} <= axis < {rank}", got=axis)
    return axis % rank


def unit_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return distinct axes counted from the front, in the given order.

    Raises:
        RunError: one is out of range or named twice.
    """
    found = tuple(check_axis(int(axis), rank) for axis in axes)
    if len(set(found)) != len(found):
        raise RunError("an axis is named twice", expected="distinct axes", got=found)
    return found


def int_list(array: Array | None) -> list[int]:
    """The integers of a tensor as a flat list; empty for None."""
    if array is None:
        return []
    return [int(value) for value in np.asarray(array).reshape(-1).tolist()]


def scalar(array: Array, what: str = "a scalar input") -> Any:
    """The one element of a tensor as a Python value.

    Raises:
        RunError: it hasn't exactly one element.
    """
    if array.size != 1:
        raise RunError(f"{what} must have one element", got=f"shape {array.shape}")
    return array.reshape(-1)[0].item()


def text(value: Any) -> str:
    """A string attribute as `str`."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def attribute_dtype(number: int) -> np.dtype[Any]:
    """The numpy dtype for an element type number of an attribute.

    Raises:
        RunError: the number names no type known here.
    """
    try:
        return DataType(number).numpy
    except ValueError:
        raise RunError("unknown element type", expected="a TensorProto type", got=number) from None


def optional_input(inputs: tuple[Array | None, ...], index: int) -> Array | None:
    """The input at `index`, None where it is left out."""
    return inputs[index] if index < len(inputs) else None


def from_constant(
    node: KernelNode, index: int, prepare: Callable[[Array], Any]
) -> Callable[[Array], Any]:
    """Return a function that prepares input `index`; done once here when it is constant."""
    constant = node.constants[index] if index < len(node.constants) else None
    if constant is None:
        return prepare
    ready = prepare(constant)
    return lambda _: ready
