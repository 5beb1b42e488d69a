"""Conv, ConvTranspose and ConvInteger."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_opencl.convolver import Convolver, Shifts, int32s
from ep_opencl.elements import ELEMENTS, FLOATS
from ep_opencl.epilogue import Epilogue
from ep_opencl.launch import TABLE, Bench
from ep_opencl.memory import OpenCLBuffer
from ep_opencl.product import Tail
from ep_opencl.stream import OpenCLStream
from ep_opencl.windows import spatial_rank, transposed_geometry, window_geometry
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.shapes import Shape

__all__: list[str] = []

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


def _bias_tail(node: KernelNode, dtype: DataType) -> Tail:
    if not node.has_input(2):
        return Tail("value")
    code = ELEMENTS[dtype].code
    return Tail(
        f"value + LOAD({code}, bias, CHANNEL)", f", __global const STORED({code}) *restrict bias"
    )


class _Conv:
    """Convolves floats; meets `TakesEpilogue`."""

    axis = 1

    def __init__(self, node: KernelNode, epilogue: Epilogue | None = None, inputs: int = 3) -> None:
        dtype = node.input_dtype(0)
        assert dtype is not None
        self.gives = dtype
        self._node = node
        self._epilogue = epilogue
        self._inputs = inputs
        self._groups = node.attr("group", 1)
        tail = _bias_tail(node, dtype)
        result = dtype
        if epilogue is not None:
            tail = epilogue.added_to(tail, "CHANNEL")
            result = epilogue.result
        self._convolver = Convolver(Bench(node), dtype, dtype, result, dtype, tail)

    def with_epilogue(self, epilogue: Epilogue, inputs: int) -> _Conv:
        """See `TakesEpilogue`."""
        return _Conv(self._node, epilogue, inputs)

    def __call__(
        self,
        stream: OpenCLStream,
        x: OpenCLBuffer,
        weight: OpenCLBuffer,
        *others: OpenCLBuffer | None,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        geometry = window_geometry(self._node, x.shape, weight.shape[2:])
        own, extras = others[: self._inputs - 2], others[self._inputs - 2 :]
        arguments = tuple(item.cl_buffer for item in own if item is not None)
        if self._epilogue is not None:
            shape = geometry.result_shape(x.shape, weight.shape[0])
            arguments += self._epilogue.arguments(extras, shape)
        return self._convolver(stream, x, weight, geometry, self._groups, out, arguments)


@TABLE.kernel("Conv", types={"T": FLOATS}, writes_out=True, predicate=spatial_rank)
def _conv(node: KernelNode) -> Kernel:
    return _Conv(node)


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
        stream: OpenCLStream,
        x: OpenCLBuffer,
        weight: OpenCLBuffer,
        bias: OpenCLBuffer | None = None,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
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
                x.cl_buffer,
                weight.cl_buffer,
                y.cl_buffer,
                *int32s(channels // groups, filters, groups),
                *geometry.arguments(),
            ]
            if bias is not None:
                arguments.append(bias.cl_buffer)
            kernel.launch(stream.queue, (width, height, images * filters * depth), None, arguments)
        return y

    return conv_transpose


@TABLE.kernel(
    "ConvInteger", since=10, types={0: _BYTES, 1: _BYTES}, writes_out=True, predicate=spatial_rank
)
def _conv_integer(node: KernelNode) -> Kernel:
    bench = Bench(node)
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
    convolver = Convolver(
        bench, x_type, w_type, DataType.INT32, DataType.INT32, Tail("value"), shifts_of
    )
    groups = node.attr("group", 1)

    def conv(
        stream: OpenCLStream,
        x: OpenCLBuffer,
        weight: OpenCLBuffer,
        x_zero: OpenCLBuffer | None = None,
        w_zero: OpenCLBuffer | None = None,
        *,
        out: OpenCLBuffer | None = None,
    ) -> OpenCLBuffer:
        geometry = window_geometry(node, x.shape, weight.shape[2:])
        shifts: list[Any] = []
        if x_zero is not None:
            shifts.append(x_zero.cl_buffer)
        if w_zero is not None:
            step = 1 if math.prod(w_zero.shape) > 1 else 0
            shifts += [w_zero.cl_buffer, np.int32(step)]
        return convolver(stream, x, weight, geometry, groups, out, (), shifts)

    return conv
