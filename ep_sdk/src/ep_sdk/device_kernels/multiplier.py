"""Multiplying as numpy's matmul does: operands with stacks that broadcast, and packed weights.

Knows shapes and how operands lie; which operator wants the product is in `kernels/products.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.launch import Bench
from ep_sdk.device_kernels.moving import strides_of
from ep_sdk.device_kernels.product import Matrices, Packed, Product
from ep_sdk.shapes import Shape

__all__ = ["Multiplier"]


class Multiplier:
    """Multiplies as numpy's matmul does, with the second operand packed once if it is constant.

    Args:
        bench: of the node.
        product: element types and tail.
        turn_a, turn_b: operands are given transposed.
        weight: the value of the second operand where it is constant and one matrix.
    """

    def __init__(
        self,
        bench: Bench,
        product: Product,
        *,
        turn_a: bool = False,
        turn_b: bool = False,
        weight: np.ndarray[Any, Any] | None = None,
    ) -> None:
        self._bench = bench
        self._product = product
        self._turn_a = turn_a
        self._turn_b = turn_b
        self._weight = self._pack_weight(weight)

    def with_product(self, product: Product) -> Multiplier:
        """The same operands, and the same packed weight, for another tail."""
        other = copy.copy(self)
        other._product = product
        return other

    def __call__(
        self,
        stream: DeviceStream,
        a: DeviceBuffer,
        b: DeviceBuffer,
        dtype: DataType,
        out: DeviceBuffer | None,
        arguments: tuple[Any, ...] = (),
        pack_arguments: tuple[Any, ...] = (),
        more: Callable[[Shape], tuple[Any, ...]] | None = None,
    ) -> DeviceBuffer:
        """Multiply.

        Args:
            arguments: those of the product's tail.
            pack_arguments: those of its packing.
            more: gives further arguments of the tail from the result's shape.
        """
        left, right, shape, stack = _fit(a.shape, b.shape, self._turn_a, self._turn_b)
        if more is not None:
            arguments += more(shape)
        rows, depth = left.lengths
        columns = right.lengths[1]
        if right.is_single and left.is_dense and not self._turn_a:
            # A stack of matrices times one matrix is one tall matrix times it.
            rows *= math.prod(stack)
            stack = ()
        first = Matrices(a, left.row, left.column, left.stack[-len(stack) :] if stack else ())
        second_stack = right.stack[-len(stack) :] if stack else ()
        second = Matrices(b, right.row, right.column, second_stack)
        with self._bench.writing(stream, shape, dtype, out) as c:
            if not math.prod(shape):
                return c
            if self._weight is not None and right.is_single:
                packed = Packed(self._weight.buffer, self._weight.tile, (0,) * len(stack))
                self._product.run(stream, first, packed, c, rows, columns, depth, stack, arguments)
            elif self._product.wants_panels(rows) and depth:
                self._run_packed(
                    stream,
                    first,
                    second,
                    c,
                    (rows, columns, depth),
                    stack,
                    right,
                    arguments,
                    pack_arguments,
                )
            else:
                self._product.run(stream, first, second, c, rows, columns, depth, stack, arguments)
        return c

    def _run_packed(
        self,
        stream: DeviceStream,
        first: Matrices,
        second: Matrices,
        c: DeviceBuffer,
        lengths: tuple[int, int, int],
        stack: Shape,
        right: _Operand,
        arguments: tuple[Any, ...],
        pack_arguments: tuple[Any, ...],
    ) -> None:
        rows, columns, depth = lengths
        product = self._product
        tile = product.tile_for(rows, columns)
        shape = product.panel_shape(tile, depth, columns, right.matrices)
        with self._bench.scratch(stream, shape, product.packed_type) as panels:
            size = math.prod(shape[1:])
            product.pack(
                stream,
                panels,
                second,
                tile,
                depth,
                columns,
                right.matrices,
                depth * columns,
                pack_arguments,
            )
            steps = tuple(step // (depth * columns) * size for step in second.stack)
            packed = Packed(panels, tile, steps)
            product.run(stream, first, packed, c, rows, columns, depth, stack, arguments)

    def _pack_weight(self, weight: np.ndarray[Any, Any] | None) -> Packed | None:
        """Panels of a constant second operand; made on the host, once."""
        if weight is None or weight.ndim != _MATRIX or not self._bench.device.is_cpu:
            return None
        matrix = np.ascontiguousarray(weight.T if self._turn_b else weight)
        depth, columns = matrix.shape
        if not depth or not columns:
            return None
        tile = self._product.tile_for(_MANY_ROWS, columns)
        panels = -(-columns // tile.panel)
        wide = np.zeros((depth, panels * tile.panel), self._product.packed_type.numpy)
        wide[:, :columns] = matrix
        laid = wide.reshape(depth, panels, tile.panel).transpose(1, 0, 2)
        return Packed(self._bench.constant(np.ascontiguousarray(laid)), tile)


_MANY_ROWS = 1 << 20
_MATRIX = 2


class _Operand:
    """How the matrices of one operand lie, as the product broadcasts them."""

    def __init__(self, shape: Shape, stack: Shape, turn: bool) -> None:
        steps = strides_of(shape)
        self.row, self.column = steps[-2:][::-1] if turn else steps[-2:]
        lengths = shape[-2:]
        self.lengths = (lengths[1], lengths[0]) if turn else (lengths[0], lengths[1])
        own = (1,) * (len(stack) - len(shape) + 2) + shape[:-2]
        own_steps = (0,) * (len(stack) - len(shape) + 2) + steps[:-2]
        self.stack = tuple(
            step if length != 1 else 0 for length, step in zip(own, own_steps, strict=True)
        )
        self.matrices = math.prod(shape[:-2])
        self.is_single = self.matrices == 1
        self.is_dense = own == stack


def _fit(a: Shape, b: Shape, turn_a: bool, turn_b: bool) -> tuple[_Operand, _Operand, Shape, Shape]:
    """Both operands, the shape of the result, and the dimensions of its stack, joined."""
    if not a or not b:
        raise RunError("a product needs at least one dimension", got=f"{list(a)} and {list(b)}")
    whole_a = a if len(a) > 1 else (1, *a)
    whole_b = b if len(b) > 1 else (*b, 1)
    try:
        stack = tuple(np.broadcast_shapes(whole_a[:-2], whole_b[:-2]))
    except ValueError as error:
        raise RunError("stacks don't broadcast", got=f"{list(a)} and {list(b)}") from error
    left, right = _Operand(whole_a, stack, turn_a), _Operand(whole_b, stack, turn_b)
    if left.lengths[1] != right.lengths[0]:
        raise RunError("matrices don't fit together", got=f"{list(a)} and {list(b)}")
    rows = left.lengths[:1] if len(a) > 1 else ()
    columns = right.lengths[1:] if len(b) > 1 else ()
    return left, right, (*stack, *rows, *columns), stack
