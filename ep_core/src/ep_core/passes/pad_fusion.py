"""Moves padding with zeros into the `pads` of the convolution or average pool that reads it.

Not into MaxPool: its own padding never wins the maximum, while a zero may.
"""

from __future__ import annotations

from ep_core.graph import Node
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._constants import integers, integers_at, scalar, shape_of
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor

__all__ = ["PASS"]


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    for key, node in editor.find("AveragePool", "Conv"):
        source = node.inputs[0]
        pad = editor.made_by(source, "Pad")
        if pad is None or not editor.used_once(source) or not _pads_with_zero(editor, pad):
            continue
        added = _spatial_pads(editor, pad)
        fused = _with_pads(node, added) if added is not None else None
        if fused is not None:
            editor.replace(key, fused.replace(inputs=(pad.inputs[0], *node.inputs[1:])))
            editor.remove_unused([source])


def _pads_with_zero(editor: GraphEditor, pad: Node) -> bool:
    if pad.since_version < 2 or pad.attributes.get("mode", "constant") != "constant":
        return False
    if len(pad.inputs) > 2 and pad.inputs[2]:
        return scalar(editor, pad.inputs[2]) == 0
    return float(pad.attributes.get("value", 0.0)) == 0


def _spatial_pads(editor: GraphEditor, pad: Node) -> tuple[int, ...] | None:
    """Begins and ends of the axes after batch and channel; None if others are padded too."""
    pads = integers_at(editor, pad, "pads", 1)
    if pads is None or any(n < 0 for n in pads):
        return None
    rank = len(pads) // 2
    if len(pad.inputs) > 3 and pad.inputs[3]:
        axes = integers(editor, pad.inputs[3])
        shape = shape_of(editor, pad.inputs[0])
        if axes is None or shape is None or len(pads) != 2 * len(axes):
            return None
        pads = _on_all_axes(pads, axes, len(shape))
        rank = len(shape)
    if rank < 3 or len(pads) != 2 * rank or any((*pads[:2], *pads[rank : rank + 2])):
        return None
    return (*pads[2:rank], *pads[rank + 2 :])


def _on_all_axes(pads: tuple[int, ...], axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        if not -rank <= axis < rank:
            return ()
        full[axis % rank] = pads[position]
        full[rank + axis % rank] = pads[len(axes) + position]
    return tuple(full)


def _with_pads(node: Node, added: tuple[int, ...]) -> Node | None:
    """The node with `added` in its own pads, None where that isn't the same."""
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    own = tuple(node.attributes.get("pads", (0,) * len(added)))
    if node.attributes.get("auto_pad") == "VALID":
        own = (0,) * len(added)
    if len(own) != len(added):
        return None
    attributes = {name: v for name, v in node.attributes.items() if name != "auto_pad"}
    attributes["pads"] = tuple(a + b for a, b in zip(own, added, strict=True))
    if node.op_type == "AveragePool":
        if not _averages_zeros(node, own, added):
            return None
        attributes["count_include_pad"] = 1
    return node.replace(attributes=attributes)


def _averages_zeros(node: Node, own: tuple[int, ...], added: tuple[int, ...]) -> bool:
    """True if the pool may count the added zeros as its own padding.

    Its divisor must be the whole window before and after: so no padding of its own yet, none of
    the partial windows of `ceil_mode`, and never a window of padding only, which some kernels
    refuse.
    """
    kernel = tuple(node.attributes["kernel_shape"])
    if node.since_version < 7 or any(own) or node.attributes.get("ceil_mode", 0):
        return False
    return len(added) == 2 * len(kernel) and all(
        pad < size for pad, size in zip(added, kernel * 2, strict=True)
    )


PASS = Pass(
    "PadFusion",
    GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    _rewrite,
)
