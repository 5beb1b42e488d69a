"""Products of stacks of matrices on the device: which kernel, which tile, and launching it.

What MatMul, Gemm, convolutions and attention come down to. Knows strides, not operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import NotSupportedError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceKernel, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.launch import Bench
from ep_sdk.device_kernels.moving import strides_of
from ep_sdk.device_kernels.sources import read_source
from ep_sdk.device_kernels.tiles import Tile
from ep_sdk.device_kernels.vectors import long4

__all__ = ["NO_TAIL", "PART", "Matrices", "Packed", "Product", "Tail"]

_NUMBERS = {
    DataType.FLOAT: "float",
    DataType.FLOAT16: "float",
    DataType.BFLOAT16: "float",
    DataType.DOUBLE: "double",
    DataType.INT32: "int",
    DataType.INT64: "long",
    DataType.UINT32: "uint",
    DataType.UINT64: "ulong",
}
_HOST = {
    "float": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "int": DataType.INT32,
    "long": DataType.INT64,
    "uint": DataType.UINT32,
    "ulong": DataType.UINT64,
}
_MOST_STACKS = 4
_BYTES = frozenset({DataType.INT8, DataType.UINT8})

PART = 256
"""Products of bytes less their zero points, at most 255 * 255 each, whose sum a float holds."""

_WORTH_PACKING = 8
"""Rows of A from which copying B into panels pays."""
_SIDE = 64


@dataclass(frozen=True, slots=True)
class Matrices:
    """An operand: a stack of matrices in one buffer.

    Attributes:
        buffer: where they lie.
        row, column: steps between rows and between columns, in elements.
        stack: steps between matrices for each dimension of the product's stack, the slowest
            first; 0 where one matrix serves all.
        start: position of the first element.
    """

    buffer: DeviceBuffer
    row: int
    column: int
    stack: tuple[int, ...] = ()
    start: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """A second operand in panels, as `Product.pack` made it.

    Attributes:
        tile: the tile whose panels they are.
        stack: as in `Matrices`, in elements of the panels.
    """

    buffer: DeviceBuffer
    tile: Tile
    stack: tuple[int, ...] = ()
    start: int = 0


@dataclass(frozen=True, slots=True)
class Tail:
    """What happens to a sum before it is stored.

    Attributes:
        text: kernel C with `value`, `m`, `n` and `at`; see `cl/gemm.cl`.
        parameters: further parameters of the kernel, each with a comma in front.
        a_shift, b_shift: what is added to elements of A in row `m`, and of B in column `n`.
        pack_parameters: further parameters of packing, likewise.
        head: functions that the text calls.
    """

    text: str = ""
    parameters: str = ""
    a_shift: str = ""
    b_shift: str = ""
    pack_parameters: str = ""
    head: str = ""

    def defines(self) -> dict[str, object]:
        """The macros that say so."""
        found: dict[str, object] = {}
        if self.text:
            found["TAIL(value, m, n, at)"] = f"({self.text})"
        if self.parameters:
            found["TAIL_PARAMETERS"] = self.parameters
        if self.a_shift:
            found["A_SHIFT(m)"] = self.a_shift
        if self.b_shift:
            found["B_SHIFT(n)"] = self.b_shift
        if self.pack_parameters:
            found["PACK_PARAMETERS"] = self.pack_parameters
        return found


NO_TAIL = Tail()


class Product:
    """Products of one kind: element types and tail are fixed, sizes are not.

    Args:
        bench: of the node.
        a, b, c: element types of the operands and the result.
        total: element type of the sums; the narrow floats stand for float.
        tail: what happens to sums.

    Attributes:
        in_parts: bytes are multiplied as floats, with sums of parts as integers; see `cl/tile.cl`.
    """

    def __init__(
        self,
        bench: Bench,
        a: DataType,
        b: DataType,
        c: DataType,
        total: DataType,
        tail: Tail = NO_TAIL,
    ) -> None:
        self.bench = bench
        self.number = _NUMBERS[total]
        self._types = {"TA": ELEMENTS[a].code, "TB": ELEMENTS[b].code, "TC": ELEMENTS[c].code}
        self.in_parts = total is DataType.INT32 and {a, b} <= _BYTES and bench.device.is_cpu
        self._tail = tail

    @property
    def packed_type(self) -> DataType:
        """Element type of panels."""
        return DataType.FLOAT if self.in_parts else _HOST[self.number]

    def tile_for(self, rows: int, columns: int) -> Tile:
        """The tile for a product of so many rows and columns."""
        width = self.bench.device.vector_width * 4 // ELEMENTS[self.packed_type].nbytes
        is_float = self.packed_type is DataType.FLOAT
        measure = self.bench.measure_tile if is_float else None
        return self.bench.device.tiles.choose(max(width, 2), rows, columns, measure)

    def wants_panels(self, rows: int) -> bool:
        """True if the second operand should be packed for a product of so many rows."""
        return bool(self.bench.device.is_cpu) and rows >= _WORTH_PACKING

    def panel_shape(self, tile: Tile, depth: int, columns: int, matrices: int) -> tuple[int, ...]:
        """Shape of the panels of a stack of second operands."""
        return (matrices, -(-columns // tile.panel), depth, tile.panel)

    def pack(
        self,
        stream: DeviceStream,
        target: DeviceBuffer,
        b: Matrices,
        tile: Tile,
        depth: int,
        columns: int,
        matrices: int,
        matrix_step: int,
        arguments: Sequence[Any] = (),
    ) -> None:
        """Lay second operands into panels.

        Args:
            target: of `panel_shape` and `packed_type`.
            matrix_step: elements between one operand and the next.
            arguments: for `Tail.pack_parameters`.
        """
        kernel = self._kernel("pack_panels", self._defines(tile))
        kernel.launch(
            stream,
            (tile.panel, depth, matrices * -(-columns // tile.panel)),
            None,
            [
                b.buffer.handle,
                target.handle,
                *_longs(depth, columns, b.row, b.column, b.start, matrix_step),
                *arguments,
            ],
        )

    def run(
        self,
        stream: DeviceStream,
        a: Matrices,
        b: Matrices | Packed,
        c: DeviceBuffer,
        rows: int,
        columns: int,
        depth: int,
        stack: Sequence[int] = (),
        arguments: Sequence[Any] = (),
        c_start: int = 0,
    ) -> None:
        """Compute C, a dense stack of matrices.

        Args:
            c_start: position of its first element in the buffer.
            stack: lengths of the dimensions of the stack, the slowest first, at most four.
            arguments: for `Tail.parameters`.

        Raises:
            NotSupportedError: more than four dimensions in the stack.
        """
        if len(stack) > _MOST_STACKS:
            raise NotSupportedError(f"a stack of more than {_MOST_STACKS} dimensions")
        if self.in_parts and isinstance(b, Packed) and a.buffer.dtype is not self.packed_type:
            with self.widened(stream, a, b.tile, rows, depth, stack, arguments) as wide:
                self.run(stream, wide, b, c, rows, columns, depth, stack, arguments, c_start)
            return
        count = int(np.prod(stack, dtype=np.int64))
        places = [
            long4((a.start, b.start, c_start)),
            long4(stack[::-1], 1),
            long4(a.stack[::-1]),
            long4(b.stack[::-1]),
        ]
        head = [a.buffer.handle, b.buffer.handle, c.handle]
        numbers = _longs(rows, columns, depth, a.row, a.column)
        if isinstance(b, Packed):
            tile = b.tile
            kernel = self._kernel("gemm_panels", self._defines(tile, a.buffer.dtype))
            size = (-(-rows // tile.rows), -(-columns // tile.panel), count)
            kernel.launch(stream, size, (1, 1, 1), [*head, *numbers, *places, *arguments])
            return
        numbers += _longs(b.row, b.column)
        defines = self._defines(None)
        # An unfolded input isn't of the type of the input.
        defines["TB"] = ELEMENTS[b.buffer.dtype].code
        if b.column == 1:
            defines["B_NEIGHBOURS"] = 1
        name, size3, group = "gemm_plain", (columns, rows, count), None
        if not self.bench.device.is_cpu and min(rows, columns) >= _SIDE // 2:
            name, group = "gemm_tiled", (16, 16, 1)
            size3 = (-(-columns // _SIDE) * 16, -(-rows // _SIDE) * 16, count)
        kernel = self._kernel(name, defines)
        kernel.launch(stream, size3, group, [*head, *numbers, *places, *arguments])

    @contextmanager
    def widened(
        self,
        stream: DeviceStream,
        a: Matrices,
        tile: Tile,
        rows: int,
        depth: int,
        stack: Sequence[int],
        arguments: Sequence[Any],
    ) -> Iterator[Matrices]:
        """The first operand of a product in parts as floats, in memory for the work inside."""
        steps = a.stack or (0,) * len(stack)
        lengths = [n if step else 1 for n, step in zip(stack, steps, strict=True)]
        shape = (*lengths, rows, depth)
        with self.bench.scratch(stream, shape, self.packed_type) as target:
            kernel = self._kernel("widen_rows", self._defines(tile))
            places = [long4((a.start,)), long4(lengths[::-1], 1), long4(steps[::-1])]
            numbers = _longs(rows, a.row, a.column)
            buffers = [a.buffer.handle, target.handle]
            size = (depth, rows, math.prod(lengths))
            kernel.launch(stream, size, None, [*buffers, *numbers, *places, *arguments])
            whole = strides_of(shape)[: len(lengths)]
            moving = [step if n else 0 for step, n in zip(whole, steps, strict=True)]
            yield Matrices(target, depth, 1, tuple(moving))

    def _kernel(self, name: str, defines: dict[str, object]) -> DeviceKernel:
        head = read_source("tile.cl") + self._tail.head
        return self.bench.kernel("gemm.cl", name, defines, head=head)

    def _defines(self, tile: Tile | None, a: DataType | None = None) -> dict[str, object]:
        found: dict[str, object] = {**self._types, **self._tail.defines(), **self.sums(tile)}
        if tile is not None and self.in_parts and a is self.packed_type:
            # Widened rows have their shift.
            found["TA"] = ELEMENTS[a].code
            found.pop("A_SHIFT(m)", None)
        return found

    def sums(self, tile: Tile | None) -> dict[str, object]:
        """What macros say about sums and tiles; see `cl/tile.cl`."""
        in_parts = self.in_parts and tile is not None
        number = "float" if in_parts else self.number
        found: dict[str, object] = {"NUMBER": number, "RESULT": self.number}
        if number in ("float", "double"):
            found["IS_FLOATING"] = 1
        if in_parts:
            found["PART"] = PART
        if tile is not None:
            found |= {"TM": tile.rows, "TN": tile.vectors, "WIDTH": tile.width}
        return found


def _longs(*values: int) -> list[Any]:
    return [np.int64(value) for value in values]
