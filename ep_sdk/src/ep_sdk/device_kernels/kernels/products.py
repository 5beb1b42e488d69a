"""MatMul, Gemm and the integer products."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.epilogue import Epilogue
from ep_sdk.device_kernels.expression import literal
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.multiplier import Multiplier
from ep_sdk.device_kernels.product import NO_TAIL, Product, Tail
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__ = ["shifted_weight", "zero_point_arguments", "zero_point_tail"]

_WIDE = frozenset({DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64})
_TYPES = FLOATS | _WIDE
_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def _constant(node: KernelNode, position: int) -> np.ndarray[Any, Any] | None:
    return node.constants[position] if node.has_input(position) else None


class _ProductKernel:
    """MatMul, Gemm and MatMulInteger; meets `TakesEpilogue`.

    Args:
        bench: of the node.
        types: of both operands and of the sums.
        tail: what happens to sums.
        operands: as `Multiplier` takes them, by name.
        arguments_of: from the node's inputs after the operands to arguments of tail and packing.
    """

    axis = -1

    def __init__(
        self,
        bench: Bench,
        types: tuple[DataType, DataType, DataType],
        tail: Tail,
        arguments_of: _ArgumentsOf,
        **operands: Any,
    ) -> None:
        self.gives = types[2]
        self._bench = bench
        self._types = types
        self._tail = tail
        self._arguments_of = arguments_of
        self._result = self.gives
        self._epilogue: Epilogue | None = None
        self._inputs = len(bench.node.node.inputs)
        product = Product(bench, *types[:2], self._result, types[2], tail)
        self._multiply = Multiplier(bench, product, **operands)

    def with_epilogue(self, epilogue: Epilogue, inputs: int) -> _ProductKernel:
        """See `TakesEpilogue`."""
        tail = epilogue.added_to(self._tail, "n")
        a, b, total = self._types
        other = copy.copy(self)
        other._epilogue = epilogue
        other._inputs = inputs
        other._result = epilogue.result
        product = Product(self._bench, a, b, epilogue.result, total, tail)
        other._multiply = self._multiply.with_product(product)
        return other

    def __call__(
        self,
        stream: DeviceStream,
        a: DeviceBuffer,
        b: DeviceBuffer,
        *others: DeviceBuffer | None,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        if self._bench.node.node.op_type == "Gemm" and (len(a.shape) != 2 or len(b.shape) != 2):
            raise RunError("Gemm takes matrices", got=f"{list(a.shape)} and {list(b.shape)}")
        own, extras = others[: self._inputs - 2], others[self._inputs - 2 :]
        arguments, packing = self._arguments_of(own)
        more = None
        if self._epilogue is not None:
            more = partial(self._epilogue.arguments, extras)
        return self._multiply(stream, a, b, self._result, out, arguments, packing, more)


_Arguments = tuple[Any, ...]
_ArgumentsOf = Callable[[Sequence[DeviceBuffer | None]], tuple[_Arguments, _Arguments]]


@TABLE.kernel("MatMul", types={"T": _TYPES}, writes_out=True)
def _matmul(node: KernelNode) -> Kernel:
    dtype = node.input_dtype(0)
    assert dtype is not None
    weight = _constant(node, 1)
    return _ProductKernel(
        Bench(node), (dtype,) * 3, NO_TAIL, lambda others: ((), ()), weight=weight
    )


@TABLE.kernel("Gemm", since=7, types={"T": _TYPES}, writes_out=True)
def _gemm(node: KernelNode) -> Kernel:
    dtype = node.input_dtype(0)
    assert dtype is not None

    def arguments_of(others: Sequence[DeviceBuffer | None]) -> tuple[_Arguments, _Arguments]:
        bias = others[0] if others else None
        return (() if bias is None else (bias.handle, *_bias_steps(bias.shape))), ()

    return _ProductKernel(
        Bench(node),
        (dtype,) * 3,
        _gemm_tail(node, dtype),
        arguments_of,
        turn_a=bool(node.attr("transA", 0)),
        turn_b=bool(node.attr("transB", 0)),
        weight=_constant(node, 1),
    )


def _gemm_tail(node: KernelNode, dtype: DataType) -> Tail:
    """Alpha times the sum, plus beta times the third input where there is one."""
    wide = dtype if dtype in (DataType.DOUBLE, *_WIDE) else DataType.FLOAT
    text = "value"
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    code = ELEMENTS[wide].code
    if alpha != 1.0:
        text = f"(COMPUTED({code}))({literal(alpha, DataType.FLOAT)} * value)"
    if not node.has_input(2):
        return Tail(text) if text != "value" else NO_TAIL
    bias = f"LOAD({ELEMENTS[dtype].code}, bias, m * bias_row + n * bias_column)"
    if beta != 1.0:
        bias = f"(COMPUTED({code}))({literal(beta, DataType.FLOAT)} * {bias})"
    parameters = (
        f", __global const STORED({ELEMENTS[dtype].code}) *restrict bias, "
        "const long bias_row, const long bias_column"
    )
    return Tail(f"{text} + {bias}", parameters)


def _bias_steps(shape: Shape) -> tuple[Any, Any]:
    """Steps of the third input of Gemm along rows and columns, 0 where it broadcasts."""
    if len(shape) > 2:
        raise RunError("the third input of Gemm has more than two dimensions", got=shape)
    rows, columns = (1,) * (2 - len(shape)) + tuple(shape)
    return np.int64(columns if rows > 1 else 0), np.int64(1 if columns > 1 else 0)


# ---------------------------------------------------------------- integers


def _zeros_of_stacks(node: KernelNode) -> str | None:
    """A predicate: every matrix of a stack has the same zero points."""
    for position in (2, 3):
        if not node.has_input(position):
            continue
        shape = getattr(node.input_types[position], "shape", None)
        if shape is not None and _differs_in_stack(shape):
            return "zero points that differ between the matrices of a stack"
    return None


@TABLE.kernel(
    "MatMulInteger",
    since=10,
    types={0: _BYTES, 1: _BYTES},
    writes_out=True,
    predicate=_zeros_of_stacks,
)
def _matmul_integer(node: KernelNode) -> Kernel:
    """Zero points are one, one per row of A, or one per column of B."""
    a_type, b_type = node.input_dtype(0), node.input_dtype(1)
    assert a_type is not None
    assert b_type is not None
    has_a, has_b = node.has_input(2), node.has_input(3)
    tail = zero_point_tail(a_type if has_a else None, b_type if has_b else None)

    def arguments_of(others: Sequence[DeviceBuffer | None]) -> tuple[_Arguments, _Arguments]:
        of_a = zero_point_arguments(others[0] if others else None)
        of_b = zero_point_arguments(others[1] if len(others) > 1 else None)
        return (*of_a, *of_b), of_b

    return _ProductKernel(
        Bench(node),
        (a_type, b_type, DataType.INT32),
        tail,
        arguments_of,
        weight=shifted_weight(node, 1, 3),
    )


def shifted_weight(node: KernelNode, position: int, zero: int) -> np.ndarray[Any, Any] | None:
    """A constant second operand less its zero points, as a product in parts reads it."""
    weight, zeros = _constant(node, position), _constant(node, zero)
    if weight is None or (node.has_input(zero) and zeros is None):
        return None
    shifted = weight.astype(np.float32)
    return shifted if zeros is None else shifted - zeros.astype(np.float32)


def zero_point_tail(a: DataType | None, b: DataType | None) -> Tail:
    """Zero points of the given types are taken off before multiplying; None where there is none."""
    parameters = pack = a_shift = b_shift = ""
    if a is not None:
        code = ELEMENTS[a].code
        parameters += f", __global const STORED({code}) *restrict a_zero, const long a_zeros"
        a_shift = f"- (int)LOAD({code}, a_zero, min((long)(m), rows - 1) % a_zeros)"
    if b is not None:
        code = ELEMENTS[b].code
        pack = f", __global const STORED({code}) *restrict b_zero, const long b_zeros"
        parameters += pack
        b_shift = f"- (int)LOAD({code}, b_zero, (n) % b_zeros)"
    return Tail("", parameters, a_shift, b_shift, pack)


def zero_point_arguments(zero: DeviceBuffer | None) -> tuple[Any, ...]:
    """Arguments for a zero point: one for all, or one for each row or column.

    They are the same in all matrices of a stack, whose rows may be those of one tall matrix.

    Raises:
        RunError: different ones for the matrices of a stack.
    """
    if zero is None:
        return ()
    if _differs_in_stack(zero.shape):
        raise RunError("zero points that differ between the matrices of a stack", got=zero.shape)
    return zero.handle, np.int64(math.prod(zero.shape))


def _differs_in_stack(shape: Sequence[object]) -> bool:
    return any(length != 1 for length in shape[:-2])
