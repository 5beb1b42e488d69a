"""The work of `ep explain`: the placement report of a session, as lines or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ep_core import PlacementReport
from ep_core.partition import CORE, NodePlacement
from ep_tools.console import Console, format_bytes, shorten
from ep_tools.progress import Progress
from ep_tools.requests import SessionRequest
from ep_tools.sessions import open_session

__all__ = ["explain_model"]

_SHOWN_ROWS = 12
_SHOWN_NODES = 4
_WIDTH = 48


def explain_model(request: SessionRequest, *, every_node: bool, as_json: bool) -> int:
    """Print where each node runs and why; return the exit code.

    Args:
        request: how to make the session.
        every_node: a line per node and nothing left out, in place of a summary.
        as_json: one JSON document, which always has every node.

    Raises:
        EpError: the session can't be made.
    """
    console = Console()
    with Progress(console, f"placing {request.model}"), open_session(request) as session:
        report = session.get_placement()
    if as_json:
        console.json({"model": request.model, **report.to_dict()})
        return 0
    console.line(f"{console.style('placement', 'bold')}   {report.summary}")
    limit = None if every_node else _SHOWN_ROWS
    _show_partitions(console, report, limit)
    _show_copies(console, report, limit)
    if every_node:
        _show_nodes(console, report)
    else:
        _show_refusals(console, report)
    if report.refused_claims:
        _title(console, "claims that failed to compile")
        for reason in report.refused_claims:
            console.line(f"  {reason}")
    return 0


def _show_partitions(console: Console, report: PlacementReport, limit: int | None) -> None:
    if not report.partitions:
        return
    _title(console, "partitions, in the order they run")
    rows = [
        (
            _scoped(part.scope, part.name),
            f"{part.provider} ({part.device})",
            _count(len(part.nodes), "node"),
            f"{_count(len(part.inputs), 'input')}, {_count(len(part.outputs), 'output')}",
        )
        for part in report.partitions
    ]
    _show_rows(console, rows, limit)


def _show_copies(console: Console, report: PlacementReport, limit: int | None) -> None:
    if not report.copies:
        return
    _title(console, "copies between memories")
    rows = [
        (
            _scoped(copy.scope, copy.value),
            f"{copy.source} -> {copy.target}",
            "unknown size" if copy.nbytes is None else format_bytes(copy.nbytes),
        )
        for copy in report.copies
    ]
    _show_rows(console, rows, limit)


def _show_nodes(console: Console, report: PlacementReport) -> None:
    _title(console, "nodes")
    rows: list[tuple[str, ...]] = []
    for scope, node in _nodes(report):
        after = f"{node.reason}; next: {node.runner_up}" if node.runner_up else node.reason
        refused = "".join(f"; not {name}: {why}" for name, why in node.refusals.items())
        cost = "" if node.cost is None else f"; costs {node.cost:.3g} s"
        rows.append(
            (_scoped(scope, node.node), node.op_type, node.provider, f"{after}{cost}{refused}")
        )
    _show_rows(console, rows, None)


def _show_refusals(console: Console, report: PlacementReport) -> None:
    """Nodes that a preferred provider doesn't run, together by provider and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for scope, node in _nodes(report):
        if node.provider == CORE:
            continue  # control flow, which providers seldom take as a whole
        for provider, reason in node.refusals.items():
            groups.setdefault((provider, reason), []).append(_scoped(scope, node.node))
    if not groups:
        return
    _title(console, "why not on a provider that you prefer")
    for (provider, reason), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(shorten(name, _WIDTH) for name in names[:_SHOWN_NODES])
        more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
        console.line(f"  {console.style(provider, 'yellow')}: {reason}")
        console.line(f"    {_count(len(names), 'node')}: {shown}{more}")


def _nodes(report: PlacementReport) -> Iterator[tuple[str, NodePlacement]]:
    for scope, placements in report.nodes.items():
        for node in placements:
            yield scope, node


def _title(console: Console, text: str) -> None:
    console.line()
    console.line(console.style(text, "bold"))


def _show_rows(console: Console, rows: Sequence[tuple[str, ...]], limit: int | None) -> None:
    """Show rows whose first cell is a name; with a limit, no more of them and no long names."""
    if limit is not None:
        shown = rows[: limit - 1] if len(rows) > limit else rows
        rest = len(rows) - len(shown)
        rows = [(shorten(name, _WIDTH), *cells) for name, *cells in shown]
    for line in console.columns(rows):
        console.line(f"  {line}")
    if limit is not None and rest:
        console.line(f"  and {rest} more, which --all shows")


def _scoped(scope: str, name: str) -> str:
    return f"{scope}: {name}" if scope else name


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
