from __future__ import annotations

import io
import json

import numpy as np
import pytest

from ep_tools.console import Console, format_bytes, format_seconds, shorten


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours():
    out = Terminal()
    console = Console(out, out, {})
    console.line(console.style("cpu", "bold"))
    assert out.getvalue() == "\x1b[1mcpu\x1b[0m\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_none(environment):
    out = Terminal()
    console = Console(out, out, environment)
    console.line(console.style("cpu", "bold"))
    console.error("bad")
    assert out.getvalue() == "cpu\nep: error: bad\n"


def test_an_empty_no_color_does_not_count():
    # https://no-color.org: "when present and not an empty string".
    out = Terminal()
    console = Console(out, out, {"NO_COLOR": ""})
    assert console.style("cpu", "bold") != "cpu"


def test_a_pipe_gets_plain_text():
    out = io.StringIO()
    err = io.StringIO()
    console = Console(out, err, {})
    console.line(console.style("cpu", "red"))
    console.warning("odd")
    console.error("bad")
    assert out.getvalue() == "cpu\n"
    assert err.getvalue() == "ep: warning: odd\nep: error: bad\n"


def test_out_and_err_decide_for_themselves():
    out = io.StringIO()
    err = Terminal()
    console = Console(out, err, {})
    console.line(console.style("cpu", "red"))
    console.error("bad")
    assert out.getvalue() == "cpu\n"
    assert err.getvalue() == "\x1b[31mep: error:\x1b[0m bad\n"


def test_control_characters_are_shown_not_obeyed():
    for out in [io.StringIO(), Terminal()]:
        Console(out, out, {}).line("name\x1b]0;title\x07\r\x1b[2Jend")
        shown = out.getvalue()
        assert shown == "name\\x1b]0;title\\x07\\r\\x1b[2Jend\n"


def test_a_narrow_encoding_is_no_error():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    Console(out, out, {}).line("größe")
    out.flush()
    assert raw.getvalue() == b"gr\\xf6\\xdfe\n"


def test_columns_are_aligned_with_and_without_colours():
    for out in [io.StringIO(), Terminal()]:
        console = Console(out, out, {})
        lines = console.columns([("a", console.style("b", "bold"), "c"), ("aaa", "bbb", "")])
        for line in lines:
            console.line(line)
        plain = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert plain == "a    b    c\naaa  bbb\n"
    assert console.columns([]) == []


def test_json_has_numbers_and_escapes_that_are_json():
    out = io.StringIO()
    document = {
        "cost": float("nan"),
        "list": [float("inf"), (np.float32(0.5), -np.inf)],
        "count": np.int64(2**62),
        "flag": True,
        "none": None,
        3: "\x7f",
    }
    Console(out, out, {}).json(document)
    assert json.loads(out.getvalue(), parse_constant=pytest.fail) == {
        "cost": "nan",
        "list": ["inf", [0.5, "-inf"]],
        "count": 2**62,
        "flag": True,
        "none": None,
        "3": "\x7f",
    }


def test_numbers_are_aligned_to_the_right():
    console = Console(io.StringIO(), io.StringIO(), {})
    rows = [("", "a"), ("runs", "5"), ("min", "12 ms")]
    assert console.columns(rows, right=True) == ["          a", "runs      5", "min   12 ms"]


def test_long_names_keep_their_ends():
    assert shorten("short", 10) == "short"
    assert shorten("a/very/long/name", 10) == "...ng/name"


def test_json_is_one_document():
    out = io.StringIO()
    Console(out, out, {}).json({"name": "größe", "control": "\x1b"})
    assert json.loads(out.getvalue()) == {"name": "größe", "control": "\x1b"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0034, "3.40 ms"), (12e-6, "12.0 us"), (0, "0.0 us"), (60, "60.00 s")],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(512, "512 B"), (1536, "1.5 KiB"), (16 * 2**30, "16.0 GiB"), (2**41, "2.0 TiB")],
)
def test_bytes(count, text):
    assert format_bytes(count) == text
