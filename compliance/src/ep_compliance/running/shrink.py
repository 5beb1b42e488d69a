"""Makes a failing case smaller as long as it fails in the same way.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002)
over the nodes of a graph: what is cut off is replaced by graph inputs that hold the values which
the oracle has there, so that every part of a valid graph is a valid graph with a known answer.
Then outputs, attributes, optional inputs, lengths and digits go, one after the other.

Who judges is the caller's business; see `trials`. Nothing here knows providers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from ep_compliance.cases.case import Case
from ep_compliance.cases.models import finished, type_of_value
from ep_compliance.errors import OracleError
from ep_compliance.oracle.evaluate import Evaluator
from ep_compliance.running.outcomes import Verdict

__all__ = ["Budget", "Shrunk", "manner", "shrink", "shrinks"]

Judge = Callable[[Case], Verdict]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop.

    Attributes:
        tries: most cases that are judged.
        seconds: after which no further case is begun.
    """

    tries: int = 150
    seconds: float = 60.0


@dataclass(frozen=True, eq=False, slots=True)
class Shrunk:
    """The smallest case that was found.

    Attributes:
        case: with the id of the one it came from; that one itself if nothing smaller fails.
        verdict: its verdict.
        tries: how many cases were judged.
        repeated: the case failed in the same way when it was judged again as it was.
    """

    case: Case
    verdict: Verdict
    tries: int
    repeated: bool


def shrinks(case: Case) -> bool:
    """True for cases that there is something to cut off from: several nodes, and only tensors."""
    nodes = case.model.graph.node
    nested = any(a.HasField("g") or a.graphs for node in nodes for a in node.attribute)
    foreign = any(node.domain not in ("", "ai.onnx") for node in nodes)
    return len(nodes) > 1 and not nested and not foreign and len(case.arrays) == len(case.inputs)


def manner(verdict: Verdict) -> str:
    """In which way a case fails: its reason without names, numbers and details.

    Wrong values are one way, whatever they are; a wrong shape is another, and so is each type of
    error at each stage.
    """
    text = re.sub(r"output \S+: ", "", verdict.reason).split(";")[0]
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?", "#", text)
    text = re.sub(r"[(\[][#, ]*[)\]]", "#", text)
    return f"{verdict.outcome.value}: {':'.join(text.split(':')[:2])}"


def shrink(case: Case, verdict: Verdict, judge: Judge, budget: Budget | None = None) -> Shrunk:
    """Return the smallest case found within a budget that fails as `case` does.

    Args:
        verdict: of the case.
        judge: judges a case; crashes and hangs are verdicts too.
    """
    search = _Search(case, verdict, judge, budget or Budget())
    if not search.repeats():
        return Shrunk(case, verdict, search.tries, repeated=False)
    with contextlib.suppress(_Spent):
        search.run()
    return Shrunk(search.case, search.verdict, search.tries, repeated=True)


class _Spent(Exception):  # noqa: N818 - ends a search, nothing is wrong
    """The budget is used up."""


class _Search:
    """The way down; `case` is the smallest so far."""

    def __init__(self, case: Case, verdict: Verdict, judge: Judge, budget: Budget) -> None:
        self.case = case
        self.verdict = verdict
        self.tries = 0
        self._manner = manner(verdict)
        self._judge = judge
        self._budget = budget
        self._deadline = time.monotonic() + budget.seconds

    def repeats(self) -> bool:
        """Judge the case as it is."""
        return self._fails(self.case)

    def run(self) -> None:
        """Try everything, until nothing more helps."""
        self._cut_nodes()
        for smaller in (_fewer_outputs, _fewer_attributes, _fewer_inputs, _shorter, _rounder):
            self._repeat(smaller)

    def _cut_nodes(self) -> None:
        try:
            evaluator = Evaluator(self.case.model)
            values = evaluator.run(self.case.inputs)
        except OracleError:
            return
        known = {name: evaluator.narrowed(name, value) for name, value in values.items()}
        whole = self.case
        kept = list(range(len(whole.model.graph.node)))
        for place in kept:
            if self._accepts(_part(whole, known, [place])):
                return
        size = len(kept) // 2
        while size:
            start = 0
            while start < len(kept):
                fewer = kept[:start] + kept[start + size :]
                if fewer and self._accepts(_part(whole, known, fewer)):
                    kept = fewer
                else:
                    start += size
            size //= 2

    def _repeat(self, smaller: Callable[[Case], Iterator[Case | None]]) -> None:
        """Take the first of the smaller cases that still fails, and begin anew from there."""
        while any(self._accepts(candidate) for candidate in smaller(self.case)):
            pass

    def _accepts(self, candidate: Case | None) -> bool:
        if candidate is None or not self._fails(candidate):
            return False
        self.case = candidate
        return True

    def _fails(self, case: Case) -> bool:
        if self.tries >= self._budget.tries or time.monotonic() > self._deadline:
            raise _Spent
        self.tries += 1
        verdict = self._judge(case)
        if manner(verdict) != self._manner:
            return False
        self.verdict = verdict
        return True


# ---------------------------------------------------------------- smaller cases


def _part(case: Case, values: Mapping[str, Any], kept: Sequence[int]) -> Case | None:
    """The case of some of the nodes; what others gave them becomes input."""
    graph = case.model.graph
    nodes = [graph.node[place] for place in kept]
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in node.input if name)
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    stored = {tensor.name for tensor in initializers} - case.inputs.keys()
    feeds = {name: values[name] for name in read if name not in made | stored}
    wanted = {info.name for info in graph.output}
    wanted |= {n for i, node in enumerate(graph.node) if i not in kept for n in node.input}
    outputs = [name for name in made if name in wanted] or sorted(made - read.keys())
    return _rebuilt(case, nodes, initializers, feeds, sorted(outputs))


def _fewer_outputs(case: Case) -> Iterator[Case | None]:
    """Without one of the outputs, and without the nodes that only it needed."""
    graph = case.model.graph
    names = [info.name for info in graph.output]
    for name in names if len(names) > 1 else ():
        outputs = [other for other in names if other != name]
        yield _rebuilt(case, _needed(graph, outputs), graph.initializer, case.inputs, outputs)


def _needed(graph: onnx.GraphProto, outputs: Sequence[str]) -> list[onnx.NodeProto]:
    wanted = set(outputs)
    nodes = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            nodes.append(node)
    return nodes[::-1]


def _fewer_attributes(case: Case) -> Iterator[Case | None]:
    for place, node in enumerate(case.model.graph.node):
        for attribute in node.attribute:
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            changed.attribute.remove(attribute)
            yield _with_node(case, place, changed)


def _fewer_inputs(case: Case) -> Iterator[Case | None]:
    """Without the last input of a node, where it may be left out."""
    version = {o.domain: o.version for o in case.model.opset_import}
    for place, node in enumerate(case.model.graph.node):
        schema = onnx.defs.get_schema(node.op_type, version[node.domain], node.domain)
        if len(node.input) > schema.min_input:
            changed = onnx.NodeProto()
            changed.CopyFrom(node)
            del changed.input[-1]
            yield _with_node(case, place, changed)


def _with_node(case: Case, place: int, node: onnx.NodeProto) -> Case | None:
    graph = case.model.graph
    nodes = [*graph.node[:place], node, *graph.node[place + 1 :]]
    outputs = [info.name for info in graph.output]
    return _rebuilt(case, nodes, graph.initializer, case.inputs, outputs)


def _shorter(case: Case) -> Iterator[Case | None]:
    """With every axis of one length cut to 1, or to half of it."""
    lengths = {n for array in _arrays(case).values() for n in array.shape if n > 1}
    for length in sorted(lengths, reverse=True):
        for new in dict.fromkeys((1, length // 2)):

            def cut(array: Array, length: int = length, new: int = new) -> Array:
                return array[tuple(slice(new if n == length else None) for n in array.shape)]

            yield _with_arrays(case, cut)


def _rounder(case: Case) -> Iterator[Case | None]:
    """With whole numbers instead of fractions."""

    def whole(array: Array) -> Array:
        floats = array.astype(np.float64) if array.dtype.kind in "fV" else array
        return np.rint(floats).astype(array.dtype) if array.dtype.kind in "fV" else array

    if any(not np.array_equal(whole(a), a) for a in _arrays(case).values()):
        yield _with_arrays(case, whole)


def _arrays(case: Case) -> dict[str, Array]:
    """Inputs and constants, but not the whole numbers that are parameters of nodes."""
    stored = {t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}
    constants = {name: a for name, a in stored.items() if a.dtype != np.int64}
    return {**constants, **case.arrays}


def _with_arrays(case: Case, change: Callable[[Array], Array]) -> Case | None:
    graph = case.model.graph
    arrays = {name: change(array) for name, array in _arrays(case).items()}
    tensors = [
        numpy_helper.from_array(
            np.ascontiguousarray(arrays[t.name]).reshape(arrays[t.name].shape), t.name
        )
        if t.name in arrays
        else t
        for t in graph.initializer
    ]
    feeds = {name: arrays[name] for name in case.inputs}
    outputs = [info.name for info in graph.output]
    return _rebuilt(case, list(graph.node), tensors, feeds, outputs)


def _rebuilt(
    case: Case,
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    feeds: Mapping[str, Any],
    outputs: Sequence[str],
) -> Case | None:
    """The case of other nodes, without what nobody reads; None if its model isn't valid."""
    read = {name for node in nodes for name in node.input}
    feeds = {name: value for name, value in feeds.items() if name in read}
    infos = [helper.make_value_info(name, type_of_value(value)) for name, value in feeds.items()]
    tensors = [tensor for tensor in initializers if tensor.name in read]
    graph = helper.make_graph(nodes, "smaller", infos, [], tensors)
    opsets = {o.domain: o.version for o in case.model.opset_import}
    try:
        model = finished(graph, outputs, opsets)
        model.ir_version = case.model.ir_version
        onnx.checker.check_model(model, full_check=True)
    except (ValueError, KeyError, StopIteration, RuntimeError, onnx.checker.ValidationError):
        return None
    smaller = dataclasses.replace(case, model=model, inputs=feeds, expected=None, recorded=None)
    return smaller if _is_answered(smaller) else None


def _is_answered(case: Case) -> bool:
    """True if the oracle can evaluate it, and finds the types that the model declares."""
    try:
        evaluator = Evaluator(case.model)
        values = evaluator.run(case.inputs)
    except OracleError:
        return False
    return all(isinstance(values[name], np.ndarray) for name in evaluator.output_names)
