from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ep_core.errors import FeedError
from ep_tools import cli
from ep_tools.cli import main

BAD_IMPORT = "import a_module_that_is_missing"
BAD_HOOK = """
from ep_core.hookspecs import hookimpl

@hookimpl
def ep_commands():
    raise RuntimeError("out of order")
"""
GOOD = """
import sys
from ep_core.errors import EpError
from ep_core.hookspecs import hookimpl

class Greet:
    name = "greet"
    help = "say hello"

    def configure(self, parser):
        parser.add_argument("who")

    def run(self, args):
        if args.who == "nobody":
            raise EpError("there is nobody", fix="Name somebody.")
        sys.stdout.write(f"hello {args.who}\\n")
        return 7

class Second(Greet):
    name = "second"

class Crooked(Greet):
    name = "crooked"

    def configure(self, parser):
        raise RuntimeError("bent")

@hookimpl
def ep_commands():
    return [Greet(), Second(), Crooked()]
"""


@pytest.fixture
def add_plugin(tmp_path: Path, monkeypatch):
    """Install a command plugin whose entry point and module have the given name."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, code: str) -> None:
        module = f"plugin_{name}"
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ep_core.commands]\n{name} = {module}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return add


class Raising:
    name = "providers"
    help = "raises what it is told to"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def configure(self, parser) -> None:
        pass

    def run(self, args) -> int:
        raise self.error


# ---------------------------------------------------------------- usage


def test_help_lists_commands_with_examples_and_exit_codes(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    for word in [
        "run",
        "providers",
        "bench",
        "compare",
        "explain",
        "info",
        "examples:",
        "exit codes:",
        "--debug",
    ]:
        assert word in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("command", ["run", "info", "providers", "explain", "bench", "compare"])
def test_each_command_has_help_with_examples(command, capsys):
    assert main([command, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ep 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "m.onnx", "--input", "x"],
        ["run", "m.onnx", "--dim", "n=-1"],
        ["run", "m.onnx", "--level", "5"],
        ["run", "m.onnx", "--repeat", "-1"],
        ["run", "m.onnx", "--providers", "a,,b"],
        ["run", "m.onnx", "--provider-option", "cpu"],
        ["providers", "--nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: ep" in shown.err


def test_help_is_light():
    code = (
        "import sys\nfrom ep_tools.cli import main\nmain(['--help'])\n"
        "heavy = {'numpy', 'onnx', 'PIL', 'ep_core', 'ep_sdk'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- errors


def test_an_ep_error_is_one_message_and_exit_code_1(monkeypatch, capsys):
    error = FeedError("input 'x'", expected="float", got="int", fix="Convert it.")
    monkeypatch.setattr(cli, "BUILT_IN", [Raising(error)])
    assert main(["providers"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "ep: error: input 'x'; expected float; got int. Convert it.\n"


@pytest.mark.parametrize("arguments", [["--debug", "providers"], ["providers", "--debug"]])
def test_debug_adds_the_traceback(arguments, monkeypatch, capsys):
    monkeypatch.setattr(cli, "BUILT_IN", [Raising(FeedError("no good"))])
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.endswith("ep: error: no good\n")


def test_a_mistake_of_ours_is_not_dressed_up(monkeypatch):
    monkeypatch.setattr(cli, "BUILT_IN", [Raising(ZeroDivisionError())])
    with pytest.raises(ZeroDivisionError):
        main(["providers"])


def test_ctrl_c_is_exit_code_130(monkeypatch, capsys):
    monkeypatch.setattr(cli, "BUILT_IN", [Raising(KeyboardInterrupt())])
    assert main(["providers"]) == 130
    assert capsys.readouterr().err == "ep: error: interrupted\n"


def test_a_reader_that_leaves_is_no_traceback():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "ep_tools", "providers", "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_message():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ep_tools", "providers", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert re.fullmatch(r"ep: error: can't write the output: .*\n", done.stderr)


def test_a_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["providers", "--json"]) == 0
    assert sys.stdout is None


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_closed_streams_are_no_error(add_plugin, tmp_path: Path):
    add_plugin("greet", GOOD)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for redirect in [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]:
        for arguments, code in [("greet world", 7), ("providers", 0), ("nonsense", 2)]:
            done = subprocess.run(
                ["/bin/sh", "-c", f'"{sys.executable}" -m ep_tools {arguments} {redirect}'],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == code, (arguments, redirect, done)
            assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- commands of plugins


def test_a_command_of_a_plugin_runs(add_plugin, capsys):
    add_plugin("greet", GOOD)
    assert main(["greet", "world"]) == 7
    assert capsys.readouterr().out == "hello world\n"
    assert main(["greet", "nobody"]) == 1
    assert capsys.readouterr().err == "ep: error: there is nobody. Name somebody.\n"
    assert main(["greet"]) == 2


def test_a_plugin_may_bring_several_commands(add_plugin, capsys):
    add_plugin("greet", GOOD)
    assert main(["second", "world"]) == 7


def test_help_lists_plugins_without_importing_them(add_plugin, capsys):
    add_plugin("greet", BAD_IMPORT)
    assert main(["--help"]) == 0
    shown = capsys.readouterr()
    assert "from plugin_greet 1.0" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("code", "reason"), [(BAD_IMPORT, "a_module_that_is_missing"), (BAD_HOOK, "out of order")]
)
def test_a_broken_plugin_costs_a_warning_and_its_own_command(add_plugin, code, reason, capsys):
    add_plugin("broken", code)
    add_plugin("greet", GOOD)
    assert main(["greet", "world"]) == 7
    shown = capsys.readouterr()
    assert shown.out == "hello world\n"
    (warning,) = shown.err.splitlines()
    assert warning.startswith("ep: warning: ")
    assert reason in warning
    assert main(["broken", "--any", "argument"]) == 1
    assert "ep: error: the command 'broken' can't be used" in capsys.readouterr().err
    assert main(["providers", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_command_whose_arguments_are_broken_is_named(add_plugin, capsys):
    add_plugin("greet", GOOD)
    assert main(["crooked"]) == 1
    shown = capsys.readouterr().err
    assert "RuntimeError: bent" in shown
    assert "ep: error: the command 'crooked' can't be used" in shown


def test_plugins_are_off_without_autoload(add_plugin, monkeypatch, capsys):
    add_plugin("greet", GOOD)
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    assert main(["--help"]) == 0
    assert "greet" not in capsys.readouterr().out
    assert main(["greet", "world"]) == 2


def test_damaged_metadata_costs_a_warning(add_plugin, tmp_path: Path, capsys):
    add_plugin("greet", GOOD)
    points = tmp_path / "plugin_greet-1.0.dist-info" / "entry_points.txt"
    points.write_bytes(b"[ep_core.commands]\ngreet = \xff\xfe\n")
    assert main(["--help"]) == 0
    assert "ep: warning: the metadata of" in capsys.readouterr().err
