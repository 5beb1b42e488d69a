"""Groups of operators around quantised values become products of 8-bit integers.

Models write a quantised operator as DequantizeLinear, the operator in float32 and QuantizeLinear,
or as an integer product whose result is converted and scaled. What comes of it here has the same
result, up to the rounding of sums in float32, which integers don't need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ep_core.graph import Initializer
from ep_core.types import DataType
from ep_cpu.native.fusing import bounds_of
from ep_cpu.native.product_scales import PRODUCTS, ProductScales
from ep_cpu.native.quantising import BYTES, INPUTS
from ep_cpu.native.steps import NativeStep, Types, shape_of

__all__ = ["Grouped", "group"]

_FLOAT = int(DataType.FLOAT.value)
_MOVING = ("reshape", "flatten", "transpose", "squeeze", "unsqueeze", "identity", "pool")

_BIAS, _SCALE, _ZERO = 2, 7, 8


@dataclass(frozen=True)
class Grouped:
    """Steps with groups in place of what they are made of.

    Attributes:
        constants: those that came in and those that are new.
    """

    steps: tuple[NativeStep, ...]
    constants: Mapping[str, Initializer]


def group(
    steps: Sequence[NativeStep],
    kept: Collection[str],
    constants: Mapping[str, Initializer],
    types: Types,
) -> Grouped:
    """The same computation with fewer conversions; unchanged where nothing is quantised.

    Args:
        kept: values that are needed outside.
    """
    kinds = {step.kind for step in steps}
    if not kinds & {"dequantise", "quantise", *PRODUCTS}:
        return Grouped(tuple(steps), constants)
    grouper = _Grouper(steps, kept, constants, types)
    grouper.multiply_integers()
    grouper.scale_products()
    grouper.round_products()
    grouper.add_bytes()
    grouper.move_bytes()
    grouper.drop_unused()
    grouper.fold_weights()
    return Grouped(grouper.editor.steps, grouper.constants)


class _Grouper(ProductScales):
    # ------------------------------------------------------------ products

    def multiply_integers(self) -> None:
        """Products of two dequantised operands, the second constant."""
        for position, step in self.editor.find("matmul", "conv"):
            left = self.editor.source(step.inputs[0], "dequantise")
            right = self.editor.source(step.inputs[1], "dequantise")
            if left is None or right is None or step.expression is not None:
                continue
            merged = self._integer_product(step, left[1], right[1])
            if merged is not None:
                self.editor.replace(position, merged)

    def _integer_product(
        self, step: NativeStep, left: NativeStep, right: NativeStep
    ) -> NativeStep | None:
        weights = self.constants.get(right.inputs[0])
        if weights is None or weights.dtype not in BYTES or not self.is_single(left):
            return None
        if self.dtype(left.inputs[0]) not in BYTES:
            return None
        if step.kind == "conv":
            attributes = {key: value for key, value in step.attributes.items() if key != "group"}
            fits = step.attributes["group"] == 1
            filters = 0
        else:
            order = step.attributes.get("b_order")
            fits = len(weights.shape) == 2 and order in (None, [1, 0])
            fits = fits and set(step.attributes) <= {"b_order"}
            filters = 1 if order is None else 0
            attributes = {} if order is None else {"transposed": 1}
        if not fits or 0 in weights.shape or not self.has_scales(right, filters):
            return None
        bias = self._bias(step.inputs[_BIAS], weights.shape[filters])
        if bias is None:
            return None
        return NativeStep(
            f"integer_{step.kind}",
            (
                *(left.inputs[0], weights.name, bias),
                *(left.inputs[2], right.inputs[2], left.inputs[1], right.inputs[1]),
                *("", ""),
            ),
            step.outputs,
            {**attributes, "to": _FLOAT},
            step.nodes,
        )

    def _bias(self, name: str, length: int) -> str | None:
        """The bias as a constant of float32; None where it can't be one."""
        if not name:
            return ""
        source = self.editor.source(name, "dequantise")
        if source is not None and name not in self.constants:
            value = self.dequantised(source[1])
            if value is None or value.size != length:
                return None
            return self.constant(name + "\0bias", value)
        bias = self.constants.get(name)
        fits = (
            bias is not None and bias.dtype is DataType.FLOAT and int(np.prod(bias.shape)) == length
        )
        return name if fits else None

    # ------------------------------------------------------------ 8-bit results

    def round_products(self) -> None:
        """A product in float32 that is bounded, and quantised."""
        for position, step in self.editor.find("quantise"):
            if not self.is_single(step):
                continue
            name, removed, bounds = self._behind_bounds(step.inputs[0])
            made = self.editor.maker(name, *PRODUCTS)
            if made is None or made[1].attributes["to"] != _FLOAT:
                continue
            inputs = list(made[1].inputs)
            inputs[_SCALE], inputs[_ZERO] = step.inputs[1:3]
            merged = replace(
                made[1],
                inputs=tuple(inputs),
                outputs=step.outputs,
                nodes=(*made[1].nodes, *step.nodes),
            ).with_attributes(to=step.attributes["to"], **_named(bounds))
            for at in (*removed, made[0]):
                self.editor.remove(at)
            self.editor.replace(position, merged)

    def add_bytes(self) -> None:
        """A sum of two dequantised tensors that is bounded, and quantised."""
        for position, step in self.editor.find("quantise"):
            if not self.is_single(step):
                continue
            name, removed, bounds = self._behind_bounds(step.inputs[0])
            made = self.editor.maker(name, "elementwise")
            if made is None:
                continue
            pair = self._dequantised_pair(made[1])
            if pair is None:
                continue
            for at in (*removed, made[0]):
                self.editor.remove(at)
            nodes = (*made[1].nodes, *step.nodes)
            if self._beside(position, step, pair, bounds, nodes):
                continue
            inputs = (*pair[0].inputs, *pair[1].inputs, *step.inputs[1:3])
            attributes = {"to": step.attributes["to"], **_named(bounds)}
            self.editor.replace(
                position, NativeStep("add_bytes", inputs, step.outputs, attributes, nodes)
            )

    def _dequantised_pair(self, step: NativeStep) -> tuple[NativeStep, NativeStep] | None:
        expression = step.expression
        assert expression is not None
        if len(expression.operations) != 1 or expression.operations[0][0] != "add":
            return None
        if len(expression.inputs) != 2:
            return None
        found: list[NativeStep] = []
        for name in expression.inputs:
            source = self.editor.source(name, "dequantise")
            if source is None or not self.is_single(source[1]):
                return None
            if self.dtype(source[1].inputs[0]) not in BYTES:
                return None
            found.append(source[1])
        shapes = [shape_of(self.editor.type_of(one.inputs[0])) for one in found]
        return None if shapes[0] is None or shapes[0] != shapes[1] else (found[0], found[1])

    def _beside(
        self,
        position: int,
        step: NativeStep,
        pair: tuple[NativeStep, NativeStep],
        bounds: tuple[float, float] | None,
        nodes: tuple[Any, ...],
    ) -> bool:
        """Add the other operand where the product that makes one of them is rounded."""
        for own, other in (pair, pair[::-1]):
            made = self.editor.source(own.inputs[0], *PRODUCTS)
            if made is None or own.inputs[0] in self.kept or other.inputs[0] == own.inputs[0]:
                continue
            product = made[1]
            if product.attributes["to"] == _FLOAT or len(product.inputs) != INPUTS:
                continue
            readers = self.editor.readers_of(own.inputs[0])
            if len(readers) != 1 or self.editor.readers_of(own.outputs[0]):
                continue
            if own.outputs[0] in self.kept:
                continue
            attributes = {
                "first": product.attributes["to"],
                "to": step.attributes["to"],
                "beside": 1,
                **_named(bounds, "last_"),
            }
            inputs = (
                *product.inputs,
                *(other.inputs[0], other.inputs[1], other.inputs[2]),
                *step.inputs[1:3],
            )
            merged = replace(
                product, inputs=inputs, outputs=step.outputs, nodes=(*product.nodes, *nodes)
            ).with_attributes(**attributes)
            self.editor.remove(made[0])
            self.editor.remove(readers[0])
            self.editor.replace(position, merged)
            return True
        return False

    def _behind_bounds(self, name: str) -> tuple[str, tuple[int, ...], tuple[float, float] | None]:
        """What a value is before it is bounded, steps that bound it, and the bounds."""
        made = self.editor.maker(name, "elementwise")
        if made is None:
            return name, (), None
        expression = made[1].expression
        assert expression is not None
        bounds = bounds_of(expression) if len(expression.inputs) == 1 else None
        if bounds is None:
            return name, (), None
        return expression.inputs[0], (made[0],), bounds

    # ------------------------------------------------------------ moving, and what is left

    def move_bytes(self) -> None:
        """Elements that are dequantised, moved, and quantised the same way again."""
        for position, step in self.editor.find("quantise"):
            made = self.editor.maker(step.inputs[0], *_MOVING)
            if made is None or not self.is_single(step):
                continue
            moving = made[1]
            source = self.editor.source(moving.inputs[0], "dequantise")
            if source is None or not self.is_single(source[1]):
                continue
            if not self.is_same(source[1], step) or not moving.attributes.get("largest", 1):
                continue
            kind = "pool_bytes" if moving.kind == "pool" else moving.kind
            attributes = {k: v for k, v in moving.attributes.items() if k != "largest"}
            merged = replace(
                moving,
                kind=kind,
                inputs=(source[1].inputs[0], *moving.inputs[1:]),
                outputs=step.outputs,
                attributes=attributes,
                nodes=(*moving.nodes, *step.nodes),
            )
            self.editor.remove(made[0])
            self.editor.replace(position, merged)

    def drop_unused(self) -> None:
        """Conversions whose results nobody reads any more."""
        for position, step in self.editor.find("dequantise"):
            name = step.outputs[0]
            if name not in self.kept and not self.editor.readers_of(name):
                self.editor.remove(position)

    def fold_weights(self) -> None:
        """Constants in float32 for products that stay in float32."""
        for position, step in self.editor.find("dequantise"):
            value = self.dequantised(step)
            if value is None:
                continue
            name = step.outputs[0]
            if name not in self.kept:
                self.constant(name, value)
                self.editor.remove(position)
                continue
            self.editor.rename_reads(name, self.constant(name + "\0folded", value))


def _named(bounds: tuple[float, float] | None, prefix: str = "") -> dict[str, float]:
    if bounds is None:
        return {}
    return {f"{prefix}low": float(bounds[0]), f"{prefix}high": float(bounds[1])}
