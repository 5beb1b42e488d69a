"""Which operators work on permuted data as well, and how they are written for it.

`order` is the permutation that leads from the new data to the old: old = Transpose(new, order), so
axis `i` of the old data is axis `order[i]` of the new.
"""

from __future__ import annotations

from ep_core.graph import AttributeValue, Node
from ep_core.passes._constants import integers, shape_of
from ep_core.passes._editor import GraphEditor
from ep_core.passes._layout import Permutation

__all__ = ["blind_rank", "data_inputs", "for_permuted"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ONE_OPERAND = _words(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Cos Cosh Elu Erf Exp Floor "
    "Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu "
    "Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu"
)
_WITH_SCALAR_PARAMETERS = frozenset({"Clip", "DequantizeLinear", "QuantizeLinear"})
_BROADCASTING = _words(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"
)
_ALONG_ONE_AXIS = frozenset({"Concat", "Split"})
_ALIGNED_BROADCAST_SINCE = 7


def data_inputs(node: Node) -> tuple[str, ...]:
    """The inputs that are laid out like the output; the others are parameters."""
    if node.op_type in _BROADCASTING or node.op_type == "Concat":
        return node.inputs
    return node.inputs[:1]


def blind_rank(editor: GraphEditor, node: Node) -> int | None:
    """The rank that the node's data have, None if the operator isn't blind or that is unknown."""
    if node.domain != "":
        return None
    shapes = [shape_of(editor, name) for name in node.outputs if name]
    rank = len(shapes[0]) if shapes and shapes[0] is not None else 0
    if rank < 2 or any(shape is None or len(shape) != rank for shape in shapes):
        return None
    if not _is_blind(editor, node, rank):
        return None
    same_rank_only = node.op_type not in _BROADCASTING
    for name in data_inputs(node):
        shape = shape_of(editor, name)
        if shape is None or (len(shape) != rank and same_rank_only):
            return None
        if len(shape) not in (0, rank) and editor.constant(name) is None:
            return None
    return rank


def _is_blind(editor: GraphEditor, node: Node, rank: int) -> bool:
    if node.op_type in _ONE_OPERAND:
        return True
    if node.op_type in _BROADCASTING:
        return node.since_version >= _ALIGNED_BROADCAST_SINCE
    if node.op_type in _WITH_SCALAR_PARAMETERS:
        return all(shape_of(editor, name) == () for name in node.inputs[1:] if name)
    if node.op_type in _ALONG_ONE_AXIS:
        return -rank <= int(node.attributes.get("axis", 0)) < rank
    pads = _pads(editor, node) if node.op_type == "Pad" else None
    return pads is not None and len(pads) == 2 * rank


def _pads(editor: GraphEditor, node: Node) -> tuple[int, ...] | None:
    """Constant pads that count for all axes."""
    if node.since_version < 11 or (len(node.inputs) > 3 and node.inputs[3]):
        return None
    return integers(editor, node.inputs[1])


def for_permuted(editor: GraphEditor, node: Node, order: Permutation) -> Node:
    """The node with its axes and pads as they are for permuted data; inputs and outputs stay."""
    if node.op_type in _ALONG_ONE_AXIS:
        axis = order[int(node.attributes.get("axis", 0))]
        attributes: dict[str, AttributeValue] = {**node.attributes, "axis": axis}
        return node.replace(attributes=attributes)
    if node.op_type == "Pad":
        pads = _pads(editor, node)
        constant = editor.constant(node.inputs[1])
        assert pads is not None
        assert constant is not None
        rank = len(order)
        moved = constant.numpy().copy()
        for old_axis, new_axis in enumerate(order):
            moved[new_axis] = pads[old_axis]
            moved[rank + new_axis] = pads[rank + old_axis]
        name = editor.add_constant(node.inputs[1], moved)
        return node.replace(inputs=(node.inputs[0], name, *node.inputs[2:]))
    return node
