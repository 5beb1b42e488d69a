"""Holes of single operators; see `holes.py`. One function each, in the order of the alphabet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from weakref import WeakKeyDictionary

from ep_core.graph import Graph, Node
from ep_core.types import DataType, TensorType

__all__ = ["RULES"]


def _attention(_: Graph, node: Node) -> str:
    windows = ("left_window_size", "right_window_size")
    if any(node.attributes.get(name, -1) != -1 for name in windows):
        return "OpenVINO leaves out the window"
    has_past = len(node.inputs) > 4 and bool(node.inputs[4])
    if has_past and node.attributes.get("is_causal", 0):
        return "OpenVINO counts a causal mask from the first key, not from the first new one"
    return ""


def _clip(graph: Graph, node: Node) -> str:
    producer = graph.producers.get(node.inputs[0])
    is_after = producer is not None and graph.nodes[producer].op_type == "DequantizeLinear"
    if is_after and any(user.op_type == "QuantizeLinear" for user, _ in _users(graph, node)):
        return "OpenVINO quantizes to the range of a Clip that stands between quantized values"
    return ""


def _concat(graph: Graph, node: Node) -> str:
    """Parts with scales of their own are quantized once more, which OpenVINO does in one go."""
    makers = [graph.nodes[graph.producers[name]] for name in node.inputs if name in graph.producers]
    steps = [maker for maker in makers if maker.op_type == "DequantizeLinear"]
    users = [user for user, _ in _users(graph, node) if user.op_type == "QuantizeLinear"]
    if not steps or not users:
        return ""
    first = _step_size(graph, steps[0])
    if all(_step_size(graph, other) == first for other in (*steps, *users)):
        return ""
    return "OpenVINO rounds once where parts of several scales are joined and quantized anew"


def _step_size(graph: Graph, node: Node) -> tuple[object, ...]:
    """Scale and zero point of a quantization: values of constants, names of anything else."""
    found: list[object] = []
    for name in node.inputs[1:3]:
        constant = graph.constant(name) if name else None
        found.append(name if constant is None else constant.numpy().tolist())
    return tuple(found)


def _convolution(graph: Graph, node: Node) -> str:
    if not _fed(graph).intersection(node.inputs[:2]):
        return "OpenVINO adds to the result of the run before where data and weights are constants"
    return ""


_FED: WeakKeyDictionary[Graph, frozenset[str]] = WeakKeyDictionary()


def _fed(graph: Graph) -> frozenset[str]:
    """The values of a graph that depend on its inputs, worked out once in its life."""
    found = _FED.get(graph)
    if found is None:
        fed = {*graph.input_names, *graph.captures}
        for node in graph.nodes:
            if any(name in fed for name in node.reads):
                fed.update(node.outputs)
        found = _FED[graph] = frozenset(fed - {""})
    return found


def _dequantize_linear(graph: Graph, node: Node) -> str:
    scale = graph.type_of(node.inputs[1])
    kind = graph.type_of(node.inputs[0])
    if not (isinstance(scale, TensorType) and scale.shape and isinstance(kind, TensorType)):
        return ""
    axis = int(node.attributes.get("axis", 1)) % max(1, len(kind.shape or ()))
    for user, place in _users(graph, node):
        if axis == _summed_axis(user, place, len(kind.shape or ())):
            return f"OpenVINO moves a scale along the summed axis behind {user.name!r}"
    return ""


def _users(graph: Graph, node: Node) -> Iterator[tuple[Node, int]]:
    """The nodes that read a node's first output, each with the position where it does."""
    for index in graph.consumers.get(node.outputs[0], ()):
        user = graph.nodes[index]
        yield from ((user, place) for place, name in enumerate(user.inputs) if name in node.outputs)


def _summed_axis(user: Node, place: int, rank: int) -> int | None:
    """The axis of an operand over which a product sums; None for other operators."""
    if user.op_type == "MatMul":
        return rank - 1 if place == 0 else max(0, rank - 2)
    if user.op_type == "Gemm" and place < 2:
        transposed = bool(user.attributes.get("transA" if place == 0 else "transB", 0))
        return int((place == 0) != transposed)
    if user.op_type in ("Conv", "ConvTranspose") and place == 1:
        return 1 if user.op_type == "Conv" else 0
    return None


def _erf(graph: Graph, node: Node) -> str:
    return "" if _is_float(graph, node) else "OpenVINO rounds Erf of integers otherwise"


def _lp_pool(_: Graph, node: Node) -> str:
    return "OpenVINO counts what lies beyond the edge" if node.attributes.get("ceil_mode") else ""


def _lrn(_: Graph, node: Node) -> str:
    is_even = int(node.attributes.get("size", 1)) % 2 == 0
    return "OpenVINO centres windows of even size otherwise" if is_even else ""


def _lstm(_: Graph, node: Node) -> str:
    has_peepholes = len(node.inputs) > 7 and bool(node.inputs[7])
    return "OpenVINO leaves out the peepholes" if has_peepholes else ""


def _max_pool(_: Graph, node: Node) -> str:
    has_indices = len(node.outputs) > 1 and bool(node.outputs[1])
    if has_indices and node.attributes.get("storage_order", 0):
        return "OpenVINO counts indices by rows alone"
    return ""


def _mod(graph: Graph, node: Node) -> str:
    return "OpenVINO makes NaN of a remainder by infinity" if _is_float(graph, node) else ""


def _quantize_linear(graph: Graph, node: Node) -> str:
    kind = graph.type_of(node.outputs[0])
    if isinstance(kind, TensorType) and kind.dtype in (DataType.INT16, DataType.UINT16):
        return "OpenVINO's steps of 16 bits are off by one"
    return ""


def _resize(_: Graph, node: Node) -> str:
    if node.attributes.get("antialias", 0):
        return "OpenVINO's antialiasing isn't ONNX's"
    if node.attributes.get("exclude_outside", 0):
        return "OpenVINO counts what lies outside"
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "OpenVINO doesn't keep the aspect ratio"
    mode = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    by_scales = len(node.inputs) < 4 or not node.inputs[3]
    if mode == "align_corners" and by_scales:
        return "OpenVINO aligns corners by the rounded length, not by the scale"
    return ""


def _roi_align(_: Graph, node: Node) -> str:
    mode = node.attributes.get("mode", "avg")
    return "" if mode == "avg" else f"OpenVINO's mode {mode!r} isn't ONNX's"


def _selu(_: Graph, node: Node) -> str:
    return "OpenVINO has the constants of version 6" if node.since_version < 6 else ""


def _space_to_depth(_: Graph, node: Node) -> str:
    mode = node.attributes.get("mode", "DCR")
    return "" if mode == "DCR" else f"OpenVINO doesn't know mode {mode!r}"


def _split(_: Graph, node: Node) -> str:
    return "OpenVINO has no lengths of version 1" if node.since_version < 2 else ""


def _tile(graph: Graph, node: Node) -> str:
    kind = graph.type_of(node.inputs[0])
    if isinstance(kind, TensorType) and not kind.shape:
        return "OpenVINO crashes on a scalar"
    if graph.constant(node.inputs[1]) is None:
        return "OpenVINO leaves parts of the result unwritten unless 'repeats' is a constant"
    return ""


def _unique(_: Graph, node: Node) -> str:
    return "OpenVINO doesn't compare along an axis" if "axis" in node.attributes else ""


def _is_float(graph: Graph, node: Node) -> bool:
    kind = graph.type_of(node.inputs[0])
    return isinstance(kind, TensorType) and kind.dtype.is_float


RULES: Mapping[str, Callable[[Graph, Node], str]] = {
    "Attention": _attention,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "DequantizeLinear": _dequantize_linear,
    "Erf": _erf,
    "LRN": _lrn,
    "LSTM": _lstm,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "Mod": _mod,
    "QuantizeLinear": _quantize_linear,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Selu": _selu,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Tile": _tile,
    "Unique": _unique,
}
"""By operator, what says why OpenVINO would answer wrongly, or nothing."""
