"""Finds functions in expressions that exporters write out as several operations."""

from __future__ import annotations

import math
from typing import NamedTuple

from ep_cpu.native.expression import Expression, Operand

__all__ = ["with_functions"]

_ROUNDED = 1e-6


class _Product(NamedTuple):
    """A number times operands that are no products themselves, in a fixed order."""

    factor: float
    atoms: tuple[Operand, ...]


def with_functions(expression: Expression) -> Expression:
    """The same with `gelu` and `silu` in place of what they are made of."""
    operations = list(expression.operations)
    products: list[_Product] = []
    for index, (code, operands) in enumerate(operations):
        product = _product(code, operands, products) or _Product(1.0, (expression.result(index),))
        products.append(product)
        if len(product.atoms) != 2:
            continue
        for inner, outer in (product.atoms, product.atoms[::-1]):
            if outer.kind != "result":
                continue
            if _is(product.factor, 0.5) and _is_one_plus_erf(operations, products, inner, outer):
                operations[index] = ("gelu", (inner,))
            elif _is(product.factor, 1.0) and operations[int(outer.value)] == ("sigmoid", (inner,)):
                operations[index] = ("silu", (inner,))
    return Expression(expression.inputs, tuple(operations)).without_unused()


def _product(code: str, operands: tuple[Operand, ...], products: list[_Product]) -> _Product | None:
    """What a multiplication, or a division by a number, comes to."""
    if code == "div" and operands[1].kind == "constant" and operands[1].value:
        left = _of(operands[0], products)
        return _Product(left.factor / operands[1].value, left.atoms)
    if code != "mul":
        return None
    left, right = (_of(operand, products) for operand in operands)
    atoms = sorted((*left.atoms, *right.atoms), key=lambda atom: (atom.kind, atom.value))
    return _Product(left.factor * right.factor, tuple(atoms))


def _of(operand: Operand, products: list[_Product]) -> _Product:
    if operand.kind == "constant":
        return _Product(operand.value, ())
    if operand.kind == "result":
        return products[int(operand.value)]
    return _Product(1.0, (operand,))


def _is_one_plus_erf(
    operations: list[tuple[str, tuple[Operand, ...]]],
    products: list[_Product],
    inner: Operand,
    outer: Operand,
) -> bool:
    """True if `outer` is 1 + erf(inner / sqrt 2)."""
    code, operands = operations[int(outer.value)]
    if code != "add":
        return False
    for one, error in (operands, operands[::-1]):
        if one != Operand("constant", 1.0) or error.kind != "result":
            continue
        inside, (argument, *_) = operations[int(error.value)]
        product = _of(argument, products)
        if inside == "erf" and product.atoms == (inner,):
            return _is(product.factor, math.sqrt(0.5))
    return False


def _is(number: float, wanted: float) -> bool:
    return abs(number - wanted) <= _ROUNDED * wanted
