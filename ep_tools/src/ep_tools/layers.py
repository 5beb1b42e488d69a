"""Finds the node where two ways of running a model part: results of nodes become outputs.

A value that is an output can't be fused away, which changes what optimisation may do around it.
So values are made outputs in groups, and if none of them differs although the model's outputs do,
one at a time, by halving. Values inside bodies of If, Loop and Scan can't become outputs: such a
node is compared as a whole.

Errors add up on their way through a model. So that a node is judged by its own, it can also be
isolated: side A runs it as a model of one node on what side B has there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core import InferenceSession
from ep_core.errors import EpError
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.loading.load import load_model
from ep_tools.differences import Difference, compare_values
from ep_tools.layers_values import NodeValue, live_values, one_node_model, values_of
from ep_tools.outputs import OutputSummary, summarise
from ep_tools.progress import Progress
from ep_tools.requests import Tolerance
from ep_tools.sessions import Session

__all__ = ["Layer", "LayerReport", "Opener", "compare_layers"]

Opener = Callable[[bytes], Session]

GROUP_SIZE = 64
"""Results that are outputs at the same time: so many are in memory at once."""
_MOST_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Layer:
    """One result of one node, on both sides.

    Attributes:
        index: the node's place in topological order.
        providers: which provider ran it on each side; `onnxruntime` on that side, `fused` where
            it is part of another node.
    """

    index: int
    node: str
    op_type: str
    providers: tuple[str, str]
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "index": self.index,
            "node": self.node,
            "operator": self.op_type,
            "providers": list(self.providers),
            **self.difference.to_json(),
        }


@dataclass(frozen=True)
class LayerReport:
    """All results that could be compared, in topological order, and the first that differs.

    Attributes:
        notes: what the reader has to know about how it was found, in sentences.
        failures: results that couldn't be compared, with the reason.
        inputs: what side B gives the first node that differs.
        isolated: every node had the inputs of side B.
    """

    layers: tuple[Layer, ...]
    first: Layer | None
    notes: tuple[str, ...]
    failures: Mapping[str, str]
    inputs: tuple[OutputSummary, ...] = ()
    isolated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "isolated": self.isolated,
            "first": None if self.first is None else self.first.to_json(),
            "first_inputs": [summary.to_json() for summary in self.inputs],
            "notes": list(self.notes),
            "failures": dict(self.failures),
            "values": [layer.to_json() for layer in self.layers],
        }


def compare_layers(
    model: str,
    openers: tuple[Opener, Opener],
    feeds: Mapping[str, Any],
    tolerance: Tolerance,
    differing: Sequence[str],
    progress: Progress,
    *,
    isolate: bool = False,
) -> LayerReport:
    """Compare the results of all nodes that the model's outputs depend on.

    Args:
        model: path of the model.
        openers: make a session of each side from a serialized model.
        feeds: the inputs.
        tolerance: what counts as agreement.
        differing: outputs, or members of outputs, that are known to differ.
        progress: told how many values are done.
        isolate: give each node of side A the inputs that it has on side B.

    Raises:
        EpError: the model can't be loaded, or is too large to be written out again.
    """
    graph = load_model(model).graph
    kind = _IsolatedSearch if isolate else _Search
    search = kind(graph, openers, feeds, tolerance)
    values = search.values
    done = 0
    for start in range(0, len(values), GROUP_SIZE):
        group = values[start : start + GROUP_SIZE]
        search.compare(group)
        done += len(group)
        progress.update(done, len(values), f"{done} of {len(values)} values")
    first = next((layer for layer in search.layers if not layer.difference.agrees), None)
    notes = _notes(graph, search)
    if first is None and differing and isolate:
        notes.append(
            "No node differs by itself: small errors add up, or nodes that are fused differ. "
            "Without --isolate the model is compared as it runs."
        )
    elif first is None and differing:
        first = search.halve(differing, progress)
        notes.append(
            "No result differs while its neighbours are outputs too, which keeps nodes from "
            "being fused; so the first one was looked for with one output at a time."
        )
    inputs = () if first is None else search.inputs_of(first)
    layers = tuple(search.layers)
    return LayerReport(layers, first, tuple(notes), search.failures, inputs, isolate)


def _notes(graph: Graph, search: _Search) -> list[str]:
    notes = []
    inside = sum(_inner_nodes(node) for node in graph.nodes)
    if inside:
        notes.append(
            f"{inside} nodes are inside bodies of control flow, whose results can't become "
            "outputs: such a node counts as a whole."
        )
    notes.extend(f"{name} can't be compared: {why}" for name, why in search.failures.items())
    if search.gave_up:
        notes.append("Too many results couldn't be compared; the rest was left out.")
    return notes


def _inner_nodes(node: Node) -> int:
    return sum(1 + _inner_nodes(inner) for body in node.bodies.values() for inner in body.nodes)


class _Search:
    """Compares values of one graph; keeps what it finds."""

    def __init__(
        self,
        graph: Graph,
        openers: tuple[Opener, Opener],
        feeds: Mapping[str, Any],
        tolerance: Tolerance,
    ) -> None:
        self._graph = graph
        self._openers = openers
        self._feeds = feeds
        self._tolerance = tolerance
        self.layers: list[Layer] = []
        self.failures: dict[str, str] = {}
        self.values = live_values(graph, graph.output_names)

    @property
    def gave_up(self) -> bool:
        """True once so much has failed that trying more of it is a waste."""
        return len(self.failures) >= _MOST_FAILURES

    def inputs_of(self, layer: Layer) -> tuple[OutputSummary, ...]:
        """What a node reads on side B, in figures; nothing if that can't be found out."""
        node = self._graph.nodes[layer.index]
        try:
            found = values_of(self._graph, node.reads, self._openers[1], self._feeds)
        except EpError:
            return ()
        return tuple(entry for name, value in found.items() for entry in summarise(name, value))

    def compare(self, group: Sequence[NodeValue]) -> None:
        """Compare values that are outputs together; if that fails, look for those it fails for."""
        if self.gave_up or not group:
            return
        try:
            self.layers.extend(self._compared(group))
        except EpError as error:
            if len(group) == 1:
                self.failures[group[0].name] = str(error)
                return
            middle = len(group) // 2
            self.compare(group[:middle])
            self.compare(group[middle:])

    def halve(self, differing: Sequence[str], progress: Progress) -> Layer | None:
        """Find the first value that differs as the only output, if later ones do too."""
        names = [name for name in self._graph.output_names if _is_part(differing, name)]
        values = live_values(self._graph, names[:1])
        low, high = 0, len(values) - 1
        found = None
        steps = max(1, high.bit_length() + 1)
        step = 0
        while low <= high:
            middle = high if found is None else (low + high) // 2
            layer = self._first_difference(values[middle])
            if layer is not None:
                found = layer
                high = middle - 1
            elif found is None:
                return None
            else:
                low = middle + 1
            step += 1
            progress.update(step, steps, f"output {values[middle].name}")
        return found

    def _first_difference(self, value: NodeValue) -> Layer | None:
        try:
            layers = self._compared([value])
        except EpError:
            return None
        return next((layer for layer in layers if not layer.difference.agrees), None)

    def _compared(self, group: Sequence[NodeValue]) -> list[Layer]:
        infos = tuple(self._graph.values.get(value.name, ValueInfo(value.name)) for value in group)
        model = self._graph.replace(outputs=infos).to_model().SerializeToString()
        (left, ours), (right, others) = (
            self._run(opener, model, group) for opener in self._openers
        )
        return [
            Layer(value.index, value.node.name, value.node.op_type, (on_a, on_b), difference)
            for value, a, on_a, b, on_b in zip(group, left, ours, right, others, strict=True)
            for difference in compare_values(value.name, a, b, self._tolerance)
        ]

    def _run(
        self, opener: Opener, model: bytes, group: Sequence[NodeValue]
    ) -> tuple[list[Any], list[str]]:
        session = opener(model)
        try:
            values = session.run(None, self._feeds)
            return values, [_provider_of(session, value.node.name) for value in group]
        finally:
            session.close()


class _IsolatedSearch(_Search):
    """Compares nodes that have the same inputs on both sides."""

    def _compared(self, group: Sequence[NodeValue]) -> list[Layer]:
        graph = self._graph
        names = dict.fromkeys(n for value in group for n in (*value.node.reads, value.name))
        known = values_of(graph, names, self._openers[1], self._feeds)
        layers = []
        for value in group:
            model = one_node_model(graph, value)
            feeds = {info.name: known[info.name] for info in model.inputs}
            mine, provider = self._run_alone(model, value, feeds)
            layers += [
                Layer(value.index, value.node.name, value.node.op_type, (provider, ""), difference)
                for difference in compare_values(
                    value.name, mine, known[value.name], self._tolerance
                )
            ]
        return layers

    def _run_alone(
        self, graph: Graph, value: NodeValue, feeds: Mapping[str, Any]
    ) -> tuple[Any, str]:
        session = self._openers[0](graph.to_model().SerializeToString())
        try:
            (result,) = session.run(None, feeds)
            return result, _provider_of(session, value.node.name)
        finally:
            session.close()


def _provider_of(session: Session, node: str) -> str:
    if not isinstance(session, InferenceSession):
        return "onnxruntime"
    try:
        return session.get_placement().provider_of(node)
    except KeyError:
        return "fused"


def _is_part(names: Sequence[str], output: str) -> bool:
    """True if the output, or a member of it such as `y[0]`, is among the names."""
    return any(name == output or name.startswith((f"{output}[", f"{output}{{")) for name in names)
