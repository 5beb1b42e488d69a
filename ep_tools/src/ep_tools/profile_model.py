"""The work of `ep profile`: run a model under the profiler, keep the trace, show what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ep_core import InferenceSession
from ep_core.errors import EpError
from ep_tools.console import Console, format_bytes, format_seconds, shorten
from ep_tools.explain_deviations import deviations
from ep_tools.explain_files import check_target, write_file
from ep_tools.explain_measured import MeasuredRuns, join_trace
from ep_tools.explain_placing import place_model
from ep_tools.explain_text import show_deviations
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.lengths import fix_lengths, other_lengths, tell_other_lengths
from ep_tools.page import page_html
from ep_tools.profile_summary import ProfileSummary, Share, summarise_trace
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest
from ep_tools.sessions import provider_options, session_options
from ep_tools.traces import read_trace

__all__ = ["ProfileRequest", "profile_model"]

_WIDTH = 28


def _moved(share: Share) -> str:
    return "" if share.nbytes is None else format_bytes(round(share.nbytes))


def _predicted(share: Share) -> str:
    return "" if share.predicted is None else format_seconds(share.predicted)


_EXTRAS = (("moved", _moved), ("predicted", _predicted))
"""Columns that a table has where there is something to say."""


@dataclass(frozen=True)
class ProfileRequest:
    """What the command line of `ep profile` asks for.

    Attributes:
        runs: that count.
        warmup: runs before them, in the trace but not in the figures.
        out: path of the trace; None for a name of its own in the current folder.
        top: rows of each table.
        html: where the page of the placement with the measured times goes; None for nowhere.
    """

    session: SessionRequest
    feeds: FeedRequest
    runs: int
    warmup: int
    out: str | None
    top: int
    html: str | None = None


def profile_model(request: ProfileRequest, *, as_json: bool) -> int:
    """Write a trace and print where the time goes; return the exit code.

    Raises:
        EpError: the model can't be loaded or run, or the trace or the page can't be written.
    """
    console = Console()
    fixed, feeding = fix_lengths(request.session, request.feeds)
    request = replace(request, session=fixed, feeds=feeding)
    if request.html is not None:
        check_target("--html", request.html)
    with Progress(console, f"loading {request.session.model}"):
        session = _profiled_session(request)
    with session:
        feeds, sources = feeds_for(session, request.feeds)
        total = request.warmup + request.runs
        with Progress(console, "running") as progress, telling_of_random(sources):
            for count in range(1, total + 1):
                session.run(None, feeds)
                progress.update(count, total)
        others = other_lengths(session, request.session, feeds)
        placement = session.get_placement()
        path = _kept(session.end_profiling(), request.out)
    summary = summarise_trace(path, request.warmup)
    measured = join_trace(placement, read_trace(path), path, request.warmup)
    apart = deviations(placement, measured)
    notes: list[str] = []
    if others and apart:
        notes.append(tell_other_lengths(others))
        summary, apart = summary.without_predictions(), []
    if request.html is not None:
        _write_page(console, request, measured, notes)
    if as_json:
        console.json(
            {
                "model": request.session.model,
                "trace": path,
                "placement": placement.summary,
                **summary.to_json(),
                "deviations": [item.to_json() for item in apart],
                "notes": notes,
            }
        )
        return 0
    console.line(f"{console.style('placement', 'bold')}  {placement.summary}")
    _show(console, summary, request.top)
    show_deviations(console, [item for item in apart if item.kind != "node"], request.top)
    console.line()
    for note in notes:
        console.line(f"{console.style('note', 'bold')}       {note}")
    console.line(f"{console.style('trace', 'bold')}      {path}, to be opened in ui.perfetto.dev")
    if request.html is not None:
        console.line(f"{console.style('page', 'bold')}       {request.html}, for a browser")
    return 0


def _write_page(
    console: Console, request: ProfileRequest, measured: MeasuredRuns, notes: Sequence[str]
) -> None:
    """Place the model once more, as the session did, since the page wants its graphs."""
    with Progress(console, f"drawing {request.session.model}"):
        placed = replace(place_model(request.session), measured=measured, notes=tuple(notes))
        page = page_html(placed, Path(request.session.model).name)
        write_file(Path(str(request.html)), f"{page}\n".encode())


def _profiled_session(request: ProfileRequest) -> InferenceSession:
    options = session_options(request.session)
    options.enable_profiling = True
    if request.out is not None:
        if Path(request.out).is_dir():
            raise EpError(f"--out {request.out} is a folder", expected="the path of a file")
        # Beside where it will be, so that a place that can't be written to is told before the run.
        options.profile_file_prefix = request.out
    return InferenceSession(
        request.session.model,
        sess_options=options,
        providers=request.session.providers,
        provider_options=provider_options(request.session),
    )


def _kept(path: str, out: str | None) -> str:
    """Give the trace the name that was asked for."""
    if out is None:
        return path
    try:
        Path(path).replace(out)
    except OSError as error:
        raise EpError(
            f"the trace can't be written to {out}", got=str(error), fix=f"It is in {path}."
        ) from error
    return out


# ---------------------------------------------------------------- showing


def _show(console: Console, summary: ProfileSummary, top: int) -> None:
    phases = ", ".join(f"{name} {format_seconds(s)}" for name, s in summary.phases.items())
    console.line(f"{console.style('session', 'bold')}    {phases}")
    mean = format_seconds(summary.run_seconds)
    runs = f"{mean} on average of {summary.runs}, profiling included"
    console.line(f"{console.style('run', 'bold')}        {runs}")
    _table(console, "slowest nodes", "operator", summary.nodes, top)
    _table(console, "operators", "", summary.operators, top)
    _table(console, "partitions", "", summary.partitions, top)
    _table(console, "copies", "way", summary.copies, top)
    _table(console, "waits", "", summary.waits, top)
    notes = [f"{name} doesn't tell the times of its nodes." for name in summary.silent]
    if any(share.queued for share in (*summary.partitions, *summary.copies, *summary.waits)):
        notes.append(
            "(queued): the time to hand the work to a device's stream. The device's own time is in "
            "its\nnodes, and the host's waiting for it in the waits."
        )
    if notes:
        console.line()
    for note in notes:
        console.line(note)


def _table(console: Console, title: str, kind: str, shares: Sequence[Share], top: int) -> None:
    if not shares:
        return
    console.line()
    shown = shares[:top]
    extras = [(name, text) for name, text in _EXTRAS if any(map(text, shown))]
    providers = any(share.provider for share in shown)
    heading = [title, *([kind] if kind else []), *(["provider"] if providers else [])]
    rows = [(*heading, "per run", "time of a run", "share", *(name for name, _ in extras))]
    for share in shown:
        name = shorten(share.name, _WIDTH) + (" (queued)" if share.queued else "")
        cells = [name, *([share.kind] if kind else []), *([share.provider] if providers else [])]
        figures = (f"{share.times:g}", format_seconds(share.seconds), f"{share.share:.1%}")
        rows.append((*cells, *figures, *(text(share) for _, text in extras)))
    for line in console.columns(rows):
        console.line(line)
    if len(shares) > len(shown):
        console.line(f"and {len(shares) - len(shown)} more, which --top and --json show")
