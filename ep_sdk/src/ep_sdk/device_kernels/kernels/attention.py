"""Attention of ai.onnx: two products and a softmax between them, without caches.

Heads are found by strides, so that nothing is transposed on the way in. Key and value heads that
several query heads share are read by all of them where they lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS
from ep_sdk.device_kernels.kernels.elementwise import dtype_of
from ep_sdk.device_kernels.kernels.reductions import GROUP
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.moving import Strided, move, strides_of
from ep_sdk.device_kernels.product import Matrices, Packed, Product
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__: list[str] = []

_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
_MASKS = _TYPES | {DataType.BOOL}


@dataclass(frozen=True, slots=True)
class _Heads:
    """A query, key or value: batch, heads, length and size, and the steps between them."""

    buffer: DeviceBuffer
    batch: int
    heads: int
    length: int
    size: int
    batch_step: int
    head_step: int
    row_step: int


def _heads(buffer: DeviceBuffer, count: int | None) -> _Heads:
    """Rank 4 is batch, heads, length, size; rank 3 has the heads inside the last axis."""
    shape = buffer.shape
    if len(shape) == 4:
        batch, heads, length, size = shape
        plane = length * size
        return _Heads(buffer, batch, heads, length, size, heads * plane, plane, size)
    if len(shape) != 3 or not count or shape[2] % count:
        raise RunError("an input of Attention", expected="4 axes, or 3 and its heads", got=shape)
    batch, length, whole = shape
    size = whole // count
    return _Heads(buffer, batch, count, length, size, length * whole, size, whole)


def _plain(node: KernelNode) -> str | None:
    """A predicate: no caches, no windows, nothing but the result."""
    for position, name in ((4, "past_key"), (5, "past_value"), (6, "nonpad_kv_seqlen")):
        if node.has_input(position):
            return f"{name} is given"
    if any(node.wants_output(position) for position in (1, 2, 3)):
        return "keys, values or scores are asked for"
    if node.attr("left_window_size", -1) >= 0 or node.attr("right_window_size", -1) >= 0:
        return "a window"
    if node.attr("softmax_precision", DataType.FLOAT) != DataType.FLOAT:
        return "softmax_precision isn't float"
    kinds = {node.input_dtype(position) for position in (0, 1, 2)}
    return "query, key and value of different types" if len(kinds) > 1 else None


@TABLE.kernel(
    "Attention", since=23, types={"T1": _TYPES, "U": _MASKS}, writes_out=True, predicate=_plain
)
def _attention(node: KernelNode) -> Kernel:
    run = _Attention(node)

    def attention(
        stream: DeviceStream,
        query: DeviceBuffer,
        key: DeviceBuffer,
        value: DeviceBuffer,
        mask: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        return run(stream, query, key, value, mask, out)

    return attention


class _Attention:
    def __init__(self, node: KernelNode) -> None:
        self._bench = Bench(node)
        self._dtype = dtype_of(node, 0)
        self._query_heads = node.attr("q_num_heads")
        self._key_heads = node.attr("kv_num_heads")
        self._scale = node.attr("scale")
        self._cap = np.float32(node.attr("softcap", 0.0))
        self._causal = np.int32(node.attr("is_causal", 0))
        float32 = DataType.FLOAT
        self._scores = Product(self._bench, self._dtype, self._dtype, float32, float32)
        self._mix = Product(self._bench, float32, self._dtype, self._dtype, float32)
        self._defines: dict[str, object] = {
            "T": ELEMENTS[self._dtype].code,
            "NUMBER": "float",
            "MASK_PARAMETERS": "",
        }

    def __call__(
        self,
        stream: DeviceStream,
        query: DeviceBuffer,
        key: DeviceBuffer,
        value: DeviceBuffer,
        mask: DeviceBuffer | None,
        out: DeviceBuffer | None,
    ) -> DeviceBuffer:
        q, k, v = (
            _heads(query, self._query_heads),
            _heads(key, self._key_heads),
            _heads(value, self._key_heads),
        )
        self._check(q, k, v)
        own = (q.batch, q.heads, q.length, v.size)
        is_flat = len(query.shape) == 3
        shape = (q.batch, q.length, q.heads * v.size) if is_flat else own
        with self._bench.writing(stream, shape, self._dtype, out) as y:
            if not math.prod(shape):
                return y
            if not is_flat:
                self._attend(stream, q, k, v, mask, y)
                return y
            with self._bench.scratch(stream, own, self._dtype) as apart:
                self._attend(stream, q, k, v, mask, apart)
                merged = (q.batch, q.length, q.heads, v.size)
                steps = strides_of(own)
                source = Strided(apart, 0, (steps[0], steps[2], steps[1], steps[3]))
                move(self._bench, stream, source, Strided(y, 0, strides_of(merged)), merged)
        return y

    def _check(self, q: _Heads, k: _Heads, v: _Heads) -> None:
        fits = q.batch == k.batch == v.batch and q.size == k.size and k.length == v.length
        if not fits or k.heads != v.heads or not k.heads or q.heads % k.heads:
            raise RunError(
                "query, key and value of Attention don't fit together",
                got=[item.buffer.shape for item in (q, k, v)],
            )

    def _attend(
        self,
        stream: DeviceStream,
        q: _Heads,
        k: _Heads,
        v: _Heads,
        mask: DeviceBuffer | None,
        y: DeviceBuffer,
    ) -> None:
        share = q.heads // k.heads
        stack = (q.batch, k.heads, share)
        shape = (q.batch, q.heads, q.length, k.length)
        with self._bench.scratch(stream, shape, DataType.FLOAT) as scores:
            left = Matrices(
                q.buffer, q.row_step, 1, (q.batch_step, share * q.head_step, q.head_step)
            )
            right = Matrices(k.buffer, 1, k.row_step, (k.batch_step, k.head_step, 0))
            self._multiply(
                stream, self._scores, left, right, scores, k, stack, (q.length, k.length, q.size)
            )
            self._weigh(stream, scores, q, k, mask)
            plane = q.length * k.length
            left = Matrices(scores, k.length, 1, (q.heads * plane, share * plane, plane))
            right = Matrices(v.buffer, v.row_step, 1, (v.batch_step, v.head_step, 0))
            self._multiply(
                stream, self._mix, left, right, y, v, stack, (q.length, v.size, k.length)
            )

    def _multiply(
        self,
        stream: DeviceStream,
        product: Product,
        left: Matrices,
        right: Matrices,
        target: DeviceBuffer,
        other: _Heads,
        stack: Shape,
        lengths: tuple[int, int, int],
    ) -> None:
        rows, columns, depth = lengths
        even = other.batch_step == other.heads * other.head_step
        if not (product.wants_panels(rows) and depth and even):
            product.run(stream, left, right, target, rows, columns, depth, stack)
            return
        tile = product.tile_for(rows, columns)
        matrices = other.batch * other.heads
        shape = product.panel_shape(tile, depth, columns, matrices)
        with self._bench.scratch(stream, shape, product.packed_type) as panels:
            product.pack(stream, panels, right, tile, depth, columns, matrices, other.head_step)
            size = math.prod(shape[1:])
            packed = Packed(panels, tile, (other.heads * size, size, 0))
            product.run(stream, left, packed, target, rows, columns, depth, stack)

    def _weigh(
        self,
        stream: DeviceStream,
        scores: DeviceBuffer,
        q: _Heads,
        k: _Heads,
        mask: DeviceBuffer | None,
    ) -> None:
        scale = 1 / math.sqrt(q.size) if self._scale is None else self._scale
        defines = dict(self._defines)
        arguments: list[Any] = []
        if mask is not None:
            code = ELEMENTS[mask.dtype].code
            defines["TM"] = code
            defines["MASK_PARAMETERS"] = (
                f", __global const STORED({code}) *restrict mask, const long mask_keys, "
                "const long mask_batch, const long mask_head, const long mask_query, "
                "const long mask_key"
            )
            if mask.dtype is DataType.BOOL:
                defines["MASK_IS_BOOL"] = 1
            arguments = [mask.handle, *_mask_numbers(mask.shape, q, k)]
        kernel = self._bench.kernel("attention.cl", "weigh", defines)
        rows = q.batch * q.heads * q.length
        numbers = [np.int64(item) for item in (k.length, q.length, q.heads)]
        kernel.launch(
            stream,
            (rows * GROUP,),
            (GROUP,),
            [
                scores.handle,
                *numbers,
                np.float32(scale),
                self._cap,
                self._causal,
                *arguments,
            ],
        )


def _mask_numbers(shape: Shape, q: _Heads, k: _Heads) -> list[Any]:
    """Keys that the mask covers, and its steps; 0 where it broadcasts."""
    whole = (1,) * (4 - len(shape)) + tuple(shape)
    wanted = (q.batch, q.heads, q.length)
    if len(whole) != 4 or any(
        length not in (1, other) for length, other in zip(whole, wanted, strict=False)
    ):
        raise RunError("the mask of Attention doesn't fit", expected=wanted, got=shape)
    steps = strides_of(whole)
    broadcasts = whole[3] == 1 and k.length > 1
    keys = k.length if broadcasts else whole[3]
    found = [step if length > 1 else 0 for length, step in zip(whole, steps, strict=True)]
    return [np.int64(item) for item in (keys, *found)]
