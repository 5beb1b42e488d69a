"""Copies on streams, timed by looking: what each says of how right its time is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ep_core.profiling.trace import Trace
from ep_core.profiling.watching import CopyWatch, WatchedCopy

STALL_SECONDS = 0.03


class Happened:
    """An event that has happened at the look of this number; before each look it may sleep."""

    def __init__(self, look: int = 1, sleep: float = 0.0) -> None:
        self._left = look
        self._sleep = sleep

    def done(self) -> bool:
        time.sleep(self._sleep)
        self._left -= 1
        return self._left <= 0


class Failed(Happened):
    def done(self) -> bool:
        raise RuntimeError("the device was lost")


@pytest.fixture
def copies(tmp_path):
    """`copies([(row, begin, end), ...])`: each copy as the trace has it, by row, in order."""

    def watched(*given) -> dict[str, list[dict]]:
        trace = Trace(str(tmp_path / "trace"))
        watch = CopyWatch(trace)
        spans = []
        watch.add = spans.append  # all at once, so that the first look sees each
        for row, begin, end in given:
            events = iter([begin, end])
            stream = SimpleNamespace(record=lambda events=events: next(events))
            step = SimpleNamespace(execute=lambda values, state: None, label="copy")
            copy = WatchedCopy(step, 0, "copy x", row, {"value": "x"}, watch)
            copy.execute([], SimpleNamespace(stream=lambda number, stream=stream: stream))
        del watch.add
        for span in spans:
            span.row = span.row.split(",")[0]
            watch._new.put(span)
        watch._new.put(None)
        watch._serve()
        found: dict[str, list[dict]] = {}
        events = json.loads(Path(trace.write()).read_text())
        rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        for event in events:
            if event.get("cat") == "device copy":
                found.setdefault(rows[event["tid"]], []).append(event)
        return found

    return watched


def test_a_look_that_came_late_is_told(copies):
    """The end of the first copy may have come at any time while the other one kept the thread."""
    slow = Happened(sleep=STALL_SECONDS)
    found = copies(("a", Happened(), Happened(look=2)), ("b", slow, Happened()))
    assert found["a"][0]["args"]["right_to_us"] >= STALL_SECONDS * 1e6
    assert found["b"][0]["args"]["right_to_us"] >= STALL_SECONDS * 1e6
    assert found["a"][0]["args"]["value"] == "x"


def test_a_late_look_at_the_begin_counts_as_one_at_the_end(copies):
    """Begun and over within one look: all that is known is how long nobody had looked."""
    (copy,) = copies(("a", Happened(sleep=STALL_SECONDS), Happened()))["a"]
    assert copy["dur"] < copy["args"]["right_to_us"]


def test_a_copy_behind_another_is_not_unsure_for_as_long_as_that_took(copies):
    """It can't have begun before the one in front of it was over, which was looked at often."""
    first = ("a", Happened(), Happened(look=20, sleep=0.001))
    before, after = copies(first, ("a", Happened(), Happened()))["a"]
    assert after["ts"] >= before["ts"] + before["dur"]
    last_looks = [c["ts"] + c["dur"] - c["args"]["right_to_us"] for c in (before, after)]
    assert last_looks[1] > last_looks[0] - 0.01, "but for rounding"


def test_a_copy_that_fails_is_left_out(copies):
    found = copies(("a", Failed(), Happened()), ("b", Happened(), Failed()))
    assert found == {}
