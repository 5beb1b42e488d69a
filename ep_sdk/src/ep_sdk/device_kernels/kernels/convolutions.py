"""Conv, ConvTranspose and ConvInteger."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.convolution import Shifts
from ep_sdk.device_kernels.convolver import Convolver, int32s
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS
from ep_sdk.device_kernels.epilogue import Epilogue
from ep_sdk.device_kernels.launch import TABLE, Bench
from ep_sdk.device_kernels.product import Tail
from ep_sdk.device_kernels.windows import spatial_rank, transposed_geometry, window_geometry
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__ = ["ArgumentsOf", "ConvolutionKernel", "given_buffers"]

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def _bias_tail(node: KernelNode, dtype: DataType) -> Tail:
    if not node.has_input(2):
        return Tail("value")
    code = ELEMENTS[dtype].code
    return Tail(
        f"value + LOAD({code}, bias, CHANNEL)", f", __global const STORED({code}) *restrict bias"
    )


ArgumentsOf = Callable[[Sequence[DeviceBuffer | None]], tuple[Sequence[Any], Sequence[Any]]]
"""From a node's inputs to the arguments of a convolution's tail and of its shifts."""


class ConvolutionKernel:
    """A kernel around a `Convolver`; meets `TakesEpilogue`.

    Args:
        node: the node.
        types: of the input, the weights, the result and the sums.
        tail: what becomes of sums.
        shifts: what is added to operands.
        arguments_of: see there; it gets all inputs of the node.
        weight: which input the weights are.
    """

    axis = 1

    def __init__(
        self,
        node: KernelNode,
        types: tuple[DataType, DataType, DataType, DataType],
        tail: Tail,
        shifts: Shifts | None,
        arguments_of: ArgumentsOf,
        weight: int = 1,
    ) -> None:
        self.gives = types[2]
        self._node = node
        self._bench = Bench(node)
        self._types = types
        self._tail = tail
        self._shifts = shifts
        self._arguments_of = arguments_of
        self._weight = weight
        self._epilogue: Epilogue | None = None
        self._inputs = len(node.node.inputs)
        self._groups = node.attr("group", 1)
        self._convolver = Convolver(self._bench, *types, tail, shifts)

    def with_epilogue(self, epilogue: Epilogue, inputs: int) -> ConvolutionKernel:
        """See `TakesEpilogue`."""
        other = copy.copy(self)
        other._epilogue = epilogue
        other._inputs = inputs
        x, weight, _, total = self._types
        tail = epilogue.added_to(self._tail, "CHANNEL")
        types = (x, weight, epilogue.result, total)
        other._convolver = Convolver(self._bench, *types, tail, self._shifts)
        return other

    def __call__(
        self,
        stream: DeviceStream,
        *inputs: DeviceBuffer | None,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        x, weight = inputs[0], inputs[self._weight]
        assert x is not None
        assert weight is not None
        geometry = window_geometry(self._node, x.shape, weight.shape[2:])
        own, extras = inputs[: self._inputs], inputs[self._inputs :]
        arguments, shifts = self._arguments_of(own)
        if self._epilogue is not None:
            shape = geometry.result_shape(x.shape, weight.shape[0])
            arguments = (*arguments, *self._epilogue.arguments(extras, shape))
        return self._convolver(stream, x, weight, geometry, self._groups, out, arguments, shifts)


def given_buffers(buffers: Sequence[DeviceBuffer | None]) -> tuple[Any, ...]:
    """Kernel arguments for those that are there."""
    return tuple(item.handle for item in buffers if item is not None)


@TABLE.kernel("Conv", types={"T": FLOATS}, writes_out=True, predicate=spatial_rank)
def _conv(node: KernelNode) -> Kernel:
    dtype = node.input_dtype(0)
    assert dtype is not None
    tail = _bias_tail(node, dtype)
    return ConvolutionKernel(
        node, (dtype,) * 4, tail, None, lambda inputs: (given_buffers(inputs[2:]), ())
    )


@TABLE.kernel("ConvTranspose", types={"T": FLOATS}, writes_out=True, predicate=spatial_rank)
def _conv_transpose(node: KernelNode) -> Kernel:
    bench = Bench(node)
    dtype = node.input_dtype(0)
    assert dtype is not None
    groups = node.attr("group", 1)
    tail = _bias_tail(node, dtype)
    code = ELEMENTS[dtype].code
    defines: dict[str, object] = {
        "T": code,
        "TW": code,
        "TC": code,
        "NUMBER": "double" if dtype is DataType.DOUBLE else "float",
        "X_SHIFT": "",
        "SHIFT_PARAMETERS": "",
        "TAIL_PARAMETERS": tail.parameters,
        "TAIL(value, m, at)": f"({tail.text.replace('CHANNEL', 'm')})",
    }

    def conv_transpose(
        stream: DeviceStream,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        bias: DeviceBuffer | None = None,
        *,
        out: DeviceBuffer | None = None,
    ) -> DeviceBuffer:
        geometry = transposed_geometry(node, x.shape, weight.shape[2:])
        images, channels = x.shape[:2]
        if weight.shape[0] != channels or channels % groups:
            raise RunError("channels don't fit the weights", got=(x.shape, weight.shape, groups))
        filters = weight.shape[1] * groups
        shape: Shape = (images, filters, *geometry.output[3 - (len(x.shape) - 2) :])
        if min(shape) < 0:
            raise RunError("pads take away more than there is", got=shape)
        with bench.writing(stream, shape, dtype, out) as y:
            kernel = bench.kernel("windows.cl", "convolve_transposed", defines)
            depth, height, width = geometry.output
            arguments = [
                x.handle,
                weight.handle,
                y.handle,
                *int32s(channels // groups, filters, groups),
                *geometry.arguments(),
            ]
            if bias is not None:
                arguments.append(bias.handle)
            step = geometry.strides[2]
            size = (-(-width // step), height, images * filters * depth * step)
            kernel.launch(stream, size, None, arguments)
        return y

    return conv_transpose


@TABLE.kernel(
    "ConvInteger", since=10, types={0: _BYTES, 1: _BYTES}, writes_out=True, predicate=spatial_rank
)
def _conv_integer(node: KernelNode) -> Kernel:
    x_type, w_type = node.input_dtype(0), node.input_dtype(1)
    assert x_type is not None
    assert w_type is not None
    parameters = ""
    x_shift = weight_shift = ""
    if node.has_input(2):
        code = ELEMENTS[x_type].code
        parameters += f", __global const STORED({code}) *restrict x_zero"
        x_shift = f"- (int)LOAD({code}, x_zero, 0)"
    if node.has_input(3):
        code = ELEMENTS[w_type].code
        parameters += f", __global const STORED({code}) *restrict w_zero, const int w_zero_step"
        weight_shift = f"- (int)LOAD({code}, w_zero, CHANNEL * w_zero_step)"
    shifts_of = Shifts(x_shift, weight_shift, parameters)
    int32 = DataType.INT32

    def arguments_of(
        inputs: Sequence[DeviceBuffer | None],
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        x_zero, w_zero = (*inputs[2:], None, None)[:2]
        found: list[Any] = [] if x_zero is None else [x_zero.handle]
        if w_zero is not None:
            found += [w_zero.handle, np.int32(math.prod(w_zero.shape) > 1)]
        return (), found

    return ConvolutionKernel(
        node, (x_type, w_type, int32, int32), Tail("value"), shifts_of, arguments_of
    )
