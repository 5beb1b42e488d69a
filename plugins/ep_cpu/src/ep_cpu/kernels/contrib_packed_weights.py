"""com.microsoft: weights of a few bits per element, packed into bytes, with a scale per block.

A constant weight is unpacked once, to the type it is computed in; that takes 4 bytes per element.
"""

from __future__ import annotations

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.matmul import matmul
from ep_cpu.kernels.support import FLOATS, Array, check_axis, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["unpack_bits"]

_TYPES = FLOATS - {DataType.DOUBLE}
_NARROW_FLOATS = frozenset(
    {
        DataType.FLOAT8E4M3FN,
        DataType.FLOAT8E4M3FNUZ,
        DataType.FLOAT8E5M2,
        DataType.FLOAT8E5M2FNUZ,
        DataType.FLOAT4E2M1,
    }
)
_FOUR_BIT = frozenset({DataType.INT4, DataType.UINT4})

# Values of the two 4-bit float types of bitsandbytes, by code: FP4, then NF4, whose steps are
# quantiles of a normal distribution (Dettmers et al. 2023, arXiv 2305.14314, appendix E).
_FOUR_BIT_VALUES = (
    (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25),
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
)  # fmt: skip


def unpack_bits(packed: Array, bits: int) -> Array:
    """uint8 [..., n] as uint8 [..., n * 8 / bits], the lowest bits of each byte first."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)


def _bits_problem(node: KernelNode) -> str | None:
    bits = int(node.attr("bits", 4))
    return None if bits in (2, 4, 8) else f"weights of {bits} bits aren't implemented"


# ---------------------------------------------------------------- products


def _nbits_problem(node: KernelNode) -> str | None:
    if node.attr("weight_prepacked", 0):
        return "weights in the layout of another device (weight_prepacked) can't be read"
    return _bits_problem(node) or _size_problem(node)


def _size_problem(node: KernelNode) -> str | None:
    """What the attributes K, N and block_size must be."""
    if min(int(node.attr("K", 0)), int(node.attr("N", 0))) < 1:
        return "K and N must be positive"
    block = int(node.attr("block_size", 0))
    return None if block >= 16 else f"blocks of {block} elements aren't implemented"


class _BlockedWeight:
    """How a node's weight [N, K] is packed."""

    def __init__(self, node: KernelNode) -> None:
        self.rows = int(node.attr("N"))
        self.columns = int(node.attr("K"))
        self.bits = int(node.attr("bits", 4))
        self.block = int(node.attr("block_size"))
        self.blocks = -(-self.columns // self.block)

    def unpack(
        self, packed: Array, scales: Array, zeros: Array | None, groups: Array | None
    ) -> Array:
        """The weight as float32 [K, N].

        Raises:
            RunError: an input has a wrong size.
        """
        size = self.block * self.bits // 8
        if packed.shape != (self.rows, self.blocks, size):
            raise RunError(
                "wrong shape of the packed weight",
                expected=(self.rows, self.blocks, size),
                got=packed.shape,
            )
        codes = unpack_bits(packed.reshape(self.rows, -1), self.bits)[:, : self.columns]
        scale = widen(self._per_block(scales, "scales"))
        zero = self._zero_points(zeros)
        places = self._places(groups)
        weight = codes.astype(np.float32)
        weight -= zero[:, places]
        weight *= scale[:, places]
        return np.ascontiguousarray(weight.T)

    def _per_block(self, values: Array, what: str) -> Array:
        if values.size != self.rows * self.blocks:
            raise RunError(
                f"wrong shape of the {what}", expected=(self.rows, self.blocks), got=values.shape
            )
        return values.reshape(self.rows, self.blocks)

    def _zero_points(self, zeros: Array | None) -> Array:
        if zeros is None:
            middle = 1 << (self.bits - 1)
            return np.full((self.rows, self.blocks), middle, np.float32)
        if zeros.dtype != np.uint8:
            return widen(self._per_block(zeros, "zero points"))
        width = -(-self.blocks * self.bits // 8)
        if zeros.size != self.rows * width:
            raise RunError(
                "wrong shape of the zero points", expected=(self.rows, width), got=zeros.shape
            )
        codes = unpack_bits(zeros.reshape(self.rows, width), self.bits)[:, : self.blocks]
        return codes.astype(np.float32)

    def _places(self, groups: Array | None) -> Array:
        """The block of each column."""
        if groups is None:
            return np.arange(self.columns) // self.block
        if groups.size < self.columns or groups.min() < 0 or groups.max() >= self.blocks:
            raise RunError(
                "g_idx must give a block for every column",
                expected=f"{self.columns} numbers below {self.blocks}",
                got=groups.shape,
            )
        places: Array = groups.reshape(-1)[: self.columns]
        return places


@TABLE.kernel(
    "MatMulNBits",
    domain="com.microsoft",
    types={0: _TYPES, 1: {DataType.UINT8}},
    predicate=_nbits_problem,
)
def _matmul_nbits(node: KernelNode) -> Kernel:
    layout = _BlockedWeight(node)
    ready = _constant_weight(node, layout)

    def run(
        x: Array,
        packed: Array,
        scales: Array,
        zeros: Array | None = None,
        groups: Array | None = None,
        bias: Array | None = None,
    ) -> Array:
        if x.ndim == 0 or x.shape[-1] != layout.columns:
            raise RunError(
                "the input doesn't fit the weight",
                expected=f"[..., {layout.columns}]",
                got=x.shape,
            )
        weight = layout.unpack(packed, scales, zeros, groups) if ready is None else ready
        product = matmul(widen(x), weight)
        if bias is not None:
            product = np.asarray(product + widen(bias))
        return product.astype(x.dtype, copy=False)

    return run


def _constant_weight(node: KernelNode, layout: _BlockedWeight) -> Array | None:
    parts: list[Array | None] = []
    for index in range(1, 5):
        constant = node.constants[index] if node.has_input(index) else None
        if constant is None and node.has_input(index):
            return None
        parts.append(constant)
    packed, scales, zeros, groups = parts
    if packed is None or scales is None:
        return None
    return layout.unpack(packed, scales, zeros, groups)


def _four_bit_problem(node: KernelNode) -> str | None:
    kind = node.attr("quant_type")
    if kind not in (0, 1):
        return f"quant_type {kind} isn't 0 (FP4) or 1 (NF4)"
    return _size_problem(node)


@TABLE.kernel(
    "MatMulBnb4",
    domain="com.microsoft",
    types={0: _TYPES, 1: {DataType.UINT8}},
    predicate=_four_bit_problem,
)
def _matmul_four_bit_floats(node: KernelNode) -> Kernel:
    rows, columns = int(node.attr("N")), int(node.attr("K"))
    block = int(node.attr("block_size"))
    transposed = bool(node.attr("transB", 1))
    values = np.array(_FOUR_BIT_VALUES[int(node.attr("quant_type"))], np.float32)
    if values.size == 8:
        values = np.concatenate([values, -values])

    def unpack(packed: Array, largest: Array) -> Array:
        count = rows * columns
        if packed.size != (count + 1) // 2 or largest.size != -(-count // block):
            raise RunError(
                "wrong shape of the packed weight or of absmax",
                expected=((count + 1) // 2, -(-count // block)),
                got=(packed.shape, largest.shape),
            )
        flat = packed.reshape(-1)
        # Here the upper half of a byte is the earlier element.
        codes = np.stack([flat >> 4, flat & 15], axis=1).reshape(-1)[:count]
        weight = values[codes] * np.repeat(widen(largest).reshape(-1), block)[:count]
        matrix = weight.reshape(rows, columns)
        return np.ascontiguousarray(matrix.T) if transposed else matrix

    packed_weight, absmax = node.constants[1], node.constants[2]
    ready = None
    if packed_weight is not None and absmax is not None:
        ready = unpack(packed_weight, absmax)

    def run(x: Array, packed: Array, largest: Array) -> Array:
        weight = unpack(packed, largest) if ready is None else ready
        return matmul(widen(x), weight).astype(x.dtype, copy=False)

    return run


# ---------------------------------------------------------------- rows


def _gather_problem(node: KernelNode) -> str | None:
    block = int(node.attr("block_size", 128))
    if block < 16 and not (block == 0 and node.input_dtype(0) in _NARROW_FLOATS):
        return f"blocks of {block} elements aren't implemented"
    return _bits_problem(node) if node.input_dtype(0) is DataType.UINT8 else None


@TABLE.kernel(
    "GatherBlockQuantized",
    domain="com.microsoft",
    types={0: _NARROW_FLOATS | _FOUR_BIT | {DataType.UINT8}, 2: _TYPES},
    predicate=_gather_problem,
)
def _gather_block_quantized(node: KernelNode) -> Kernel:
    """Rows are gathered first, then unpacked and scaled. An index out of range gives zeros."""
    bits = int(node.attr("bits", 4))
    block_size = int(node.attr("block_size", 128))

    def run(data: Array, indices: Array, scales: Array, zeros: Array | None = None) -> Array:
        axis = check_axis(int(node.attr("gather_axis", 0)), data.ndim)
        along = check_axis(int(node.attr("quantize_axis", 1)), data.ndim)
        packed_bits = bits if data.dtype == np.uint8 else 8
        if packed_bits < 8 and axis == data.ndim - 1:
            raise RunError("packed elements can't be gathered along the last axis", got=data.shape)
        if zeros is not None and packed_bits < 8:
            zeros = unpack_bits(zeros, packed_bits)[..., : scales.shape[-1]]
        block = block_size or data.shape[along]
        _check_blocks(data, scales, zeros, along, block, packed_bits)
        length = data.shape[axis]
        wanted = indices.astype(np.int64)
        inside = (wanted >= -length) & (wanted < length)
        places = np.where(inside, wanted + np.where(wanted < 0, length, 0), 0)
        codes = np.take(data, places, axis=axis)
        if packed_bits < 8:
            codes = unpack_bits(codes, packed_bits)

        def per_element(parameter: Array) -> Array:
            own = places // block if along == axis else places
            if parameter.shape[axis] == 1:
                own = np.zeros_like(own)
            picked = np.take(parameter, own, axis=axis)
            if along == axis:
                return np.asarray(picked)
            final = along if along < axis else along - 1 + places.ndim
            repeated = np.repeat(picked, block, axis=final)
            return np.asarray(repeated[(slice(None),) * final + (slice(0, codes.shape[final]),)])

        result = codes.astype(np.float32)
        if zeros is not None:
            result -= per_element(zeros).astype(np.float32)
        elif data.dtype == np.uint8:
            result -= np.float32(1 << (bits - 1))
        result *= widen(per_element(scales))
        spread = inside.reshape(*[1] * axis, *inside.shape, *[1] * (data.ndim - axis - 1))
        return np.where(spread, result, np.float32(0)).astype(scales.dtype, copy=False)

    return run


def _check_blocks(
    data: Array, scales: Array, zeros: Array | None, along: int, block: int, packed_bits: int
) -> None:
    """Hold scales and zero points to one element per block; floats may share them along axes."""
    if data.size == 0:
        raise RunError("there is nothing to gather from", got=data.shape)
    expected = [*data.shape[:-1], data.shape[-1] * 8 // packed_bits]
    expected[along] = -(-expected[along] // block)
    shared = data.dtype not in (np.uint8, DataType.INT4.numpy, DataType.UINT4.numpy)
    fits = scales.ndim == data.ndim and all(
        own == wanted or (shared and own == 1)
        for own, wanted in zip(scales.shape, expected, strict=True)
    )
    if not fits or (zeros is not None and (shared or zeros.shape != scales.shape)):
        raise RunError(
            "wrong shape of scales or zero points",
            expected=tuple(expected),
            got=(scales.shape, None if zeros is None else zeros.shape),
        )
