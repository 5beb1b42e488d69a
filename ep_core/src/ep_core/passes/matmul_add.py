"""Makes one Gemm of a matrix product and the addition of a bias."""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType, Dim, TensorType

__all__ = ["PASS"]

_ALIGNED_BROADCAST_SINCE = 7
_FLOATS = (DataType.FLOAT16, DataType.FLOAT, DataType.DOUBLE)


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("Add"):
        if node.since_version < _ALIGNED_BROADCAST_SINCE:
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            matmul = editor.made_by(product, "MatMul")
            if matmul is not None and editor.used_once(product) and _fits(editor, matmul, bias):
                gemm = editor.make_node("Gemm", (*matmul.inputs, bias), node.outputs)
                editor.replace(key, gemm)
                editor.remove_unused([product])
                break


def _fits(editor: GraphEditor, matmul: Node, bias: str) -> bool:
    """True if both factors are matrices and the bias surely broadcasts into their product."""
    kinds = [editor.type_of(name) for name in (*matmul.inputs, bias)]
    shapes: list[tuple[Dim, ...]] = []
    for kind in kinds:
        if not isinstance(kind, TensorType) or kind.dtype not in _FLOATS or kind.shape is None:
            return False
        shapes.append(kind.shape)
    left, right, added = shapes
    if len(left) != 2 or len(right) != 2 or len(added) > 2:
        return False
    product = (left[0], right[1])
    tail = product[2 - len(added) :]
    return all(
        mine == 1 or (isinstance(mine, int) and mine == theirs)
        for mine, theirs in zip(added, tail, strict=True)
    )


PASS = Pass(
    "MatMulAddFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
