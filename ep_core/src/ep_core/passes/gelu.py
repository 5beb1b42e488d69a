"""Makes one Gelu of its formula, in the exact form (erf) and the approximate one (tanh).

    exact:        0.5 * x * (1 + erf(x / sqrt(2)))
    approximate:  0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))

Source: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", arXiv 1606.08415.
"""

from __future__ import annotations

from math import pi, sqrt

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.passes._match import float_type, inner, plus_constant, product, product_of
from ep_core.passes._schema import version_at
from ep_core.types import TensorType

__all__ = ["PASS"]

_CUBIC = 0.044715


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    if version_at("Gelu", editor.opsets) is None:
        return
    for _, node in editor.find("Erf", "Tanh"):
        source = _source(editor, node)
        root = _root(editor, node, source) if source is not None else None
        if root is None:
            continue
        old = editor.node(root)
        approximate = "none" if node.op_type == "Erf" else "tanh"
        attributes = {"approximate": approximate}
        editor.replace(root, editor.make_node("Gelu", (str(source),), old.outputs, attributes))
        editor.remove_unused(old.inputs)


def _source(editor: GraphEditor, core: Node) -> str | None:
    """The x for which `core` is erf(x / sqrt(2)), or tanh of the cubic polynomial of x."""
    kind = float_type(editor, core.outputs[0])
    if kind is None:
        return None
    argument = product(editor, core.inputs[0], kind.shape)
    if core.op_type == "Erf":
        exact = argument.is_near(sqrt(0.5), kind.dtype) and len(argument.values) == 1
        return argument.values[0] if exact else None
    if not argument.is_near(sqrt(2 / pi), kind.dtype):
        return None
    if len(argument.values) == 1:
        return _cubic(editor, argument.values[0], kind)
    if len(argument.values) == 2:
        for source, rest in (argument.values, argument.values[::-1]):
            if _is_one_plus_square(editor, rest, source, kind):
                return source
    return None


def _cubic(editor: GraphEditor, name: str, kind: TensorType) -> str | None:
    """The x for which `name` is x + 0.044715 * x^3."""
    total = inner(editor, name, "Add")
    if total is None:
        return None
    for source, rest in (total.inputs, total.inputs[::-1]):
        term = product(editor, rest, kind.shape)
        if term.values == (source,) * 3 and term.is_near(_CUBIC, kind.dtype):
            return source
    return None


def _is_one_plus_square(editor: GraphEditor, name: str, source: str, kind: TensorType) -> bool:
    """True if `name` is 1 + 0.044715 * source^2."""
    found = plus_constant(editor, inner(editor, name, "Add"))
    if found is None or found[1] != 1.0:
        return False
    term = product(editor, found[0], kind.shape)
    return term.values == (source,) * 2 and term.is_near(_CUBIC, kind.dtype)


def _root(editor: GraphEditor, core: Node, source: str) -> int | None:
    """The node that completes 0.5 * source * (1 + core); follows the only readers of `core`."""
    kind = float_type(editor, source)
    key = editor.only_reader(core.outputs[0])
    found = plus_constant(editor, editor.node(key)) if key is not None else None
    if kind is None or key is None or found is None or found[1] != 1.0:
        return None
    one_plus = editor.node(key).outputs[0]
    key = editor.only_reader(one_plus)
    while key is not None:
        whole = product_of(editor, editor.node(key), kind.shape)
        if whole is None:
            return None
        if sorted(whole.values) == sorted((source, one_plus)) and whole.is_near(0.5, kind.dtype):
            return key
        key = editor.only_reader(editor.node(key).outputs[0])
    return None


PASS = Pass(
    "GeluFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
    aliases=("FastGeluFusion",),
)
