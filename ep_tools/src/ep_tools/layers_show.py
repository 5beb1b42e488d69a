"""Shows what comparing layers has found, as lines."""

from __future__ import annotations

import math

from ep_tools.console import Console, shorten
from ep_tools.layers import Layer, LayerReport
from ep_tools.layers_reduce import Reduced
from ep_tools.outputs import OutputSummary
from ep_tools.sides import Side

__all__ = ["figure", "show_layers", "show_reduced"]

_SHOWN_LAYERS = 10
_MAX_NAME = 20
_MAX_TEXT = 28
_HEADING = ("#", "node", "operator", "value", "max abs error", "ulp", "nmse", "excess")


def figure(value: float | None) -> str:
    """An error in three digits, nothing where there is none to tell."""
    return "" if value is None else f"{value:.2e}" if value else "0"


def show_layers(console: Console, sides: tuple[Side, Side], report: LayerReport) -> None:
    """Show the worst results, and the first node that differs with what it read."""
    console.line()
    title = "nodes by themselves" if report.isolated else "layers"
    console.line(console.style(title, "bold"))
    for note in report.notes:
        console.line(f"  {note}")
    worst = sorted(
        (layer for layer in report.layers if layer.difference.excess > 0),
        key=lambda layer: (-layer.difference.excess, layer.index),
    )[:_SHOWN_LAYERS]
    if worst:
        rows: list[tuple[str, ...]] = [_HEADING]
        rows += [_row(console, layer) for layer in worst]
        for line in console.columns(rows):
            console.line(f"  {line}")
    console.line()
    if report.first is None:
        console.line("the first node that differs: none found")
        return
    _show_first(console, sides, report.first, report.inputs)


def _row(console: Console, layer: Layer) -> tuple[str, ...]:
    found = layer.difference
    ulp = "" if found.max_ulp is None else f"{found.max_ulp:.0f}"
    return (
        str(layer.index),
        shorten(layer.node, _MAX_NAME),
        layer.op_type,
        shorten(found.name, _MAX_NAME),
        figure(found.max_abs) or shorten(found.problem, _MAX_TEXT),
        ulp if len(ulp) < 9 else f"{found.max_ulp:.1e}",
        figure(found.nmse),
        _excess(console, layer),
    )


def _show_first(
    console: Console, sides: tuple[Side, Side], first: Layer, inputs: tuple[OutputSummary, ...]
) -> None:
    where = " and ".join(name for name in dict.fromkeys(first.providers) if name)
    console.line(
        f"the first node that differs: {console.style(first.node, 'bold')} ({first.op_type}), "
        f"number {first.index}, on {where}"
    )
    if first.difference.worst is not None:
        a, b = first.difference.worst_values
        place = f"{first.difference.name}{list(first.difference.worst)}"
        console.line(f"  {place} is {a!s} on {sides[0].text}, {b!s} on {sides[1].text}")
    rows = [(f"  reads {entry.name}", _kind(entry), _range(entry)) for entry in inputs]
    for line in console.columns(rows) if rows else ():
        console.line(line)


def _kind(entry: OutputSummary) -> str:
    return entry.type if entry.shape is None else f"{entry.type} {list(entry.shape)}"


def _range(entry: OutputSummary) -> str:
    parts = []
    if entry.minimum is not None and entry.maximum is not None:
        parts.append(f"{entry.minimum:.6g} to {entry.maximum:.6g}")
    if entry.nan:
        parts.append(f"{entry.nan} NaN")
    if entry.inf:
        parts.append(f"{entry.inf} infinite")
    return ", ".join(parts)


def _excess(console: Console, layer: Layer) -> str:
    excess = layer.difference.excess
    text = f"{excess:.2g}" if math.isfinite(excess) else "inf"
    return text if layer.difference.agrees else console.style(text, "red")


def show_reduced(console: Console, sides: tuple[Side, Side], reduced: Reduced | None) -> None:
    """Show where the reduced model is, and how to run it."""
    console.line()
    if reduced is None:
        console.line("nothing differs, so that there is nothing to reduce")
        return
    after, before = reduced.nodes
    console.line(
        f"reduced from {before} to {after} node{'' if after == 1 else 's'}: "
        f"{console.style(reduced.model, 'bold')}"
    )
    if reduced.note:
        console.line(f"  {reduced.note}")
    feeds = "".join(f" --input {feed}" for feed in reduced.feeds)
    console.line(f"  ep compare {reduced.model} {sides[0].text} {sides[1].text}{feeds}")
