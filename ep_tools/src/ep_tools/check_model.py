"""The work of `ep check`: whether a model runs where it should, before anybody relies on it.

The placement is that of a session; here it is only judged, and put into words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from ep_core import PlacementReport
from ep_core.discovery.registry import registry
from ep_core.errors import OptionError, PlacementError
from ep_core.loading.load import load_model
from ep_core.partition import CORE, NodePlacement
from ep_tools.check_prediction import Predicted, predict_against_cpu
from ep_tools.check_timing import Measured, measure_against_cpu
from ep_tools.console import Console, format_bytes, scoped, shorten
from ep_tools.explain_placing import place_model
from ep_tools.lengths import fix_lengths, tell_other_lengths
from ep_tools.progress import Progress
from ep_tools.refusals import Refusal, in_brief, refusals_of
from ep_tools.requests import FeedRequest, SessionRequest
from ep_tools.sessions import session_options

__all__ = ["CheckRequest", "check_model"]

_SHOWN_NODES = 4
_WIDTH = 48


@dataclass(frozen=True)
class CheckRequest:
    """What the command line of `ep check` asks for.

    Attributes:
        what_if: certificates that stand in for providers that aren't here.
        measure: time the model, also on the CPU provider alone.
    """

    session: SessionRequest
    feeds: FeedRequest
    what_if: Sequence[str]
    measure: bool


@dataclass(frozen=True)
class Verdict:
    """What came of a check.

    Attributes:
        runs: the named providers run all of it.
        text: the verdict in words.
        findings: nodes that a named provider refused.
        report: None where nobody runs some node.
        notes: what isn't known, in sentences.
    """

    runs: bool
    text: str
    findings: tuple[Refusal, ...] = ()
    report: PlacementReport | None = None
    notes: tuple[str, ...] = ()


def check_model(request: CheckRequest, *, as_json: bool) -> int:
    """Print whether the named providers run the model; return 0 if they do, else 1.

    Raises:
        EpError: the model can't be loaded, or a provider can't be opened.
    """
    if request.measure and request.what_if:
        raise OptionError("--measure needs the devices that --what-if only supposes")
    console = Console()
    session, feeds = fix_lengths(request.session, request.feeds)
    request = replace(request, session=session, feeds=feeds)
    header = _header(request.session)
    with Progress(console, f"placing {request.session.model}"):
        verdict = _judge(request)
    predicted = None
    if verdict.report is not None and verdict.report.partitions:
        with Progress(console, "predicting"):
            predicted = predict_against_cpu(request.session, verdict.report)
    measured = None
    if request.measure and verdict.report is not None:
        with Progress(console, "measuring") as progress:
            measured = measure_against_cpu(request.session, request.feeds, progress)
        if measured.others and predicted is not None and predicted.placed is not None:
            told = tell_other_lengths(measured.others)
            verdict = replace(verdict, notes=(*verdict.notes, told))
    if as_json:
        console.json(_to_json(request, header, verdict, predicted, measured))
    else:
        _show(console, header, verdict, predicted, measured)
    return 0 if verdict.runs else 1


def _header(request: SessionRequest) -> dict[str, Any]:
    """IR version and opsets; raises what loading raises, for example where onnx is too old."""
    options = session_options(request)
    graph = load_model(
        request.model, limits=options.load_limits, free_dimensions=options.free_dimensions
    ).graph
    proto = onnx.load_model(request.model, load_external_data=False)
    opsets = {domain or "ai.onnx": version for domain, version in graph.opsets.items()}
    return {"ir_version": proto.ir_version, "opsets": opsets}


def _judge(request: CheckRequest) -> Verdict:
    try:
        placed = place_model(request.session, request.what_if)
    except PlacementError as error:
        return Verdict(runs=False, text=f"The model can't run: {error}")
    report = placed.report
    absent = {provider.name for provider in placed.providers if provider.stands_in}
    named = _named(request.session.providers, report, absent)
    fallen = [
        (scope, node)
        for scope, node in _nodes(report)
        if node.provider != CORE and _base(node.provider) not in named
    ]
    text = _fallen_text(report, fallen) if fallen else _placed_text(report)
    return Verdict(
        runs=not fallen,
        text=text,
        findings=refusals_of(report, lambda provider: _base(provider) in named),
        report=report,
        notes=tuple(placed.notes),
    )


def _named(names: Sequence[str] | None, report: PlacementReport, absent: set[str]) -> set[str]:
    """Short names of the providers that the caller wants; all, if none are named."""
    if names is None:
        return {_base(name) for name in report.providers}
    known = {name for name in names if name in absent}
    return absent | known | {registry().factory(n).info.name for n in names if n not in absent}


def _base(name: str) -> str:
    """Without the device's id, by which two devices of one provider are told apart."""
    return name.split(":")[0]


def _nodes(report: PlacementReport) -> Iterator[tuple[str, NodePlacement]]:
    for scope, placements in report.nodes.items():
        for node in placements:
            yield scope, node


# ---------------------------------------------------------------- words


def _placed_text(report: PlacementReport) -> str:
    counts = Counter(node.provider for _, node in _nodes(report))
    total = sum(counts.values())
    flow = counts.pop(CORE, 0)
    if not counts:
        return "The model has nothing to run on a provider."
    if len(counts) == 1:
        (provider,) = counts
        who = f"All {total - flow} nodes run on {provider}" if total - flow > 1 else ""
        who = who or f"The only node runs on {provider}"
    else:
        parts = [f"{name} runs {count}" for name, count in counts.most_common()]
        who = f"Of {total - flow} nodes {_joined(parts)}"
    core = f"; {_count(flow, 'control-flow node')} stepped through by the core" if flow else ""
    return f"{who}, {_cost_text(report)}{core}."


def _fallen_text(report: PlacementReport, fallen: Sequence[tuple[str, NodePlacement]]) -> str:
    where = _joined(sorted({node.provider for _, node in fallen}))
    names = [
        f"{shorten(scoped(scope, node.node), _WIDTH)} ({node.op_type})" for scope, node in fallen
    ]
    rest = len(names) - _SHOWN_NODES
    shown = names[:_SHOWN_NODES] + ([f"{rest} more"] if rest > 0 else [])
    total = sum(1 for _ in _nodes(report))
    many = len(fallen) > 1
    if len(fallen) == total:
        if not many:
            return f"The only node doesn't run on a provider that was named; it falls to {where}."
        return f"None of the {total} nodes runs on a provider that was named: all fall to {where}."
    start = f"{len(fallen)} of {total} nodes {'fall' if many else 'falls'} to {where}"
    return f"{start}: {_joined(shown)}. The model runs {_cost_text(report)}."


def _cost_text(report: PlacementReport) -> str:
    parts = len(report.partitions)
    text = "in one partition" if parts == 1 else f"in {parts} partitions"
    if not report.copies:
        return f"{text} without copies"
    known = [copy.nbytes for copy in report.copies if copy.nbytes is not None]
    copies = f"{len(report.copies)} cop{'y' if len(report.copies) == 1 else 'ies'}"
    size = format_bytes(sum(known))
    if len(known) < len(report.copies):
        size = "of a size that depends on the inputs"
    else:
        size = f"of {size}"
    return f"{text} with {copies} {size}"


def _joined(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ---------------------------------------------------------------- showing


def _to_json(
    request: CheckRequest,
    header: Mapping[str, Any],
    verdict: Verdict,
    predicted: Predicted | None,
    measured: Measured | None,
) -> dict[str, Any]:
    report = verdict.report
    return {
        "model": request.session.model,
        **header,
        "runs": verdict.runs,
        "verdict": verdict.text,
        "not_run": [
            {"provider": item.provider, "reason": item.reason, "nodes": list(item.nodes)}
            for item in verdict.findings
        ],
        "partitions": None if report is None else len(report.partitions),
        "copies": None if report is None else len(report.copies),
        "refused_claims": [] if report is None else list(report.refused_claims),
        "notes": list(verdict.notes),
        "predicted": None if predicted is None else predicted.to_json(),
        "measured": None if measured is None else measured.to_json(),
    }


def _show(
    console: Console,
    header: Mapping[str, Any],
    verdict: Verdict,
    predicted: Predicted | None,
    measured: Measured | None,
) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in header["opsets"].items())
    console.line(
        f"{console.style('format', 'bold')}     IR version {header['ir_version']}, opset {opsets}"
    )
    if verdict.report is not None:
        console.line(f"{console.style('placement', 'bold')}  {verdict.report.summary}")
        for reason in verdict.report.refused_claims:
            console.line(f"{console.style('compile', 'bold')}    {reason}")
    for item in in_brief(verdict.findings):
        rest = len(item.nodes) - _SHOWN_NODES
        shown = ", ".join(shorten(name, _WIDTH) for name in item.nodes[:_SHOWN_NODES])
        more = f" and {rest} more" if rest > 0 else ""
        console.line(f"{console.style('not on', 'bold')}     {item.provider}: {item.reason}")
        console.line(f"           {_count(len(item.nodes), 'node')}: {shown}{more}")
    for note in verdict.notes:
        console.line(f"{console.style('note', 'bold')}       {note}")
    console.line()
    console.line(console.style(verdict.text, "green" if verdict.runs else "red"))
    if predicted is not None:
        console.line(predicted.text)
    if measured is not None:
        console.line(f"Measured: {measured.text}")
