"""The work of `ep compare`: run a model in two ways and say how far the outputs lie apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core import InferenceSession
from ep_core.discovery.registry import registry
from ep_tools.console import Console
from ep_tools.differences import Difference, compare_values
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.inputs import InputSource
from ep_tools.layers import LayerReport, Opener, compare_layers
from ep_tools.layers_reduce import Reduced, check_reducing, reduce_model
from ep_tools.layers_show import figure, show_layers, show_reduced
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest, Tolerance
from ep_tools.sessions import (
    Model,
    OnnxRuntimeSession,
    Session,
    onnxruntime_module,
    open_session,
)
from ep_tools.sides import Side

__all__ = ["CompareRequest", "compare_outputs", "compare_sides", "difference_rows"]


@dataclass(frozen=True)
class CompareRequest:
    """What the command line of `ep compare` asks for.

    Attributes:
        session: what both sides have in common; a side's own words come first.
        layers: compare the results of all nodes too.
        isolate: with every node of side A fed from side B.
        reduce: where to save the smallest model that differs; None for nowhere.
    """

    session: SessionRequest
    feeds: FeedRequest
    sides: tuple[Side, Side]
    tolerance: Tolerance
    layers: bool
    isolate: bool = False
    reduce: str | None = None


def compare_sides(request: CompareRequest, *, as_json: bool) -> int:
    """Print how the outputs compare; return 0 if they agree, else 1.

    Raises:
        EpError: a side can't load or run the model.
    """
    console = Console()
    outputs: list[dict[str, Any]] = []
    placements: list[str | None] = []
    feeds: dict[str, Any] = {}
    sources: dict[str, InputSource] = {}
    for side in request.sides:
        _check_side(side)
    if request.reduce is not None:
        check_reducing(request.reduce)
    for side in request.sides:
        with Progress(console, f"running on {side.text}"):
            session = _open(request, side)
            try:
                if not outputs:
                    feeds, sources = feeds_for(session, request.feeds)
                with telling_of_random(sources):
                    outputs.append(_by_output(session, session.run(None, feeds)))
                placements.append(_placement(session))
            finally:
                session.close()
    differences = compare_outputs(outputs[0], outputs[1], request.tolerance)
    agree = all(difference.agrees for difference in differences)
    layers = _layers(console, request, feeds, differences) if request.layers else None
    reduced = None
    if layers is not None and request.reduce is not None and (layers.first or not agree):
        reduced = _reduced(console, request, feeds, layers, request.reduce)
    if as_json:
        console.json(_to_json(request, placements, differences, layers, reduced))
    else:
        _show(console, request, placements, differences)
        if layers is not None:
            show_layers(console, request.sides, layers)
        if request.reduce is not None:
            show_reduced(console, request.sides, reduced)
    return 0 if agree else 1


def _check_side(side: Side) -> None:
    """Find out what is missing on either side before a long run on the other."""
    if side.is_onnxruntime:
        onnxruntime_module()
    for name in side.providers or ():
        registry().factory(name)


def compare_outputs(
    ours: Mapping[str, Any], others: Mapping[str, Any], tolerance: Tolerance
) -> list[Difference]:
    """Compare outputs by name; both have the same names."""
    return [
        difference
        for name in ours
        for difference in compare_values(name, ours[name], others[name], tolerance)
    ]


def _open(request: CompareRequest, side: Side, model: Model | None = None) -> Session:
    changes: dict[str, Any] = {}
    if side.providers is not None:
        changes["providers"] = side.providers
    if side.level is not None:
        changes["level"] = side.level
    own = dataclasses.replace(request.session, **changes)
    return OnnxRuntimeSession(own, model) if side.is_onnxruntime else open_session(own, model)


def _by_output(session: Session, values: Sequence[Any]) -> dict[str, Any]:
    names = [arg.name for arg in session.get_outputs()]
    return dict(zip(names, values, strict=True))


def _placement(session: Session) -> str | None:
    return session.get_placement().summary if isinstance(session, InferenceSession) else None


def _layers(
    console: Console,
    request: CompareRequest,
    feeds: Mapping[str, Any],
    differences: Sequence[Difference],
) -> LayerReport:
    with Progress(console, "comparing layers") as progress:
        return compare_layers(
            request.session.model,
            _openers(request),
            feeds,
            request.tolerance,
            [difference.name for difference in differences if not difference.agrees],
            progress,
            isolate=request.isolate,
        )


def _reduced(
    console: Console,
    request: CompareRequest,
    feeds: Mapping[str, Any],
    layers: LayerReport,
    out: str,
) -> Reduced:
    first = None if layers.first is None else layers.first.index
    model, openers = request.session.model, _openers(request)
    with Progress(console, "reducing") as progress:
        return reduce_model(model, openers, feeds, request.tolerance, first, out, progress)


def _openers(request: CompareRequest) -> tuple[Opener, Opener]:
    a, b = request.sides
    return (lambda model: _open(request, a, model), lambda model: _open(request, b, model))


# ---------------------------------------------------------------- showing


def _to_json(
    request: CompareRequest,
    placements: Sequence[str | None],
    differences: Sequence[Difference],
    layers: LayerReport | None,
    reduced: Reduced | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "model": request.session.model,
        "sides": [
            {"side": side.text, "placement": placement}
            for side, placement in zip(request.sides, placements, strict=True)
        ],
        "rtol": request.tolerance.rtol,
        "atol": request.tolerance.atol,
        "agree": all(difference.agrees for difference in differences),
        "outputs": [difference.to_json() for difference in differences],
    }
    if layers is not None:
        document["layers"] = layers.to_json()
    if request.reduce is not None:
        document["reduced"] = None if reduced is None else reduced.to_json()
    return document


def _show(
    console: Console,
    request: CompareRequest,
    placements: Sequence[str | None],
    differences: Sequence[Difference],
) -> None:
    rows = [
        (console.style(letter, "bold"), side.text, placement or "")
        for letter, side, placement in zip("AB", request.sides, placements, strict=True)
    ]
    for line in console.columns(rows):
        console.line(line)
    console.line()
    for line in console.columns(difference_rows(console, differences)):
        console.line(line)
    wrong = sum(not difference.agrees for difference in differences)
    tolerance = f"(rtol {request.tolerance.rtol:g}, atol {request.tolerance.atol:g})"
    console.line()
    if wrong:
        text = f"{wrong} of {len(differences)} outputs differ"
        console.line(f"{console.style(text, 'red')} {tolerance}")
    else:
        console.line(f"{console.style('all outputs agree', 'green')} {tolerance}")


def difference_rows(
    console: Console, differences: Sequence[Difference]
) -> list[tuple[str, str, str, str, str]]:
    """Return a heading and a row per output, for `Console.columns`."""
    rows = [("output", "type and shape", "max abs error", "max rel error", "mismatches")]
    for entry in differences:
        if entry.problem:
            rows.append((entry.name, console.style(entry.problem, "red"), "", "", ""))
            continue
        wrong = f"{entry.mismatches} of {entry.elements}"
        if entry.nan_mismatches:
            wrong += f", {entry.nan_mismatches} NaN on one side only"
        rows.append(
            (
                entry.name,
                entry.kind,
                figure(entry.max_abs),
                figure(entry.max_rel),
                console.style(wrong, "red") if entry.mismatches else wrong,
            )
        )
    return rows
