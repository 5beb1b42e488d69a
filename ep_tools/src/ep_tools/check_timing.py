"""Times a model on the providers that were asked for and on the CPU provider alone, in turns."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from ep_tools.console import format_seconds
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.lengths import OtherLength, other_lengths
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest
from ep_tools.sessions import open_session
from ep_tools.timing import Pace, Statistics, ratio_spread, take_turns, timed_run

__all__ = ["Measured", "measure_against_cpu"]

_CPU = "cpu"
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of the seconds of a run.

    Attributes:
        placed: on the providers that were asked for.
        cpu: on the CPU provider alone; None where that is the same.
        low, high: the 10% and the 90% point of `placed / cpu` in the rounds.
        others: where predictions assume other lengths than were fed.
    """

    placed: float
    cpu: float | None = None
    low: float = 1.0
    high: float = 1.0
    others: tuple[OtherLength, ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        placed = format_seconds(self.placed)
        if self.cpu is None:
            return f"A run takes {placed}; the CPU alone is what was asked for."
        cpu = format_seconds(self.cpu)
        if self.low > 1:
            ratio = self.placed / self.cpu
            return f"The CPU alone is faster: {cpu} against {placed}, {ratio:.2g} times as fast."
        if self.high < 1:
            ratio = self.cpu / self.placed
            return f"It is {ratio:.2g} times as fast as the CPU alone: {placed} against {cpu}."
        return f"It is no faster and no slower than the CPU alone: {placed} against {cpu}."

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "seconds": self.placed,
            "seconds_on_cpu_alone": self.cpu,
            "ratio_spread": None if self.cpu is None else [self.low, self.high],
            "text": self.text,
        }


def measure_against_cpu(
    request: SessionRequest, feeds: FeedRequest, progress: Progress
) -> Measured:
    """Run the model both ways for two seconds.

    Raises:
        EpError: a side can't load or run the model, or there is no CPU provider.
    """
    own = [pair for pair in request.provider_options if pair[0] == _CPU]
    alone = replace(request, providers=[_CPU], provider_options=own)
    with contextlib.ExitStack() as undo:
        session = undo.enter_context(open_session(request))
        sessions = [session]
        if {node.provider for nodes in session.get_placement().nodes.values() for node in nodes} - {
            _CPU,
            "core",
        }:
            sessions.append(undo.enter_context(open_session(alone)))
        values, sources = feeds_for(session, feeds)
        others = other_lengths(session, request, values)
        with telling_of_random(sources):
            for one in sessions:
                one.run(None, values)
            estimates = [timed_run(one, values)[1] for one in sessions]
        rounds = take_turns(sessions, values, Pace(None, _SECONDS, 1), estimates, progress.update)
    medians = [Statistics.of(entries).p50 for entries in rounds]
    if len(medians) == 1:
        return Measured(medians[0], others=others)
    placed, cpu = medians
    return Measured(placed, cpu, *ratio_spread(rounds), others)
