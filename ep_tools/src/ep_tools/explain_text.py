"""A placement as lines on a terminal, and the choice of nodes that somebody asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ep_core import PlacementReport
from ep_core.errors import OptionError, did_you_mean
from ep_core.partition import NodePlacement
from ep_tools.console import Console, format_bytes, format_seconds, scoped, shorten
from ep_tools.explain_deviations import Deviation, deviations
from ep_tools.explain_measured import MeasuredRuns
from ep_tools.refusals import in_brief, refusals_of

__all__ = ["NodeFilter", "Nodes", "show_deviations", "show_nodes", "show_placement"]

_SHOWN_ROWS = 12
_SHOWN_NODES = 4
_WIDTH = 48
_NARROW = 34
_LONGEST_ADVICE = 240

Nodes = Mapping[str, tuple[NodePlacement, ...]]
"""Nodes by scope."""


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes to show: those that meet all that is given.

    Attributes:
        node, op_type: patterns with `*` and `?` for names and operators.
        provider: who runs it.
    """

    node: str | None = None
    op_type: str | None = None
    provider: str | None = None

    def __bool__(self) -> bool:
        return (self.node, self.op_type, self.provider) != (None, None, None)

    def chosen(self, report: PlacementReport) -> Nodes:
        """The nodes by scope, without the scopes that have none of them.

        Raises:
            OptionError: there are none, which is more likely a slip than a wish.
        """
        found = {
            scope: tuple(node for node in nodes if self._fits(scope, node))
            for scope, nodes in report.nodes.items()
        }
        found = {scope: nodes for scope, nodes in found.items() if nodes}
        if not found and self:
            raise OptionError(f"no node fits {self._asked}", fix=self._advice(report))
        return found

    def _fits(self, scope: str, node: NodePlacement) -> bool:
        names = (node.node, scoped(scope, node.node))
        return (
            (self.node is None or any(fnmatchcase(name, self.node) for name in names))
            and (self.op_type is None or fnmatchcase(node.op_type, self.op_type))
            and self.provider in (None, node.provider)
        )

    @property
    def _asked(self) -> str:
        flags = {"--node": self.node, "--op": self.op_type, "--provider": self.provider}
        return " ".join(f"{flag} '{wish}'" for flag, wish in flags.items() if wish is not None)

    def _advice(self, report: PlacementReport) -> str:
        """What is there instead, of the first wish that alone fits nothing."""
        nodes = [node for nodes in report.nodes.values() for node in nodes]
        known = (
            (self.provider, {*report.providers, *(node.provider for node in nodes)}),
            (self.op_type, {node.op_type for node in nodes}),
            (self.node, {node.node for node in nodes}),
        )
        for wish, names in known:
            if wish is not None and not any(fnmatchcase(name, wish) for name in names):
                return _beginning(did_you_mean(wish, names))
        return "Each fits some nodes, and none fits all; leave one out."


def show_placement(
    console: Console,
    report: PlacementReport,
    *,
    every_node: bool,
    measured: MeasuredRuns | None = None,
) -> None:
    """Print the summary, the partitions, the copies, and the nodes or why they are where.

    Args:
        every_node: a line per node and nothing left out, in place of a summary.
        measured: what a trace says of the placement.
    """
    console.line(f"{console.style('placement', 'bold')}   {report.summary}")
    console.line(f"            by {report.strategy}: {report.basis}")
    if report.predicted_seconds is not None and report.greedy_seconds is not None:
        console.line(
            f"{console.style('predicted', 'bold')}   {format_seconds(report.predicted_seconds)} a "
            f"run; {format_seconds(report.greedy_seconds)} by greedy"
        )
    if measured is not None:
        console.line(
            f"{console.style('measured', 'bold')}    {format_seconds(measured.run_seconds)} a run, "
            f"the median of {measured.runs}"
        )
    for memory, peak in report.peak_bytes.items():
        if (peak.constant_bytes, peak.run_bytes) != (None, None):
            console.line(f"{console.style('memory', 'bold')}      {memory}: {peak}")
    limit = None if every_node else _SHOWN_ROWS
    _show_partitions(console, report, limit)
    _show_copies(console, report, limit)
    if measured is not None:
        show_deviations(console, deviations(report, measured), limit or 0)
    if every_node:
        show_nodes(console, report.nodes)
    else:
        _show_refusals(console, report)
    if report.refused_claims:
        _title(console, "claims that failed to compile")
        for reason in report.refused_claims:
            console.line(f"  {reason}")


def show_nodes(console: Console, nodes: Nodes) -> None:
    """Print a line per node: where it runs, why, who would be next, and who refused it."""
    _title(console, "nodes")
    rows: list[tuple[str, ...]] = []
    for scope, node in _each(nodes):
        after = f"{node.reason}; next: {node.runner_up}" if node.runner_up else node.reason
        if node.difference is not None:
            sign = "-" if node.difference < 0 else "+"
            after += f" ({sign}{format_seconds(abs(node.difference))})"
        refused = "".join(f"; not {name}: {why}" for name, why in node.refusals.items())
        cost = "" if node.seconds is None else f"; {format_seconds(node.seconds)} predicted"
        rows.append(
            (scoped(scope, node.node), node.op_type, node.provider, f"{after}{cost}{refused}")
        )
    _show_rows(console, rows, None)


def _show_partitions(console: Console, report: PlacementReport, limit: int | None) -> None:
    if not report.partitions:
        return
    _title(console, "partitions, in the order they run")
    rows = [
        (
            scoped(part.scope, part.name),
            f"{part.provider} ({part.device})",
            _count(len(part.nodes), "node"),
            f"{_count(len(part.inputs), 'input')}, {_count(len(part.outputs), 'output')}",
            _predicted(part.seconds),
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
            scoped(copy.scope, copy.value),
            f"{copy.source} -> {copy.target}",
            "unknown size" if copy.nbytes is None else format_bytes(copy.nbytes),
            _predicted(copy.seconds),
        )
        for copy in report.copies
    ]
    _show_rows(console, rows, limit)


def show_deviations(console: Console, found: Sequence[Deviation], limit: int) -> None:
    """Print what was predicted beside what was measured, the largest differences first.

    Args:
        limit: rows to show; 0 for all.
    """
    if not found:
        return
    console.line()
    rows = [("predicted and measured", "", "of a run", "predicted", "measured", "ratio")]
    for item in found[: limit or None]:
        ratio = f"{item.measured / item.predicted:.1f}" if item.predicted else ""
        times = (format_seconds(item.predicted), format_seconds(item.measured))
        rows.append((shorten(item.name, _NARROW), item.kind, item.where, *times, ratio))
    for line in console.columns(rows):
        console.line(line)
    if limit and len(found) > limit:
        console.line(f"and {len(found) - limit} more, nearer to what was predicted")


def _predicted(seconds: float | None) -> str:
    return "" if seconds is None else f"{format_seconds(seconds)} predicted"


def _show_refusals(console: Console, report: PlacementReport) -> None:
    """Nodes that a preferred provider doesn't run, together by provider and reason."""
    found = in_brief(refusals_of(report))
    if not found:
        return
    _title(console, "why not on a provider that you prefer")
    for item in found:
        shown = ", ".join(shorten(name, _WIDTH) for name in item.nodes[:_SHOWN_NODES])
        rest = len(item.nodes) - _SHOWN_NODES
        more = f" and {rest} more" if rest > 0 else ""
        console.line(f"  {console.style(item.provider, 'yellow')}: {item.reason}")
        console.line(f"    {_count(len(item.nodes), 'node')}: {shown}{more}")


def _each(nodes: Nodes) -> Iterator[tuple[str, NodePlacement]]:
    for scope, placements in nodes.items():
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


def _beginning(text: str) -> str:
    """A text of names, of which a large model has too many to list."""
    return text if len(text) <= _LONGEST_ADVICE else f"{text[:_LONGEST_ADVICE]}..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
