"""The geometry of convolutions and pools: lengths, pads and steps of up to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ep_core.errors import RunError
from ep_core.types import TensorType
from ep_sdk.device_kernels.launch import text_attribute
from ep_sdk.device_kernels.vectors import int4
from ep_sdk.kernels import KernelNode
from ep_sdk.shapes import Shape

__all__ = [
    "MOST_SPATIAL",
    "Geometry",
    "int4",
    "spatial_rank",
    "transposed_geometry",
    "window_geometry",
]

MOST_SPATIAL = 3


@dataclass(frozen=True, slots=True)
class Geometry:
    """Lengths by spatial dimension, always three of them."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        """Lengths of the input with its padding."""
        sides = zip(self.before, self.input, self.after, strict=True)
        return tuple(front + length + back for front, length, back in sides)

    def result_shape(self, x: Shape, filters: int) -> Shape:
        """Shape of what comes out, from that of the input and the number of output channels."""
        return (x[0], filters, *self.output[MOST_SPATIAL - (len(x) - 2) :])

    def arguments(self) -> list[Any]:
        """Kernel arguments: input, output, window, strides, dilations, pads in front."""
        items = (self.input, self.output, self.window, self.strides, self.dilations, self.before)
        return [int4(item) for item in items]


def spatial_rank(node: KernelNode) -> str | None:
    """A predicate: the input has one to three spatial dimensions, as far as is known."""
    rank = _spatial_rank(node)
    if rank is None:
        return "the rank of the input isn't known"
    return None if 1 <= rank <= MOST_SPATIAL else f"{rank} spatial dimensions"


def _spatial_rank(node: KernelNode) -> int | None:
    """From the input, from the attribute, or from the weights."""
    named = node.attr("kernel_shape")
    is_quantized = node.node.op_type == "QLinearConv"
    for position in (0, 3 if is_quantized else 1):
        kind = node.input_types[position] if position < len(node.input_types) else None
        if isinstance(kind, TensorType) and kind.shape is not None:
            return len(kind.shape) - 2
    return None if named is None else len(named)


def window_geometry(
    node: KernelNode, shape: Shape, window: Sequence[int], *, rounds_up: bool = False
) -> Geometry:
    """Work out the geometry of a convolution or pool.

    Args:
        node: for its attributes.
        shape: of the input, batch and channels included.
        window: lengths of the kernel.
        rounds_up: the attribute ceil_mode.

    Raises:
        RunError: the attributes don't fit the window's rank, or the window is longer than the
            padded input.
    """
    rank = len(window)
    lengths = shape[2:]
    if len(lengths) != rank:
        raise RunError("the kernel's rank isn't the input's", expected=len(lengths), got=rank)
    strides = tuple(node.attr("strides") or (1,) * rank)
    dilations = tuple(node.attr("dilations") or (1,) * rank)
    pads = tuple(node.attr("pads") or (0,) * 2 * rank)
    auto = text_attribute(node, "auto_pad", "NOTSET")
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise RunError("strides, dilations or pads don't fit the kernel", expected=rank)
    before, after, output = [], [], []
    for axis in range(rank):
        reach = (window[axis] - 1) * dilations[axis] + 1
        front, back = pads[axis], pads[axis + rank]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-lengths[axis] // strides[axis])
            missing = max((count - 1) * strides[axis] + reach - lengths[axis], 0)
            front = missing // 2 if auto == "SAME_UPPER" else -(-missing // 2)
            back = missing - front
        elif auto == "VALID":
            front = back = 0
        room = lengths[axis] + front + back - reach
        if room < 0:
            raise RunError(f"the kernel is longer than the padded input, by {-room}")
        count = (-(-room // strides[axis]) if rounds_up else room // strides[axis]) + 1
        if rounds_up and (count - 1) * strides[axis] >= lengths[axis] + front:
            # The last window would start in the padding at the end.
            count -= 1
        before.append(front)
        after.append(back)
        output.append(count)
    return _three(lengths, output, window, strides, dilations, before, after)


def _three(
    lengths: Sequence[int],
    output: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Geometry:
    missing = MOST_SPATIAL - len(window)
    ones, zeros = (1,) * missing, (0,) * missing
    return Geometry(
        input=(*ones, *lengths),
        output=(*ones, *output),
        window=(*ones, *window),
        strides=(*ones, *strides),
        dilations=(*ones, *dilations),
        before=(*zeros, *before),
        after=(*zeros, *after),
    )


def transposed_geometry(node: KernelNode, shape: Shape, window: Sequence[int]) -> Geometry:
    """Work out the geometry of ConvTranspose; pads are taken off the output.

    Raises:
        RunError: attributes don't fit the kernel.
    """
    rank = len(window)
    lengths = shape[2:]
    strides = tuple(node.attr("strides") or (1,) * rank)
    dilations = tuple(node.attr("dilations") or (1,) * rank)
    extra = tuple(node.attr("output_padding") or (0,) * rank)
    pads = tuple(node.attr("pads") or (0,) * 2 * rank)
    wanted = node.attr("output_shape")
    auto = text_attribute(node, "auto_pad", "NOTSET")
    before, after, output = [], [], []
    for axis in range(rank):
        reach = (window[axis] - 1) * dilations[axis] + 1
        full = (lengths[axis] - 1) * strides[axis] + extra[axis] + reach
        front, back = pads[axis], pads[axis + rank]
        target = None
        if wanted is not None:
            target = wanted[-rank:][axis]
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            target = lengths[axis] * strides[axis]
        if target is not None:
            missing = max(full - target, 0)
            # The specification gives an odd element to the front, but for SAME_UPPER.
            front = missing // 2 if auto == "SAME_UPPER" else missing - missing // 2
            back = missing - front
        elif auto == "VALID":
            front = back = 0
        before.append(front)
        after.append(back)
        output.append(target if target is not None else full - front - back)
    return _three(lengths, output, window, strides, dilations, before, after)
