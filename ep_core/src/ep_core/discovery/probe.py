"""Trying a provider out in a child process, where a crash or a hang costs nothing.

The child imports the plugin, makes its factory and lists its devices, and notes each stage in a
file before it starts it: how the child ended, and after which note, is the verdict. The child is
started by command line and never runs the user's `__main__`.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ep_core.discovery.plugins import (
    PluginEntry,
    check_devices,
    load_plugin,
    make_factory,
    plugin_manager,
    reason_of,
)
from ep_core.errors import OptionError, ProviderError

# The parent's sys.path is set before anything but the standard library is imported.
_BOOT = (
    "import json, sys\n"
    "with open(sys.argv[1] + '/request.json', encoding='utf-8') as file:\n"
    "    request = json.load(file)\n"
    "sys.path[:] = request['path']\n"
    "from ep_core.discovery import probe\n"
    "probe.main(sys.argv[1], request)\n"
)
_START_LIMIT = 60.0
_POLL_INTERVAL = 0.005
_STAGES = {
    "import": "while being imported",
    "factory": "in ep_provider_factory()",
    "devices": "in devices()",
}


class Outcome(enum.Enum):
    """How a probe ended. RAISED is an ordinary exception; UNTRIED means that no child could run."""

    SURVIVED = "survived"
    RAISED = "raised"
    CRASHED = "crashed"
    HUNG = "hung"
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe found, with a reason for a person; `limit` is the time it had, in seconds."""

    outcome: Outcome
    reason: str = ""
    limit: float = 0.0


def time_limit() -> float:
    """Seconds a plugin has to answer a probe, from `EP_PROBE_TIMEOUT`; 0 switches probing off.

    Raises:
        OptionError: the variable isn't a number of seconds.
    """
    text = os.environ.get("EP_PROBE_TIMEOUT", "60")
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0.0 <= limit <= 86400.0:
        raise OptionError(
            "environment variable EP_PROBE_TIMEOUT", expected="seconds, 0 to 86400", got=repr(text)
        )
    return limit


# ---------------------------------------------------------------- in the parent


def probe(entries: Sequence[PluginEntry], limit: float) -> list[Verdict]:
    """Try plugins out side by side, one child process each, and wait for all verdicts."""
    with contextlib.ExitStack() as stack:
        children = [_Child(entry, limit) for entry in entries]
        for child in children:
            stack.callback(child.close)
            child.start()
        while True:
            verdicts = [child.poll() for child in children]
            done = [verdict for verdict in verdicts if verdict is not None]
            if len(done) == len(children):
                return done
            time.sleep(_POLL_INTERVAL)


class _Child:
    """One child process and the folder through which it reports."""

    def __init__(self, entry: PluginEntry, limit: float) -> None:
        self._entry = entry
        self._limit = limit
        self._verdict: Verdict | None = None
        self._stack = contextlib.ExitStack()
        self._stages = ""
        self._deadline = time.monotonic() + _START_LIMIT

    def start(self) -> None:
        """Start the process; a system that doesn't let us leaves the plugin untried."""
        try:
            self._start()
        except OSError as error:
            self._verdict = Verdict(Outcome.UNTRIED, f"no child process: {error}")

    def close(self) -> None:
        """End the process if it still runs and remove its folder."""
        self._stack.close()

    def _start(self) -> None:
        # A frozen application's executable would start the application again.
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this program has no Python interpreter to start")
        temporary = tempfile.TemporaryDirectory(prefix="ep_probe_", ignore_cleanup_errors=True)
        self._folder = Path(self._stack.enter_context(temporary))
        request = {
            "path": [item for item in sys.path if isinstance(item, str)],
            "group": self._entry.group,
            "name": self._entry.name,
            "value": self._entry.value,
        }
        (self._folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        flags = ["-I"] if sys.flags.isolated else ["-P"]
        with (self._folder / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-W", "ignore", "-c", _BOOT, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                # A plugin that asks the registry must not start probes within probes.
                env={**os.environ, "EP_PROBE_TIMEOUT": "0"},
                start_new_session=True,
            )
        self._stack.callback(self._stop)

    def _stop(self) -> None:
        """End the child if it still runs, with whatever it has started itself."""
        if self._process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

    def poll(self) -> Verdict | None:
        """Return the verdict if there is one yet; never blocks."""
        if self._verdict is not None:
            return self._verdict
        ended = self._process.poll() is not None
        had_started = bool(self._stages)
        self._stages = self._read("report")
        if self._stages and not had_started:
            self._deadline = time.monotonic() + self._limit
        if ended or time.monotonic() > self._deadline:
            self._stop()
            self._stages = self._read("report")
            self._verdict = self._judge(ended)
        return self._verdict

    def _judge(self, ended: bool) -> Verdict:
        lines = self._stages.splitlines()
        last_words = self._read("stderr").strip().splitlines()[-1:]
        if not lines:
            return Verdict(Outcome.UNTRIED, "; ".join(["the child did not start", *last_words]))
        kind, _, text = lines[-1].partition(" ")
        if kind == Outcome.SURVIVED.value:
            return Verdict(Outcome.SURVIVED)
        if kind == Outcome.RAISED.value:
            return Verdict(Outcome.RAISED, json.loads(text))
        outcome = Outcome.CRASHED if ended else Outcome.HUNG
        end = _how_it_ended(self._process.returncode) if ended else "did not answer"
        patience = "" if ended else f" within {self._limit:g} s"
        day = time.strftime("%Y-%m-%d")
        words = f" (its last words: {last_words[0][:200]})" if last_words else ""
        reason = (
            f"{end} {_STAGES[kind]}{patience} when it was probed on {day}{words}; "
            "`ep providers --recheck` tries again"
        )
        return Verdict(outcome, reason, self._limit)

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended the process with exit code {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"crashed with signal {-code}"


# ---------------------------------------------------------------- in the child


def main(folder: str, request: dict[str, str]) -> NoReturn:
    """Try one plugin, noting each stage in `folder`; ends the process without any clean-up."""
    _forbid_core_dumps()
    entry = PluginEntry(request["group"], request["name"], request["value"])
    with (Path(folder) / "report").open("a", encoding="utf-8", buffering=1) as report:
        try:
            print("import", file=report)
            manager = plugin_manager(load_plugin(entry), entry.name)
            print("factory", file=report)
            factory, _ = make_factory(manager, entry.name)
            print("devices", file=report)
            check_devices(factory, entry.name)
            print(Outcome.SURVIVED.value, file=report)
        except ProviderError as error:
            print(Outcome.RAISED.value, json.dumps(reason_of(error)), file=report)
    # Vendor libraries may crash or hang when a process is taken down; that isn't judged here.
    os._exit(0)


def _forbid_core_dumps() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
