"""Times of nodes from OpenVINO's profile of a run, under the names that the ONNX model has.

OpenVINO tells how long each operator of the compiled model took, not when. They are laid out one
after the other from the start of the run, in the order in which they are executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ep_core.contracts import NodeTime
from ep_core.graph import Node, Subgraph
from ep_openvino.request import Request

__all__ = ["NodeNames", "node_times"]


class NodeNames:
    """Which ONNX node an operator of a compiled model belongs to.

    OpenVINO names operators after the values that they compute, adds endings of its own to what a
    node is made of, and keeps a list of names where it has fused several.
    """

    def __init__(self, subgraph: Subgraph, compiled: Any) -> None:
        self._producers = {
            output: node for node in subgraph.nodes for output in node.outputs if output
        }
        self._by_name = {node.name: node for node in subgraph.nodes}
        self._found: dict[str, Node | None] = {}
        for operator in compiled.get_runtime_model().get_ops():
            listed = str(_told(operator, "originalLayersNames"))
            own = [self._lookup(name) for name in listed.split(",")]
            known = [node for node in own if node is not None]
            # Of those that are fused, the last one gives the result.
            self._found[operator.get_friendly_name()] = known[-1] if known else None

    def node_of(self, name: str) -> Node | None:
        """The node that an operator belongs to, None for what OpenVINO put in by itself."""
        if name not in self._found:
            self._found[name] = self._lookup(name)
        return self._found[name]

    def _lookup(self, name: str) -> Node | None:
        text = name.strip()
        while text:
            found = self._producers.get(text) or self._by_name.get(text)
            if found is not None:
                return found
            text, dot, _ = text.rpartition(_ending(text))
            if not dot:
                return None
        return None


def _ending(name: str) -> str:
    """What parts OpenVINO's own ending from the rest of a name."""
    return "/" if name.rfind("/") > name.rfind(".") else "."


def _told(operator: Any, key: str) -> Any:
    info = operator.get_rt_info()
    return info[key].value if key in info else ""


def node_times(
    request: Request, names: NodeNames, begin_ns: int, end_ns: int
) -> Iterator[NodeTime]:
    """Yield the times of the nodes of the run that has just been, between two moments.

    OpenVINO's times are rounded up to microseconds; together they may exceed the run, and are then
    shortened alike.
    """
    spent: list[tuple[str, str, int]] = []
    for item in request.raw.get_profiling_info():
        nanoseconds = round(item.real_time.total_seconds() * 1e9)
        if str(item.status).endswith("EXECUTED") and nanoseconds:
            node = names.node_of(item.node_name)
            label = (item.node_name, item.node_type) if node is None else (node.name, node.op_type)
            spent.append((*label, nanoseconds))
    total = sum(duration for _, _, duration in spent)
    part = min(1.0, (end_ns - begin_ns) / total) if total else 1.0
    passed = 0
    for name, op_type, duration in spent:
        start = begin_ns + int(passed * part)
        passed += duration
        yield NodeTime(name, op_type, start, begin_ns + int(passed * part))
