"""Elementwise operators whose formula depends on more than one type or on attributes that choose.

Cast, Clip, Where, Pow, Mod, BitShift, IsInf; and those that give back their input.
"""

from __future__ import annotations

from ep_core.types import DataType
from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.elements import ELEMENTS, FLOATS, INTEGERS, NUMBERS
from ep_sdk.device_kernels.kernels.elementwise import (
    dtype_of,
    elementwise_row,
    formula_text,
    make_elementwise,
)
from ep_sdk.device_kernels.launch import TABLE, text_attribute
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["cast_text"]

_ANY = frozenset(ELEMENTS)
_UNSIGNED = frozenset(kind for kind, item in ELEMENTS.items() if item.kind == "uint")


# ---------------------------------------------------------------- casts


def cast_text(source: DataType, target: DataType) -> str:
    """The formula that turns one element type into another."""
    if target is DataType.BOOL:
        return "({0} != 0)"
    return f"(COMPUTED({ELEMENTS[target].code})){{0}}"


def _cast_target(node: KernelNode) -> str | None:
    target = node.attr("to")
    return None if target in _ANY else f"casts to element type {target}"


@elementwise_row("Cast", since=6, types={0: _ANY}, predicate=_cast_target)
def _cast(node: KernelNode) -> Kernel:
    target = DataType(node.attr("to"))
    return make_elementwise(node, cast_text(dtype_of(node, 0), target), target)


@elementwise_row("CastLike", since=15, types={0: _ANY, 1: _ANY})
def _cast_like(node: KernelNode) -> Kernel:
    target = dtype_of(node, 1)
    kernel = make_elementwise(node, cast_text(dtype_of(node, 0), target), target)
    return kernel.reading_only(1)


# ---------------------------------------------------------------- choices


@elementwise_row("Where", since=9, types={"T": _ANY})
def _where(node: KernelNode) -> Kernel:
    return make_elementwise(node, "({0} ? {1} : {2})", dtype_of(node, 1))


@elementwise_row("Clip", since=6, until=6, types={"T": FLOATS})
def _clip_attributes(node: KernelNode) -> Kernel:
    dtype = dtype_of(node, 0)
    low, high = node.attr("min"), node.attr("max")
    text = "{0}"
    values = {}
    if low is not None:
        text = "({0} < {low} ? {low} : {0})"
        values["low"] = low
    if high is not None:
        text = f"SMALLER_OR_NAN({text}, {{high}})"
        values["high"] = high
    return make_elementwise(node, formula_text(text, dtype, **values), dtype)


@elementwise_row("Clip", since=11, types={"T": NUMBERS})
def _clip(node: KernelNode) -> Kernel:
    """The upper bound wins where the bounds cross."""
    has_low, has_high = node.has_input(1), node.has_input(2)
    text = "LARGER_OR_NAN({0}, {1})" if has_low else "{0}"
    if has_high:
        text = f"SMALLER_OR_NAN({text}, {{{2 if has_low else 1}}})"
    return make_elementwise(node, text, dtype_of(node, 0))


# ---------------------------------------------------------------- powers and remainders


def _pow_types(node: KernelNode) -> str | None:
    base, exponent = node.input_dtype(0), node.input_dtype(1)
    if base in INTEGERS and exponent not in INTEGERS:
        return "an integer with an exponent that is none"
    return None


@elementwise_row("Pow", since=7, types={0: NUMBERS, 1: NUMBERS}, predicate=_pow_types)
def _pow(node: KernelNode) -> Kernel:
    base, exponent = dtype_of(node, 0), dtype_of(node, 1)
    code = ELEMENTS[base].code
    if base in INTEGERS:
        # A huge unsigned exponent is even or odd in the same way as its signed reading.
        text = f"power_{code}({{0}}, (long)min((ulong){{1}}, (ulong)LONG_MAX))"
        if exponent not in _UNSIGNED:
            text = f"power_{code}({{0}}, (long){{1}})"
        return make_elementwise(node, text, base)
    if node.constants[1] is not None and node.constants[1].size == 1:
        value = float(node.constants[1].reshape(-1)[0])
        if value == 2.0:
            return make_elementwise(node, "({0} * {0})", base).reading_only(1)
        if value == 0.5:
            return make_elementwise(node, "sqrt({0})", base).reading_only(1)
    return make_elementwise(node, f"pow({{0}}, (COMPUTED({code})){{1}})", base)


def _mod_kind(node: KernelNode) -> str | None:
    if node.input_dtype(0) in FLOATS and not node.attr("fmod", 0):
        return "floats need fmod=1"
    return None


@elementwise_row("Mod", since=10, types={"T": NUMBERS}, predicate=_mod_kind)
def _mod(node: KernelNode) -> Kernel:
    dtype = dtype_of(node, 0)
    if dtype in FLOATS:
        return make_elementwise(node, "fmod({0}, {1})", dtype)
    name = "remainder" if node.attr("fmod", 0) else "modulo"
    return make_elementwise(node, f"{name}_{ELEMENTS[dtype].code}({{0}}, {{1}})", dtype)


@elementwise_row("BitShift", since=11, types={"T": _UNSIGNED})
def _bit_shift(node: KernelNode) -> Kernel:
    """A shift by the width or more leaves nothing."""
    dtype = dtype_of(node, 0)
    sign = "<<" if text_attribute(node, "direction", "LEFT") == "LEFT" else ">>"
    text = f"({{1}} >= {dtype.bits} ? 0 : {{0}} {sign} {{1}})"
    return make_elementwise(node, text, dtype)


@elementwise_row("IsInf", since=10, types={0: FLOATS})
def _is_inf(node: KernelNode) -> Kernel:
    parts = []
    if node.attr("detect_positive", 1):
        parts.append("{0} == INFINITY")
    if node.attr("detect_negative", 1):
        parts.append("{0} == -INFINITY")
    return make_elementwise(node, f"({' || '.join(parts) or '0'})", DataType.BOOL)


# ---------------------------------------------------------------- what gives its input back


@TABLE.kernel("Identity", types={0: _ANY}, view=True)
def _identity(node: KernelNode) -> Kernel:
    return _same


def _not_training(node: KernelNode) -> str | None:
    if node.wants_output(1):
        return "the mask is asked for"
    if node.version >= 12 and node.has_input(2):
        mode = node.constants[2]
        if mode is None or mode.any():
            return "training_mode may be true"
    return None


@TABLE.kernel("Dropout", since=7, types={0: FLOATS, 1: _ANY}, view=True, predicate=_not_training)
def _dropout(node: KernelNode) -> Kernel:
    return _same


def _same(stream: DeviceStream, x: DeviceBuffer, *others: DeviceBuffer | None) -> DeviceBuffer:
    return x.reshaped(x.shape)
