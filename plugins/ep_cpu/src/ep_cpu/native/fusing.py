"""Fewer and larger steps: transposes, elementwise chains and attention become parts of others.

Only what surely holds is used: the native code checks real shapes against what a step assumes and
refuses the run otherwise, which costs that run the whole speed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ep_core.types import DataType, TensorType
from ep_cpu.native.editor import StepEditor
from ep_cpu.native.expression import Expression, constant, given
from ep_cpu.native.patterns import with_functions
from ep_cpu.native.steps import NativeStep, Types, last_length, same_shape, shape_of

__all__ = ["bounds_of", "fuse"]


_PRODUCTS = ("matmul", "conv", "conv_transpose", "depthwise", "integer_matmul", "integer_conv")


def fuse(
    steps: Sequence[NativeStep], kept: Collection[str], constants: Collection[str], types: Types
) -> tuple[NativeStep, ...]:
    """The same computation in fewer steps.

    Args:
        kept: values that are needed outside.
        constants: names of values that never change.
    """
    editor = StepEditor(steps, kept, constants, types)
    _fold_transposes(editor)
    _fuse_attention(editor)
    _join_elementwise(editor)
    for position, step in editor.find("elementwise"):
        assert step.expression is not None
        editor.replace(position, replace(step, expression=with_functions(step.expression)))
    _append_to_products(editor)
    for position, step in editor.find(*_PRODUCTS):
        editor.replace(position, _with_bias_andbounds_of(step, editor))
    return editor.steps


# ---------------------------------------------------------------- transposes around products


def _fold_transposes(editor: StepEditor) -> None:
    for position, step in editor.find("transpose"):
        order = step.attributes["order"]
        reader = editor.reader(step.outputs[0], "matmul")
        if reader is not None and _into_operand(editor, position, step, *reader):
            continue
        maker = editor.maker(step.inputs[0], "matmul")
        if maker is None or order[-1] != len(order) - 1 or "order" in maker[1].attributes:
            continue
        product = maker[1]
        if product.inputs[2] or editor.is_constant(product.inputs[1]):
            continue
        editor.remove(maker[0])
        merged = replace(
            product, outputs=step.outputs, nodes=(*product.nodes, *step.nodes)
        ).with_attributes(order=order)
        editor.replace(position, merged)


def _into_operand(
    editor: StepEditor, position: int, step: NativeStep, reader: int, product: NativeStep
) -> bool:
    order = step.attributes["order"]
    name = step.outputs[0]
    if product.inputs.count(name) != 1 or editor.is_constant(product.inputs[1]):
        return False
    index = product.inputs.index(name)
    attribute = ("a_order", "b_order", "")[index]
    if not attribute or attribute in product.attributes:
        return False
    if attribute == "a_order" and order[-1] != len(order) - 1:
        return False
    inputs = list(product.inputs)
    inputs[index] = step.inputs[0]
    editor.remove(position)
    merged = replace(product, inputs=tuple(inputs), nodes=(*step.nodes, *product.nodes))
    editor.replace(reader, merged.with_attributes(**{attribute: order}))
    return True


# ---------------------------------------------------------------- attention


def _fuse_attention(editor: StepEditor) -> None:
    for position, values in editor.find("matmul"):
        if "a_order" in values.attributes or values.inputs[2]:
            continue
        softmax = editor.maker(values.inputs[0], "softmax")
        if softmax is None or not _is_by_rows(editor, softmax[1]):
            continue
        scores = _find_scores(editor, softmax[1].inputs[0])
        if scores is None:
            continue
        removed, scale, mask, product = scores
        names = (*product.inputs[:2], values.inputs[1])
        orders = {
            "q_order": product.attributes.get("a_order"),
            "k_order": product.attributes.get("b_order"),
            "v_order": values.attributes.get("b_order"),
            "order": values.attributes.get("order"),
        }
        if not _heads_agree(editor, names, [orders[f"{part}_order"] for part in "qkv"]):
            continue
        nodes = [node for at in removed for node in _step_at(editor, at).nodes]
        merged = NativeStep(
            "attention",
            (*names, mask),
            values.outputs,
            {"scale": scale, **{key: order for key, order in orders.items() if order}},
            (*nodes, *softmax[1].nodes, *values.nodes),
        )
        for at in (*removed, softmax[0]):
            editor.remove(at)
        editor.replace(position, merged)


def _is_by_rows(editor: StepEditor, softmax: NativeStep) -> bool:
    shape = shape_of(editor.type_of(softmax.outputs[0]))
    axis = softmax.attributes["axis"]
    is_last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    return is_last and not softmax.attributes["logarithm"]


def _step_at(editor: StepEditor, position: int) -> NativeStep:
    return next(step for at, step in editor.find("matmul", "elementwise") if at == position)


def _find_scores(
    editor: StepEditor, name: str
) -> tuple[tuple[int, ...], float, str, NativeStep] | None:
    """Positions to remove, the scale, the mask or nothing, and the product of Q and K."""
    removed: list[int] = []
    scale = 1.0
    mask = ""
    for _ in range(3):
        product = editor.maker(name, "matmul")
        if product is not None:
            step = product[1]
            if step.inputs[2] or "order" in step.attributes:
                return None
            return (product[0], *reversed(removed)), scale, mask, step
        found = editor.maker(name, "elementwise")
        if found is None:
            return None
        expression = found[1].expression
        assert expression is not None
        if len(expression.operations) != 1:
            return None
        code, operands = expression.operations[0]
        inner = expression.inputs[0]
        if code == "add" and not mask and scale == 1.0 and len(expression.inputs) == 2:
            sides = [expression.inputs[int(operand.value)] for operand in operands]
            # The scores are the side that a step of their shape makes.
            inner = next((side for side in sides if _is_scores(editor, side)), "")
            if not inner or not same_shape(
                editor.type_of(inner), editor.type_of(found[1].outputs[0])
            ):
                return None
            mask = sides[1] if inner == sides[0] else sides[0]
        elif code in ("mul", "div") and len(expression.inputs) == 1 and scale == 1.0:
            left, right = operands
            factor = right if left.kind == "input" else left
            if factor.kind != "constant" or (code == "div" and right.kind != "constant"):
                return None
            scale = 1.0 / factor.value if code == "div" else factor.value
        else:
            return None
        removed.append(found[0])
        name = inner
    return None


def _is_scores(editor: StepEditor, name: str) -> bool:
    return editor.maker(name, "matmul", "elementwise") is not None


def _heads_agree(editor: StepEditor, names: Sequence[str], orders: Sequence[Any]) -> bool:
    heads: list[tuple[Any, ...]] = []
    for name, order in zip(names, orders, strict=True):
        shape = shape_of(editor.type_of(name))
        if shape is None or len(shape) < 2:
            return False
        turned = shape if order is None else tuple(shape[axis] for axis in order)
        heads.append(turned[:-2])
    return heads[0] == heads[1] == heads[2]


# ---------------------------------------------------------------- elementwise


def _join_elementwise(editor: StepEditor) -> None:
    for position, step in editor.find("elementwise"):
        current = step
        changed = True
        while changed:
            changed = False
            assert current.expression is not None
            for name in current.expression.inputs:
                maker = editor.maker(name, "elementwise")
                if maker is None or not same_shape(
                    editor.type_of(name), editor.type_of(current.outputs[0])
                ):
                    continue
                assert maker[1].expression is not None
                joined = current.expression.with_inlined(name, maker[1].expression)
                if not joined.fits():
                    continue
                editor.remove(maker[0])
                current = replace(
                    current, expression=joined, nodes=(*maker[1].nodes, *current.nodes)
                )
                editor.replace(position, current)
                changed = True
                break


# ---------------------------------------------------------------- behind products


def _append_to_products(editor: StepEditor) -> None:
    for position, step in editor.find("elementwise"):
        assert step.expression is not None
        result = step.outputs[0]
        candidates = []
        for name in step.expression.inputs:
            maker = editor.maker(name, *_PRODUCTS)
            if maker is not None and same_shape(editor.type_of(name), editor.type_of(result)):
                candidates.append((maker, name))
        for (at, product), name in sorted(candidates, key=lambda item: -item[0][0]):
            expression = step.expression.with_first(name)
            if not _takes_chain(editor, product, expression):
                continue
            others = expression.inputs[1:]
            if not expression.fits() or not all(
                _goes_along(editor, other, result) for other in others
            ):
                continue
            editor.remove(at)
            merged = replace(
                product,
                outputs=step.outputs,
                nodes=(*product.nodes, *step.nodes),
                expression=expression,
            )
            editor.replace(position, merged)
            break


def _takes_chain(editor: StepEditor, product: NativeStep, expression: Expression) -> bool:
    if product.expression is not None or "order" in product.attributes:
        return False
    if product.kind.startswith("integer"):
        return bool(product.attributes["to"] == DataType.FLOAT.value)
    if product.kind in ("depthwise", "conv_transpose"):
        return True
    if product.kind == "conv":
        return product.attributes["group"] == 1 or bounds_of(expression) is not None
    kinds = [editor.type_of(name) for name in product.inputs[:2]]
    ranks = [len(kind.shape or ()) for kind in kinds if isinstance(kind, TensorType)]
    if "a_order" in product.attributes or len(ranks) != 2 or ranks[1] != 2:
        return False
    return ranks[0] == 2 or editor.is_constant(product.inputs[1])


def _goes_along(editor: StepEditor, name: str, result: str) -> bool:
    """True for an operand of the result's shape, one number, or a vector along the last axis."""
    kind = editor.type_of(name)
    if same_shape(kind, editor.type_of(result)):
        return True
    return _is_number(kind) or _is_vector(kind, last_length(editor.type_of(result)))


def _is_number(kind: Any) -> bool:
    shape = shape_of(kind)
    return shape is not None and all(length == 1 for length in shape)


def _is_vector(kind: Any, length: Any) -> bool:
    shape = shape_of(kind)
    if not shape or not isinstance(length, int) or shape[-1] != length:
        return False
    return all(other == 1 for other in shape[:-1])


def _with_bias_andbounds_of(step: NativeStep, editor: StepEditor) -> NativeStep:
    """The beginning and the end of a chain, as far as the product's kernel does them itself."""
    expression = step.expression
    if expression is None:
        return step
    code, operands = expression.operations[0]
    others = [operand for operand in operands if operand != given(0)]
    if not step.inputs[2] and code == "add" and len(others) == 1 and others[0].kind == "input":
        name = expression.inputs[int(others[0].value)]
        once = expression.uses(given(0)) == 1 and expression.uses(others[0]) == 1
        if once and _is_vector(editor.type_of(name), last_length(editor.type_of(step.outputs[0]))):
            rest = expression.without_first_operation()
            kept = tuple(item for item in expression.inputs if item != name)
            step = replace(step, inputs=(*step.inputs[:2], name, *step.inputs[3:]))
            expression = _renumbered(rest, kept) if rest.operations else None
    bounds = None if expression is None else bounds_of(expression)
    if bounds is None:
        return replace(step, expression=expression)
    return replace(step, expression=None).with_attributes(low=bounds[0], high=bounds[1])


def _renumbered(expression: Expression, inputs: tuple[str, ...]) -> Expression:
    def moved(operand: Any) -> Any:
        if operand.kind != "input":
            return operand
        return given(inputs.index(expression.inputs[int(operand.value)]))

    own = tuple((code, tuple(map(moved, operands))) for code, operands in expression.operations)
    return Expression(inputs, own)


def bounds_of(expression: Expression) -> tuple[float, float] | None:
    """Lower and upper bound of a chain that only bounds."""
    low, high = -math.inf, math.inf
    current = given(0)
    for index, (code, operands) in enumerate(expression.operations):
        if code == "relu" and operands == (current,) and high == math.inf:
            low = max(low, 0.0)
        elif code == "max" and operands[0] == current and operands[1].kind == "constant":
            if high != math.inf:
                return None
            low = max(low, operands[1].value)
        elif code == "min" and operands[0] == current and operands[1].kind == "constant":
            high = operands[1].value
        else:
            return None
        current = expression.result(index)
    return (low, high) if low <= high and constant(low) != constant(math.inf) else None
