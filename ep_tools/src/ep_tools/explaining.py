"""The work of `ep explain`: a placement, shown as lines and written in whichever forms are wanted.

Everything that can be wrong with the arguments is found before the model is placed, and placing is
done before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ep_core.errors import OptionError
from ep_tools.console import Console, format_bytes, json_text
from ep_tools.explain_dot import to_dot
from ep_tools.explain_files import check_target, write_file
from ep_tools.explain_measured import join_trace
from ep_tools.explain_partitions import check_folder, save_partitions
from ep_tools.explain_placing import Placed, place_model
from ep_tools.explain_text import NodeFilter, Nodes, show_nodes, show_placement
from ep_tools.page import page_html
from ep_tools.progress import Progress
from ep_tools.requests import SessionRequest
from ep_tools.traces import read_trace

__all__ = ["ExplainWishes", "explain_model"]

STDOUT = "-"
_OTHERWISE = (
    "The profiled session predicted other times than these, for other lengths, speeds or costs. "
    "Lengths that it fixed with --dim have to be given here too."
)


@dataclass(frozen=True)
class ExplainWishes:
    """What to show, and what to write.

    Attributes:
        every_node: a line per node, and nothing cut short.
        nodes: show these nodes only, each on a line.
        json, dot: a file, or `-` for stdout in place of the lines.
        html: a file.
        partitions: a folder for a model of each partition.
        force: write over models that are in that folder already.
        what_if: certificates that stand in for their providers.
        profile: a trace to join, None for none.
    """

    every_node: bool = False
    nodes: NodeFilter = field(default_factory=NodeFilter)
    json: str | None = None
    dot: str | None = None
    html: str | None = None
    partitions: str | None = None
    force: bool = False
    what_if: Sequence[str] = ()
    profile: str | None = None


def explain_model(request: SessionRequest, wishes: ExplainWishes) -> int:
    """Show where each node runs and why; return the exit code.

    It is 1 where a partition can't be saved as a valid model, of which a warning tells.

    Raises:
        EpError: the session can't be made, a filter fits no node, a file can't be written, or the
            trace isn't one of this placement.
    """
    _check(wishes)
    console = Console()
    trace = None if wishes.profile is None else read_trace(wishes.profile)
    with Progress(console, f"placing {request.model}"):
        placed = place_model(request, wishes.what_if)
    if trace is not None:
        measured = join_trace(placed.report, trace, str(wishes.profile))
        notes = placed.notes if measured.as_predicted else (*placed.notes, _OTHERWISE)
        placed = replace(placed, measured=measured, notes=notes)
    chosen = wishes.nodes.chosen(placed.report)
    quiet = STDOUT in (wishes.json, wishes.dot)
    if not quiet:
        _show(console, placed, chosen, wishes)
    complaints, written = _save(placed, wishes)
    for target, make in _forms(request.model, placed, wishes):
        if target == STDOUT:
            console.line(make())
        elif target is not None:
            content = f"{make()}\n".encode()
            write_file(Path(target), content)
            written.append(f"{target}, {format_bytes(len(content))}")
    if written and not quiet:
        console.line()
        for line in written:
            console.line(f"{console.style('written', 'bold')}     {line}")
    for complaint in complaints:
        console.warning(complaint)
    return 1 if complaints else 0


def _forms(
    model: str, placed: Placed, wishes: ExplainWishes
) -> tuple[tuple[str | None, Callable[[], str]], ...]:
    """Where each form goes, and what makes it."""
    title = Path(model).name
    return (
        (wishes.json, lambda: json_text(_document(model, placed, wishes.nodes))),
        (wishes.dot, lambda: to_dot(placed, title)),
        (wishes.html, lambda: page_html(placed, title)),
    )


def _show(console: Console, placed: Placed, chosen: Nodes, wishes: ExplainWishes) -> None:
    if wishes.nodes:
        console.line(f"{console.style('placement', 'bold')}   {placed.report.summary}")
        show_nodes(console, chosen)
    else:
        show_placement(
            console, placed.report, every_node=wishes.every_node, measured=placed.measured
        )
    if placed.notes:
        console.line()
        console.line(console.style("notes", "bold"))
        for note in placed.notes:
            console.line(f"  {note}")


def _save(placed: Placed, wishes: ExplainWishes) -> tuple[Sequence[str], list[str]]:
    """Save the partitions, if that is wanted; what to warn of, and what to say of the rest."""
    if wishes.partitions is None:
        return (), []
    saved = save_partitions(placed, Path(wishes.partitions), force=wishes.force)
    return saved.complaints, [f"{_models(len(saved.files))} in {wishes.partitions}"]


def _models(number: int) -> str:
    return "1 model" if number == 1 else f"{number} models"


def _check(wishes: ExplainWishes) -> None:
    if wishes.json == wishes.dot == STDOUT:
        raise OptionError("--json and --dot can't both go to stdout", fix="Give one a file.")
    for flag, target in (("--json", wishes.json), ("--dot", wishes.dot), ("--html", wishes.html)):
        if target is not None and (target != STDOUT or flag == "--html"):
            check_target(flag, target)
    if wishes.partitions is not None:
        check_folder(wishes.partitions)
    elif wishes.force:
        raise OptionError("--force without --save-partitions", fix="Leave it out.")


def _document(model: str, placed: Placed, nodes: NodeFilter) -> dict[str, Any]:
    """The report as JSON has it, with the steps and the notes beside it."""
    report = placed.report.to_dict()
    if nodes:
        chosen = {
            (scope, node.node)
            for scope, found in nodes.chosen(placed.report).items()
            for node in found
        }
        report["nodes"] = {
            scope: kept
            for scope, found in report["nodes"].items()
            if (kept := [node for node in found if (scope, node["node"]) in chosen])
        }
    steps = {
        scope: [_step(placed, scope, step.kind, step.index) for step in found]
        for scope, found in placed.steps.items()
    }
    measured = placed.measured
    return {
        "model": model,
        **report,
        "steps": steps,
        "notes": list(placed.notes),
        "measured": None if measured is None else measured.to_json(),
    }


def _step(placed: Placed, scope: str, kind: str, index: int) -> dict[str, str]:
    if kind == "partition":
        return {kind: placed.report.partitions[index].name}
    if kind == "copy":
        copy = placed.report.copies[index]
        return {kind: copy.value, "source": copy.source, "target": copy.target}
    return {kind: placed.graphs[scope].nodes[index].name}
