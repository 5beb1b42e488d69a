"""Integer products that are converted to float32 and scaled get a float32 result themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ep_core.types import DataType
from ep_cpu.native.expression import Expression
from ep_cpu.native.quantised_values import QuantisedValues
from ep_cpu.native.steps import NativeStep, shape_of

__all__ = ["PRODUCTS", "ProductScales"]

PRODUCTS = ("integer_matmul", "integer_conv")
_FLOAT = int(DataType.FLOAT.value)
_INT32 = int(DataType.INT32.value)
_SCALE_A, _SCALE_B = 5, 6


class ProductScales(QuantisedValues):
    """Looks at what follows on integer products."""

    def scale_products(self) -> None:
        """An integer product that is converted to float32 and multiplied by scales."""
        for position, step in self.editor.find(*PRODUCTS):
            if step.attributes["to"] != _INT32:
                continue
            cast = self.editor.reader(step.outputs[0], "cast")
            if cast is None or cast[1].attributes["to"] != _FLOAT:
                continue
            product = self.editor.reader(cast[1].outputs[0], "elementwise")
            if product is None:
                continue
            scales = self._scales(product[1], cast[1].outputs[0], step)
            if scales is None:
                continue
            inputs = list(step.inputs)
            inputs[_SCALE_A], inputs[_SCALE_B] = scales
            merged = replace(
                step,
                inputs=tuple(inputs),
                outputs=product[1].outputs,
                nodes=(*step.nodes, *cast[1].nodes, *product[1].nodes),
            ).with_attributes(to=_FLOAT)
            self.editor.remove(position)
            self.editor.remove(cast[0])
            # The last place, where everything that is read has been made.
            self.editor.replace(product[0], merged)

    def _scales(self, step: NativeStep, value: str, product: NativeStep) -> tuple[str, str] | None:
        """Names of two scales that `value` is multiplied by."""
        columns = self._columns(product)
        expression = step.expression
        assert expression is not None
        factor = self._factor(expression, value)
        results = [shape_of(self.editor.type_of(name)) for name in (value, step.outputs[0])]
        if factor is None or results[0] is None or results[0] != results[1]:
            return None
        if self.length(factor) != 1 and not self._is_per_column(factor, columns):
            return None
        made = self.editor.maker(factor, "elementwise")
        pair = None if made is None else self._pair(made[1])
        if made is not None and pair is not None and self._are_scales(pair, columns):
            self.editor.remove(made[0])
            return pair
        single = self.length(factor) == 1
        return (factor, self.one()) if single else (self.one(), factor)

    def _are_scales(self, pair: tuple[str, str], columns: int | None) -> bool:
        if self.length(pair[0]) != 1:
            return False
        return self.length(pair[1]) == 1 or self._is_per_column(pair[1], columns)

    def _is_per_column(self, name: str, columns: int | None) -> bool:
        shape = self.shape(name)
        return bool(shape) and shape is not None and shape[-1] == columns == self.length(name)

    def _pair(self, step: NativeStep) -> tuple[str, str] | None:
        """The two factors that a step multiplies, the single one first."""
        expression = step.expression
        assert expression is not None
        if len(expression.operations) != 1 or expression.operations[0][0] != "mul":
            return None
        first = expression.inputs[0]
        second = self._factor(expression, first)
        if second is None:
            return None
        return (first, second) if self.length(first) == 1 else (second, first)

    def _factor(self, expression: Expression, value: str) -> str | None:
        """What an expression multiplies `value` by, None for another expression."""
        if len(expression.operations) != 1:
            return None
        code, operands = expression.operations[0]
        if code != "mul":
            return None
        for one, other in (operands, operands[::-1]):
            if one.kind != "input" or expression.inputs[int(one.value)] != value:
                continue
            if other.kind == "constant":
                number = np.array(other.value, np.float32)
                return self.constant(f"{value}\0{len(self.constants)}", number)
            name = expression.inputs[int(other.value)]
            return None if name == value else name
        return None

    def _columns(self, product: NativeStep) -> int | None:
        """Columns of a product that may have a scale each; None for none."""
        shape = self.constants[product.inputs[1]].shape
        if product.kind == "integer_conv":
            return None
        return shape[0 if product.attributes.get("transposed") else 1]
