"""Makes a model on which two sides differ as small as it goes while they still do.

How to shrink is the compliance kit's knowledge, which is asked only when somebody wants it; here
stands what failing means.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ep_core.errors import EpError, NotSupportedError
from ep_core.graph import Graph
from ep_core.loading.export import save_model
from ep_core.loading.load import load_model
from ep_tools.differences import Difference, compare_values
from ep_tools.layers import Opener
from ep_tools.layers_values import live_values, one_node_model, values_of
from ep_tools.outputs import save_outputs
from ep_tools.progress import Progress
from ep_tools.requests import Tolerance

if TYPE_CHECKING:
    import onnx

__all__ = ["Reduced", "check_reducing", "reduce_model"]

_CASE = "cases.case"
_OUTCOMES = "running.outcomes"
_SHRINK = "running.shrink"
_SECONDS = 120.0
_TRIES = 200
"""And one more for every node, since each is tried alone."""


@dataclass(frozen=True)
class Reduced:
    """The smallest model that was found.

    Attributes:
        feeds: what `--input` of `ep compare` takes to feed it.
        nodes: how many it has, and how many it came from.
        differences: between the two sides, on these feeds.
        note: why it isn't smaller, or nothing.
    """

    model: str
    feeds: tuple[str, ...]
    nodes: tuple[int, int]
    differences: tuple[Difference, ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "model": self.model,
            "feeds": list(self.feeds),
            "nodes": self.nodes[0],
            "nodes_before": self.nodes[1],
            "differences": [difference.to_json() for difference in self.differences],
            "note": self.note or None,
        }


def check_reducing(out: str) -> None:
    """Find out what is missing before a long run.

    Raises:
        NotSupportedError: the compliance kit isn't installed.
        EpError: the file can't be where it should.
    """
    _kit(_SHRINK)
    path = Path(out)
    if path.suffix != ".onnx":
        raise EpError("--reduce", expected="the path of an .onnx file", got=repr(out))
    if not path.absolute().parent.is_dir():
        raise EpError(f"there is no folder {path.parent}", fix="Make it first.")


def _kit(name: str) -> Any:
    """A module of the compliance kit, which is no dependency: imported by name when it's needed."""
    try:
        return importlib.import_module(f"ep_compliance.{name}")
    except ImportError as error:
        raise NotSupportedError(
            "--reduce needs the compliance kit",
            got=str(error),
            fix="Install it with: pip install ep-compliance",
        ) from error


class _Judge:
    """Runs both sides on a case; to fail is to differ."""

    def __init__(
        self, openers: tuple[Opener, Opener], tolerance: Tolerance, progress: Progress, most: int
    ) -> None:
        self._openers = openers
        self._tolerance = tolerance
        self._progress = progress
        self._most = most
        self._tries = 0

    def differences(
        self, model: onnx.ModelProto, feeds: Mapping[str, Any]
    ) -> tuple[Difference, ...]:
        """How far the sides lie apart, output by output."""
        names = [info.name for info in model.graph.output]
        sides = []
        for opener in self._openers:
            session = opener(model.SerializeToString())
            try:
                sides.append(session.run(None, feeds))
            finally:
                session.close()
        return tuple(
            difference
            for name, left, right in zip(names, *sides, strict=True)
            for difference in compare_values(name, left, right, self._tolerance)
        )

    def __call__(self, case: Any) -> Any:
        """The verdict on a case of the kit, as its shrinker wants it."""
        outcomes = _kit(_OUTCOMES)
        self._tries += 1
        nodes = len(case.model.graph.node)
        self._progress.update(self._tries, self._most, f"{nodes} nodes")
        try:
            found = self.differences(case.model, case.inputs)
        except EpError as error:
            reason = f"error: {type(error).__name__}"
            return outcomes.Verdict(case.id, outcomes.Outcome.FAIL, reason)
        if all(difference.agrees for difference in found):
            return outcomes.Verdict(case.id, outcomes.Outcome.PASS)
        wrong = any(difference.problem for difference in found)
        reason = "other types" if wrong else "other values"
        return outcomes.Verdict(case.id, outcomes.Outcome.FAIL, reason)


def reduce_model(
    model: str,
    openers: tuple[Opener, Opener],
    feeds: Mapping[str, Any],
    tolerance: Tolerance,
    first: int | None,
    out: str,
    progress: Progress,
) -> Reduced:
    """Write a smaller model on which the two sides differ, and its inputs beside it as .npz.

    Args:
        feeds: inputs on which the model's outputs differ.
        first: place of the first node that is known to differ, None if none is.

    Raises:
        EpError: the model can't be loaded, written out again, or run.
    """
    shrinker = _kit(_SHRINK)
    graph = load_model(model).graph
    tries = _TRIES + len(graph.nodes)
    judge = _Judge(openers, tolerance, progress, tries + 1)
    start, inputs = _start(graph, judge, openers[1], feeds, first)
    case = _kit(_CASE).Case("reduce", start.to_model(), dict(inputs))
    verdict = judge(case)
    if not verdict.reason:
        raise EpError("the two sides agree when they run the model again, so it can't be reduced")
    note = ""
    if len(start.nodes) == 1 or shrinker.shrinks(case):
        budget = shrinker.Budget(tries, _SECONDS)
        case = shrinker.shrink(case, verdict, judge, budget).case
    else:
        note = (
            "Models with control flow, other domains than ONNX's own, or inputs that are no "
            "tensors are cut down to a single node or not at all."
        )
    return _saved(case, out, judge, len(graph.nodes), note)


def _start(
    graph: Graph, judge: _Judge, reference: Opener, feeds: Mapping[str, Any], first: int | None
) -> tuple[Graph, Mapping[str, Any]]:
    """The first differing node alone, if it still differs then; else the whole model."""
    whole = {name: value for name, value in feeds.items() if name in graph.input_names}
    if first is None:
        return graph, whole
    for value in live_values(graph, graph.output_names):
        if value.index != first:
            continue
        alone = one_node_model(graph, value)
        try:
            inputs = values_of(graph, alone.input_names, reference, feeds)
            found = judge.differences(alone.to_model(), inputs)
        except EpError:
            continue
        if not all(difference.agrees for difference in found):
            return alone, inputs
    return graph, whole


def _saved(case: Any, out: str, judge: _Judge, before: int, note: str) -> Reduced:
    values = Path(out).with_suffix(".npz")
    save_model(case.model, out)
    save_outputs(str(values), case.inputs)
    return Reduced(
        model=out,
        feeds=tuple(f"{name}={values}:{name}" for name in case.inputs),
        nodes=(len(case.model.graph.node), before),
        differences=judge.differences(case.model, case.inputs),
        note=note,
    )
