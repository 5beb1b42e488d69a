from __future__ import annotations

import io

import pytest

from ep_tools.console import Console
from ep_tools.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pipe_sees_nothing():
    err = io.StringIO()
    with Progress(Console(err, err, {}), "working") as progress:
        progress.update(1, 2)
    assert err.getvalue() == ""


def test_a_dumb_terminal_sees_nothing(terminal):
    with Progress(Console(terminal, terminal, {"TERM": "dumb"}), "working") as progress:
        progress.update(1, 2)
    assert terminal.getvalue() == ""


def test_a_terminal_sees_a_bar_that_is_gone_in_the_end(terminal):
    out = io.StringIO()
    with Progress(Console(out, terminal, {"NO_COLOR": "1"}), "working") as progress:
        progress.update(1, 2, "one of two")
    drawn = terminal.getvalue().split("\r\x1b[K")
    assert drawn[1] == "working ..."
    assert drawn[2] == "working  " + "█" * 12 + "░" * 12 + "  50%  one of two"
    assert drawn[-1] == ""
    assert out.getvalue() == ""


def test_an_error_clears_the_bar_too(terminal):
    def work() -> None:
        with Progress(Console(terminal, terminal, {}), "working") as progress:
            progress.update(1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_it_draws_ten_times_a_second_and_at_the_end(terminal):
    clock = Clock()
    with Progress(Console(terminal, terminal, {}), "w", clock) as progress:
        for done in range(1, 1001):
            clock.now += 0.001
            progress.update(done, 1000)
    assert 10 <= terminal.getvalue().count("%") <= 12
    assert "100%" in terminal.getvalue()


def test_a_long_title_does_not_wrap(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with Progress(Console(terminal, terminal, {}), "x" * 100) as progress:
        progress.update(1, 1, "y" * 100)
    assert max(len(line) for line in terminal.getvalue().split("\r\x1b[K")) == 39


def test_an_encoding_without_blocks_gets_plain_signs():
    class Narrow(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    err = Narrow(io.BytesIO(), encoding="ascii", newline="")
    with Progress(Console(err, err, {}), "w") as progress:
        progress.update(1, 2)
    assert b"#" * 12 + b"-" * 12 in err.buffer.getvalue()
