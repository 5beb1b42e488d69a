"""The frame of `ep`: finds the command, runs it, turns errors into messages and exit codes.

What a command does stands in `commands/` or in a plugin. Heavy modules (numpy, onnx, the core) are
imported by the command that needs them, so that `ep --help` answers at once.

Exit codes: 0 done; 1 an error that the message explains, or outputs that differ where a command
compares them; 2 wrong usage; 130 interrupted by Ctrl-C; 141 whoever read the output went away.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ep_tools import plugins
from ep_tools.commands import BUILT_IN
from ep_tools.console import Console, OutputError

if TYPE_CHECKING:
    from ep_core.contracts import Command

__all__ = ["EXIT_ERROR", "EXIT_INTERRUPTED", "EXIT_OK", "EXIT_PIPE", "EXIT_USAGE", "main"]

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

_EPILOG = """\
examples:
  ep providers                              what can run models here
  ep info model.onnx                        what a model takes, gives and is made of
  ep run model.onnx --input x=random        run a model and see where each part ran
  ep explain model.onnx                     why each part runs where it does
  ep bench model.onnx --vs onnxruntime      how long a run takes, beside ONNX Runtime
  ep compare model.onnx level:0 level:99    whether two ways of running it give the same
  ep profile model.onnx                     where the time of a run goes
  ep check model.onnx --providers cpu       whether the providers run all of it
  ep run --help                             everything about one command

exit codes:
  0 done, 1 error (explained on stderr), outputs that differ (bench --vs, compare), or a model
  that doesn't fit (check),
  2 wrong usage, 130 interrupted, 141 output closed
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ep` with the given arguments (default: those of the process); return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with _open_streams():
        return _main(arguments, Console())


def _main(arguments: list[str], console: Console) -> int:
    try:
        code = _run(arguments, console)
        console.flush()
    except KeyboardInterrupt:
        console.error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_PIPE
    except OutputError as error:
        _silence_stdout()
        console.error(str(error))
        return EXIT_ERROR
    return code


@contextlib.contextmanager
def _open_streams() -> Iterator[None]:
    """Give commands something to write to where the caller closed stdout or stderr.

    It is the lowest free descriptor too, so that no file of ours becomes number 1 or 2, which
    libraries write to without asking.
    """
    with contextlib.ExitStack() as undo:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                nowhere = undo.enter_context(Path(os.devnull).open("w"))
                undo.callback(setattr, sys, name, None)
                setattr(sys, name, nowhere)
        yield


def _run(arguments: list[str], console: Console) -> int:
    try:
        args = _parser(arguments, console).parse_args(arguments)
        command: Command = args.command
        return command.run(args)
    except SystemExit as stop:
        # argparse has said what there is to say: help, version, or wrong usage.
        if isinstance(stop.code, str):
            raise
        return stop.code or EXIT_OK
    except Exception as error:
        if not _is_ep_error(error):
            raise
        if "--debug" in arguments:
            traceback.print_exc(file=console.err)
        console.error(str(error))
        return EXIT_ERROR


def _is_ep_error(error: Exception) -> bool:
    from ep_core.errors import EpError

    return isinstance(error, EpError)


def _parser(arguments: Sequence[str], console: Console) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ep",
        description="Run ONNX models on the execution providers that are installed here.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an error as well"
    )
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command_name", required=True
    )
    for command in BUILT_IN:
        _add(subparsers, command.name, command.help, command)
    _add_plugins(subparsers, arguments, console)
    return parser


def _add_plugins(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    arguments: Sequence[str],
    console: Console,
) -> None:
    """List every plugin command; import plugins only if the command asked for isn't ours."""
    ours = {command.name for command in BUILT_IN}
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    origins = plugins.list_commands(console.warning)
    if wanted is not None and wanted not in ours:
        found = plugins.find_command(wanted, console.warning)
        if found is not None:
            _add_foreign(subparsers, found, console)
        elif wanted in origins:
            raise _unusable(wanted)
        origins.pop(wanted, None)
    for name, origin in sorted(origins.items()):
        if name not in ours:
            _add(subparsers, name, f"from {origin}", None)


def _add_foreign(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    command: Command,
    console: Console,
) -> None:
    try:
        _add(subparsers, command.name, command.help, command)
    except Exception as error:
        console.warning(f"its arguments can't be set up: {type(error).__name__}: {error}")
        raise _unusable(command.name) from error


def _unusable(name: str) -> Exception:
    from ep_core.errors import NotSupportedError

    return NotSupportedError(
        f"the command '{name}' can't be used", fix="The warning above says why."
    )


def _add(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    command: Command | None,
) -> None:
    parser = subparsers.add_parser(
        name,
        help=text,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.set_defaults(command=command)
    if command is not None:
        command.configure(parser)


def _version() -> str:
    python = platform.python_version()
    return f"ep {version('ep-tools')} (ep-core {version('ep-core')}, Python {python})"


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush doesn't fail as well."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
