"""What operators take on processors where it is far from what the device's declared speed says.

The declared speed is right for large products. Kernels that compute one element of the result at a
time, or lay their input out anew, are slower. The parts below were measured on two cores of an
AMD EPYC 9004 with Intel's driver 2026.2, the machine busy, as the best of five runs of each node of
a text detector and of ResNet-50.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ep_core.types import DeviceSpeed, TensorType, ValueType
from ep_sdk.device_kernels.convolver import is_narrow
from ep_sdk.kernels import KernelNode

__all__ = ["processor_seconds"]

_NARROW = 0.2
"""Convolutions of few channels in a group: 10 to 12 GFLOP/s with steps of 1, of 51 declared."""
_NARROW_WITH_STEPS = 0.05
"""The same with longer steps: 2 to 4 GFLOP/s."""
_TRANSPOSED = 0.4
"""24 GFLOP/s."""
_POOLED = 0.03
"""1.5 billion elements under windows in a second."""

Shape = tuple[int, ...]


def processor_seconds(node: KernelNode, speed: DeviceSpeed) -> float | None:
    """Seconds of a node, None where the declared speed is as good, or lengths aren't known."""
    price = _PRICES.get(node.node.op_type)
    result = _shape(node.output_types[:1])
    data = _shape(node.input_types[:1])
    if price is None or result is None or data is None:
        return None
    seconds = price(node, data, result, speed)
    return None if seconds is None else speed.operator_seconds + seconds


def _convolution(node: KernelNode, data: Shape, result: Shape, speed: DeviceSpeed) -> float | None:
    weight = _shape(node.input_types[1:2])
    if weight is None:
        return None
    groups = node.attr("group", 1)
    area = math.prod(weight[2:])
    flops = 2.0 * math.prod(result) * weight[1] * area
    has_steps = any(step > 1 for step in node.attr("strides", ()))
    if is_narrow(weight[0] // max(groups, 1), weight[1]):
        part = _NARROW_WITH_STEPS if has_steps else _NARROW
        return flops / (part * speed.flops_per_second)
    if not has_steps or area == 1:
        return None
    # The input is unfolded: each place of the window is written once and read once.
    unfolded = 4.0 * data[0] * data[1] * area * math.prod(result[2:])
    return flops / speed.flops_per_second + 2 * unfolded / speed.bytes_per_second


def _transposed(node: KernelNode, data: Shape, _: Shape, speed: DeviceSpeed) -> float | None:
    weight = _shape(node.input_types[1:2])
    if weight is None:
        return None
    flops = 2.0 * math.prod(data) * math.prod(weight[1:])
    return flops / (_TRANSPOSED * speed.flops_per_second)


def _pooled(node: KernelNode, _: Shape, result: Shape, speed: DeviceSpeed) -> float:
    covered: int = math.prod(result) * math.prod(node.attr("kernel_shape", ()))
    return covered / (_POOLED * speed.flops_per_second)


_PRICES: Mapping[str, Callable[[KernelNode, Shape, Shape, DeviceSpeed], float | None]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "AveragePool": _pooled,
    "LpPool": _pooled,
    "MaxPool": _pooled,
}


def _shape(kinds: tuple[ValueType | None, ...]) -> Shape | None:
    (kind,) = kinds or (None,)
    return kind.static_shape if isinstance(kind, TensorType) else None
