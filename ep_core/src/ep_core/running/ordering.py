"""When steps are issued, and what has to happen between them.

A planner says what is to be done; here follows from it which copies can start while the host works,
who waits for whom, and when memory goes back. Knows parties and slots; what a step does and where
values should lie was decided before.

A party is the host, or a stream by its number. What the host knows to be done, all work that it
submits later comes after.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ep_core.contracts import Allocator
from ep_core.running.plan import NO_STREAM, HostWait, Record, Release, Step, StreamWait
from ep_core.types import MemoryInfo, TensorType

__all__ = ["HOST", "Draft", "Order", "Slot", "hoisted"]

HOST = NO_STREAM
"""The host as a party that waits and produces, beside the streams 0, 1, ..."""


@dataclass(slots=True)
class Slot:
    """What is known of one slot.

    Attributes:
        value: name of what it holds.
        home: the party in whose order its memory was given out and goes back.
        allocator: takes the memory back; None for host memory.
        is_patient: it goes back once its home knows that all others are done with it, and its home
            doesn't wait for them.
        is_kept: not given back by the plan: a feed, a constant, an output.
        is_held: may live on inside a sequence, so its memory isn't used again.
        writable: its producer can write into given host memory of this type.
        pinner: the provider whose page-locked memory that should be, by its position.
    """

    memory: MemoryInfo
    value: str = ""
    home: int = HOST
    allocator: Allocator | None = None
    is_patient: bool = True
    is_kept: bool = False
    is_held: bool = False
    writable: TensorType | None = None
    pinner: int | None = None


@dataclass(slots=True)
class Draft:
    """A step, and what its place among the others depends on.

    Attributes:
        party: who does it.
        reads, makes: slots.
        is_copy: it may be issued as soon as its source is there.
    """

    step: Step
    party: int
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    is_copy: bool = False


def hoisted(drafts: Sequence[Draft], slots: Sequence[Slot]) -> list[Draft]:
    """Issue copies of streams ahead of work of the host that would keep it from doing so.

    A copy goes before the first step of the host that follows what makes its source; ahead of
    work of streams it wouldn't start sooner. One that takes a device's memory also follows the
    work of streams before it: earlier it would hold that memory for longer, and be in the way of
    copies that somebody waits for.
    """
    blocking = [at for at, draft in enumerate(drafts) if draft.party == HOST]
    places = [(at, 1) for at in range(len(drafts))]  # 0: right before that step
    maker = {slot: at for at, draft in enumerate(drafts) for slot in draft.makes}
    working = (0, 0)  # the place of the last work of a stream
    for at, draft in enumerate(drafts):
        if draft.party == HOST:
            continue
        if not draft.is_copy:
            working = places[at]
            continue
        after = [places[maker[slot]] for slot in draft.reads if slot in maker]
        if any(slots[slot].allocator is not None for slot in draft.makes):
            after.append(working)
        found = bisect.bisect_left(blocking, sum(max(after, default=(0, 0))))
        if found < len(blocking) and blocking[found] < at:
            places[at] = (blocking[found], 0)
    order = sorted(range(len(drafts)), key=places.__getitem__)
    return [drafts[at] for at in order]


@dataclass
class Order:
    """The steps of a plan with all that belongs between them.

    Positions are those of `drafts`.

    Args:
        events: number of the first slot that is free for events.

    Attributes:
        used: by slot the positions at which it is read.
        dead: by slot the position after which its memory is somebody else's.
        events: number of the first slot that is still free.
    """

    drafts: Sequence[Draft]
    slots: Sequence[Slot]
    events: int
    used: dict[int, list[int]] = field(init=False, default_factory=dict)
    dead: dict[int, int] = field(init=False, default_factory=dict)
    _event_at: dict[int, int] = field(init=False, default_factory=dict)
    _known: dict[int, dict[int, int]] = field(
        init=False, default_factory=dict
    )  # party -> stream -> position
    _done_at: dict[int, dict[int, int]] = field(
        init=False, default_factory=dict
    )  # position -> what is known
    _learned: set[int] = field(
        init=False, default_factory=set
    )  # parties that have waited for something
    _before: dict[int, list[Step]] = field(init=False, default_factory=dict)
    _after: dict[int, list[Step]] = field(init=False, default_factory=dict)
    _behind_record: dict[int, list[Step]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        made: dict[int, int] = {}
        for at, draft in enumerate(self.drafts):
            made.update(dict.fromkeys(draft.makes, at))
            for slot in draft.reads:
                self.used.setdefault(slot, []).append(at)
        self._touched = {slot: [at, *self.used.get(slot, ())] for slot, at in made.items()}
        ending: dict[int, list[int]] = {}
        for slot, touches in self._touched.items():
            if not self.slots[slot].is_kept:
                ending.setdefault(touches[-1], []).append(slot)
        last: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}  # by home: slots that others may still be using
        for at, draft in enumerate(self.drafts):
            sources = [made[slot] for slot in draft.reads if slot in made]
            self._wait(draft.party, sources, self._before.setdefault(at, []))
            if draft.party != HOST:
                last[draft.party] = at
                self._done_at[at] = {**self._knowledge(draft.party), draft.party: at}
            for home in [*waiting] if HOST in self._learned else self._learned & waiting.keys():
                ending.setdefault(at, []).extend(waiting.pop(home))
            self._learned.clear()
            self._give_back(ending.get(at, ()), at, waiting)
        # When the run returns nothing may be at work: the caller can change what was read.
        end = len(self.drafts)
        self._wait(HOST, last.values(), self._before.setdefault(end, []))
        remaining = [slot for slots in waiting.values() for slot in slots]
        self._give_back((s for s in remaining if self.slots[s].allocator is not None), end, {})

    def steps(self) -> tuple[Step, ...]:
        """All steps, in the order in which they are executed."""
        result: list[Step] = []
        for at in range(len(self.drafts) + 1):
            result += self._before.get(at, ())
            if at < len(self.drafts):
                result.append(self.drafts[at].step)
            result += self._after.get(at, ())
            if at in self._event_at:
                result.append(Record(self.drafts[at].party, self._event_at[at]))
            result += self._behind_record.get(at, ())
        return tuple(result)

    # ------------------------------------------------------------ waiting

    def _wait(self, party: int, positions: Iterable[int], steps: list[Step]) -> None:
        """Make a party wait for work of streams, unless it knows already that it is done."""
        for at in sorted(set(positions), reverse=True):
            if self._knows(party, at):
                continue
            if at not in self._event_at:
                self._event_at[at] = self.events
                self.events += 1
            known = self._known.setdefault(party, {})
            for stream, done in self._done_at[at].items():
                known[stream] = max(known.get(stream, -1), done)
            self._learned.add(party)
            event = self._event_at[at]
            steps.append(HostWait(event) if party == HOST else StreamWait(party, event))

    def _knows(self, party: int, at: int) -> bool:
        """True if what a party is given from now on comes after a step."""
        stream = self.drafts[at].party
        return stream in (HOST, party) or self._knowledge(party).get(stream, -1) >= at

    def _knowledge(self, party: int) -> dict[int, int]:
        """By stream the position up to which work given to a party from now on comes after it."""
        known = dict(self._known.get(HOST, {}))
        for stream, done in self._known.get(party, {}).items():
            known[stream] = max(known.get(stream, -1), done)
        return known

    # ------------------------------------------------------------ giving back

    def _give_back(self, slots: Iterable[int], at: int, waiting: dict[int, list[int]]) -> None:
        """Release slots after their last use, or note that others may still be using them."""
        late: list[tuple[int, list[int]]] = []
        for number in slots:
            home = self.slots[number].home
            others = [touch for touch in self._touched[number] if not self._knows(home, touch)]
            if not others:
                # Ahead of the event: who waits for it has this behind him as well.
                self._release(number, at, self._after)
            elif self.slots[number].is_patient:
                waiting.setdefault(home, []).append(number)
            else:
                late.append((number, others))
        for number, others in late:
            self._wait(self.slots[number].home, others, self._behind_record.setdefault(at, []))
            self._release(number, at, self._behind_record)

    def _release(self, number: int, at: int, steps: dict[int, list[Step]]) -> None:
        slot = self.slots[number]
        steps.setdefault(at, []).append(Release(number, slot.allocator, slot.home))
        self.dead[number] = at
