"""Steps on images: convolutions, pools, normalisation by channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ep_compliance.cases.random_graphs.elementwise import is_float, is_number
from ep_compliance.cases.random_graphs.grower import Grower
from ep_compliance.cases.random_graphs.products import product_range
from ep_compliance.cases.random_graphs.steps import step
from ep_compliance.cases.random_graphs.values import Shape, Value, size_of

__all__ = ["Window", "is_image", "window"]


def is_image(value: Value) -> bool:
    """Batch, channels, one or two lengths; nothing of it is empty."""
    return value.rank in (3, 4) and min(value.shape) > 0


@dataclass(frozen=True)
class Window:
    """A window that slides over the lengths of an image.

    Attributes:
        kernel: its lengths.
        result: how many places it takes, by axis.
        attributes: of the node, without `kernel_shape`.
    """

    kernel: Shape
    result: Shape
    attributes: dict[str, Any]


def window(grower: Grower, lengths: Shape, *, dilates: bool) -> Window | None:
    """A random window; None if it finds no room."""
    draws = grower.draws
    kernel = tuple(draws.between(1, min(3, length)) for length in lengths)
    strides = [draws.choose([1, 1, 2]) for _ in lengths]
    dilations = [draws.choose([1, 1, 1, 2]) if dilates else 1 for _ in lengths]
    attributes: dict[str, Any] = {}
    if draws.chance(15) and max(dilations) == 1:
        attributes["auto_pad"] = draws.choose(["SAME_UPPER", "SAME_LOWER"])
        result = tuple(-(-length // s) for length, s in zip(lengths, strides, strict=True))
    else:
        # Padding stays below the kernel, so that every window sees something.
        most = [int(k > 1 and d == 1) for k, d in zip(kernel, dilations, strict=True)]
        pads = [draws.choose([0, 0, 1]) * allowed for allowed in (*most, *most)]
        reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        room = [
            length + before + after - far - 1
            for length, before, after, far in zip(
                lengths, pads[: len(lengths)], pads[len(lengths) :], reach, strict=True
            )
        ]
        if min(room) < 0:
            return None
        result = tuple(free // s + 1 for free, s in zip(room, strides, strict=True))
        if any(pads) or draws.chance(30):
            attributes["pads"] = pads
    if max(strides) > 1 or draws.chance(30):
        attributes["strides"] = strides
    if max(dilations) > 1:
        attributes["dilations"] = dilations
    return Window(kernel, result, attributes)


@step("Conv")
def conv(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and is_image(v))
    if x is None:
        return False
    place = window(grower, x.shape[2:], dilates=True)
    if place is None:
        return False
    channels = x.shape[1]
    groups = grower.draws.choose([n for n in (1, 1, 1, 2, channels) if channels % n == 0])
    # As many channels as before, more often than not, so that residuals meet.
    wanted = channels if grower.draws.chance(60) else groups * grower.draws.between(1, 3)
    weights = grower.fresh((wanted, channels // groups, *place.kernel), x.dtype)
    inputs = [x, weights]
    low, high, grain = product_range(x, weights, size_of(weights.shape[1:]))
    low = min(low, 0.0)
    if grower.draws.chance(60):
        bias = grower.fresh((wanted,), x.dtype)
        inputs.append(bias)
        low, high, grain = low + bias.low, high + bias.high, min(grain, bias.grain)
    attributes = dict(place.attributes)
    if groups > 1:
        attributes["group"] = groups
    if grower.draws.chance(50):
        attributes["kernel_shape"] = place.kernel
    result = grower.draft((x.shape[0], wanted, *place.result), x.dtype, low, high, grain)
    return grower.emit(op_type, inputs, result, **attributes)


@step("AveragePool", "MaxPool")
def pool(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_number(v) and is_image(v))
    if x is None:
        return False
    place = window(grower, x.shape[2:], dilates=op_type == "MaxPool")
    if place is None:
        return False
    attributes = {**place.attributes, "kernel_shape": place.kernel}
    low, high, grain = x.low, x.high, x.grain
    if op_type == "AveragePool":
        low, high, grain = min(low, 0.0), max(high, 0.0), 0.0
        if grower.draws.chance(40):
            attributes["count_include_pad"] = 1
    result = grower.draft((*x.shape[:2], *place.result), x.dtype, low, high, grain)
    spare = int(op_type == "MaxPool" and grower.draws.chance(15))
    return grower.emit(op_type, [x], result, spare=spare, **attributes)


@step("GlobalAveragePool", "GlobalMaxPool")
def global_pool(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and is_image(v))
    if x is None:
        return False
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    grain = x.grain if op_type == "GlobalMaxPool" else 0.0
    return grower.emit(op_type, [x], grower.draft(shape, x.dtype, x.low, x.high, grain))


@step("BatchNormalization")
def batch_normalization(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and v.rank > 1 and min(v.shape) > 0)
    if x is None:
        return False
    channels = (x.shape[1],)
    scale, bias, mean = (grower.constant(channels, x.dtype) for _ in range(3))
    variance = grower.constant(channels, x.dtype, positive=True)
    # The variance is 0.5 at least.
    most = 1.5 * scale.bound * (x.bound + mean.bound) + bias.bound
    result = grower.draft(x.shape, x.dtype, -most, most)
    attributes: dict[str, Any] = {"epsilon": 0.125} if grower.draws.chance(30) else {}
    return grower.emit(op_type, [x, scale, bias, mean, variance], result, **attributes)


@step("InstanceNormalization")
def instance_normalization(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and is_image(v))
    if x is None:
        return False
    scale, bias = (grower.constant((x.shape[1],), x.dtype) for _ in range(2))
    most = scale.bound * size_of(x.shape[2:]) + bias.bound
    result = grower.draft(x.shape, x.dtype, -most, most)
    return grower.emit(op_type, [x, scale, bias], result, epsilon=0.0625)


@step("GroupNormalization")
def group_normalization(grower: Grower, op_type: str) -> bool:
    x = grower.pick(lambda v: is_float(v) and is_image(v))
    if x is None:
        return False
    channels = x.shape[1]
    groups = grower.draws.choose([n for n in range(1, channels + 1) if channels % n == 0])
    scale, bias = (grower.constant((channels,), x.dtype) for _ in range(2))
    most = scale.bound * size_of(x.shape[1:]) + bias.bound
    result = grower.draft(x.shape, x.dtype, -most, most)
    return grower.emit(op_type, [x, scale, bias], result, epsilon=0.0625, num_groups=groups)
