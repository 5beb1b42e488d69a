"""Probing in child processes and the verdicts that are remembered."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
import sys
import time

import pytest

from ep_core.discovery import probe as _probe
from ep_core.discovery import registry
from ep_core.discovery import verdicts as _verdicts
from ep_core.discovery.plugins import find_plugins
from ep_core.discovery.probe import Outcome, Verdict
from ep_core.discovery.registry import ProviderState, Registry
from ep_core.errors import OptionError, ProviderUnavailableError
from ep_core.hookspecs import PROVIDER_GROUP

PLUGIN = """
import os, sys, time
{on_import}
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo

class Factory:
    info = ProviderInfo("toy", "1.0", API_VERSION)
    def devices(self):
        {in_devices}
        return [DeviceInfo("toy", "0", "cpu")]
    def why_unavailable(self): return None
    def create(self, device, options): raise NotImplementedError

@hookimpl
def ep_provider_factory():
    return Factory()
"""
SEGFAULT = "import ctypes; ctypes.string_at(0)"


class Site:
    """One package `ep-toy` on sys.path; `write` changes what its plugin does."""

    def __init__(self, folder):
        self.folder = folder
        self.info = folder / "ep_toy-1.0.dist-info"
        self.info.mkdir(parents=True)
        self.set_version("1.0")
        (self.info / "entry_points.txt").write_text(f"[{PROVIDER_GROUP}]\ntoy = plug_toy\n")
        self.write()

    def set_version(self, version):
        text = f"Metadata-Version: 2.1\nName: ep-toy\nVersion: {version}\nRequires-Dist: ep-core\n"
        (self.info / "METADATA").write_text(text)

    def write(self, module="plug_toy", on_import="", in_devices="pass"):
        source = PLUGIN.format(on_import=on_import, in_devices=in_devices)
        (self.folder / f"{module}.py").write_text(source)

    @property
    def entry(self):
        (entry,) = find_plugins(PROVIDER_GROUP)
        return entry


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    real = importlib.metadata.distributions
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: real(path=[str(folder)]))
    site = Site(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EP_PROBE_TIMEOUT", "20")
    monkeypatch.delenv("EP_PLUGIN_AUTOLOAD", raising=False)
    yield site
    sys.modules.pop("plug_toy", None)


def forbid_children(monkeypatch):
    """From now on a probe fails the test."""

    def refuse(entries, limit):
        assert not entries, "a child process was started"
        return []

    monkeypatch.setattr(registry, "probe", refuse)


def verdict_of(site, limit=20.0):
    (verdict,) = _probe.probe([site.entry], limit)
    return verdict


# ---------------------------------------------------------------- what a child finds


def test_a_good_plugin_survives_though_it_prints(site):
    noise = "print('garbage'); os.write(1, b'{}'); os.write(2, b'noise')"
    site.write(on_import=noise, in_devices="print('survived')")
    assert verdict_of(site) == Verdict(Outcome.SURVIVED)


ENDS = {
    ("on_import", SEGFAULT): "crashed with SIGSEGV while being imported",
    ("in_devices", SEGFAULT): "crashed with SIGSEGV in devices()",
    ("in_devices", "os.abort()"): "crashed with SIGABRT in devices()",
    ("on_import", "os._exit(0)"): "ended the process with exit code 0 while being imported",
    ("in_devices", "os._exit(7)"): "ended the process with exit code 7 in devices()",
    ("on_import", "raise KeyboardInterrupt"): "crashed with SIGINT while being imported",
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_crash_is_told_with_its_place(site):
    entries = []
    for number, (where, what) in enumerate(ENDS):
        site.write(f"plug_end_{number}", **{where: what})
        entries.append(dataclasses.replace(site.entry, value=f"plug_end_{number}"))
    verdicts = _probe.probe(entries, 20.0)
    for verdict, reason in zip(verdicts, ENDS.values(), strict=True):
        assert verdict.outcome is Outcome.CRASHED
        assert verdict.reason.startswith(reason)
        assert time.strftime("%Y-%m") in verdict.reason
        assert "`ep providers --recheck` tries again" in verdict.reason


def test_last_words_are_kept(site):
    site.write(in_devices="os.write(2, b'first\\nvendor: no such chip\\n'); os.abort()")
    assert "its last words: vendor: no such chip" in verdict_of(site).reason


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raise ImportError('libtoy.so is missing')", "ImportError: libtoy.so is missing"),
        ("sys.exit(4)", "SystemExit: 4"),
    ],
)
def test_an_exception_is_told_as_it_is(site, what, reason):
    site.write(on_import=what)
    verdict = verdict_of(site)
    assert verdict.outcome is Outcome.RAISED
    assert f"importing 'plug_toy' raised {reason}" in verdict.reason


def test_a_hang_is_ended_with_everything_it_started(site, tmp_path):
    note = tmp_path / "pid"
    start = "import subprocess; p = subprocess.Popen(['sleep', '60']);"
    site.write(in_devices=f"{start} open({str(note)!r}, 'w').write(str(p.pid)); time.sleep(60)")
    started = time.monotonic()
    verdict = verdict_of(site, limit=0.7)
    assert time.monotonic() - started < 15
    assert verdict.outcome is Outcome.HUNG
    assert "did not answer in devices() within 0.7 s" in verdict.reason
    grandchild = int(note.read_text())
    for _ in range(200):
        if not is_running(grandchild):
            break
        time.sleep(0.01)
    assert not is_running(grandchild)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(status.stdout.strip()) and not status.stdout.startswith("Z")


def test_children_run_side_by_side(site, tmp_path):
    meet = (
        f"open({str(tmp_path)!r} + f'/here-{{os.getpid()}}', 'w').close(); "
        f"[time.sleep(0.01) for _ in iter(lambda: len(__import__('glob').glob("
        f"{str(tmp_path)!r} + '/here-*')) < 3, False)]"
    )
    site.write(in_devices=meet)
    # Each waits for the others; one after the other they would hang.
    verdicts = _probe.probe([site.entry] * 3, 20.0)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.SURVIVED] * 3


def test_nothing_is_left_behind(site, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    site.write(on_import="os.abort()")
    verdict_of(site)
    assert sorted(tmp_path.iterdir()) == before


def test_a_plugin_that_asks_the_registry_starts_no_further_child(site, tmp_path):
    note = tmp_path / "note"
    ask = "import ep_core.discovery.registry as r; s = r.registry().status('toy');"
    keep = f"open({str(note)!r}, 'a').write(os.environ['EP_PROBE_TIMEOUT'] + ' ')"
    site.write(in_devices=f"{ask} {keep}")
    assert verdict_of(site).outcome is Outcome.SURVIVED
    assert set(note.read_text().split()) == {"0"}


def test_without_an_interpreter_the_plugin_is_loaded_here(site, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    assert verdict_of(site).outcome is Outcome.UNTRIED
    assert Registry().available() == ("toy",)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert verdict_of(site).outcome is Outcome.UNTRIED


def test_a_program_that_is_no_python_is_no_crash_of_the_plugin(site, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert verdict_of(site).outcome is Outcome.UNTRIED


# ---------------------------------------------------------------- what is remembered


def test_the_first_use_probes_and_later_ones_do_not(site, monkeypatch):
    assert Registry().available() == ("toy",)
    forbid_children(monkeypatch)
    assert Registry().available() == ("toy",)


def test_a_crash_is_remembered_until_recheck(site, monkeypatch):
    site.write(on_import="os.abort()")
    first = Registry().status("toy")
    assert first.state is ProviderState.BROKEN
    assert first.reason.startswith("ep-toy 1.0: ")
    assert "plug_toy" not in sys.modules

    real, started = registry.probe, []
    monkeypatch.setattr(registry, "probe", lambda e, limit: started.extend(e) or real(e, limit))
    second = Registry()
    assert second.status("toy").reason == first.reason
    with pytest.raises(ProviderUnavailableError, match="while being imported"):
        second.factory("toy")
    assert started == []
    second.recheck()
    assert second.status("toy").state is ProviderState.BROKEN
    assert len(started) == 1


def test_an_exception_is_not_remembered(site):
    site.write(on_import="raise ImportError('not today')")
    assert "not today" in Registry().status("toy").reason
    assert _verdicts.recall(site.entry, 20) is None
    site.write()
    assert Registry().available() == ("toy",)


@pytest.mark.parametrize("change", ["file", "version", "record", "requirement"])
def test_a_changed_package_is_probed_again(site, monkeypatch, change):
    if change == "record":
        (site.info / "RECORD").write_text("plug_toy.py,sha256=AAAA,10\n")
    _verdicts.remember(site.entry, Verdict(Outcome.CRASHED, "boom", 20.0))
    assert _verdicts.recall(site.entry, 20) == Verdict(Outcome.CRASHED, "boom", 20.0)
    if change == "file":
        site.write(in_devices="pass  # repaired")
    elif change == "version":
        site.set_version("1.1")
    elif change == "record":
        (site.info / "RECORD").write_text("plug_toy.py,sha256=BBBB,10\n")
    else:
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "999")
    assert _verdicts.recall(site.entry, 20) is None


def test_a_longer_limit_gives_a_hang_another_chance(site):
    _verdicts.remember(site.entry, Verdict(Outcome.HUNG, "did not answer", 5.0))
    assert _verdicts.recall(site.entry, 5.0) is not None
    assert _verdicts.recall(site.entry, 4.0) is not None
    assert _verdicts.recall(site.entry, 6.0) is None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}', b'{"format": 1, "finge']
)
def test_a_corrupt_file_is_ignored_and_rewritten(site, tmp_path, damage):
    verdict = Verdict(Outcome.SURVIVED)
    _verdicts.remember(site.entry, verdict)
    (file,) = (tmp_path / "cache" / "probes").iterdir()
    file.write_bytes(damage)
    assert _verdicts.recall(site.entry, 20) is None
    _verdicts.remember(site.entry, verdict)
    assert _verdicts.recall(site.entry, 20) == verdict
    assert len(list(file.parent.iterdir())) == 1


def test_a_folder_that_cant_be_written_means_memory_only(site, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    one = Registry()
    assert one.available() == ("toy",)
    assert one.available() == ("toy",)
    one.recheck()


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert _verdicts.cache_folder() == tmp_path / "a"
    monkeypatch.delenv("EP_CACHE_DIR")
    assert _verdicts.cache_folder() == tmp_path / "b" / "ep_core"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert _verdicts.cache_folder() == tmp_path / "c" / ".cache" / "ep_core"


def test_metadata_too_damaged_for_a_fingerprint_is_not_remembered(site):
    entry = site.entry
    (site.info / "METADATA").unlink()
    _verdicts.remember(entry, Verdict(Outcome.SURVIVED))
    assert _verdicts.recall(entry, 20) is None


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_wrong_time_limit_is_an_option_error(site, monkeypatch, text):
    monkeypatch.setenv("EP_PROBE_TIMEOUT", text)
    with pytest.raises(OptionError, match="EP_PROBE_TIMEOUT"):
        Registry().providers()


def test_limit_zero_switches_probing_off(site, monkeypatch):
    forbid_children(monkeypatch)
    monkeypatch.setenv("EP_PROBE_TIMEOUT", "0")
    assert Registry().available() == ("toy",)


# ---------------------------------------------------------------- where it is started from

ASK = "from ep_core.discovery.registry import registry; print(registry().status('toy').state.value)"


def run_python(site, tmp_path, *arguments, **environment):
    """Run an interpreter with the package on its path, in a folder full of traps."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    for name in ("json", "numpy", "pluggy"):
        (folder / f"{name}.py").write_text("raise RuntimeError('taken from the working folder')")
    (tmp_path / "main.py").write_text(f"open('runs', 'a').write('x')\n{ASK}\n")
    path = os.pathsep.join([str(site.folder), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_from_a_script_without_a_main_guard(site, tmp_path):
    assert run_python(site, tmp_path, "../main.py") == ["available"]
    assert (tmp_path / "work" / "runs").read_text() == "x"


def test_from_a_command_line_with_safe_path_and_warnings_as_errors(site, tmp_path):
    site.write(on_import="import warnings; warnings.simplefilter('default')")
    found = run_python(site, tmp_path, "-W", "error", "-P", "-c", ASK, PYTHONSAFEPATH="1")
    assert found == ["available"]


def test_from_a_thread_with_ignored_child_signals(site, tmp_path):
    code = (
        "import signal, threading; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from ep_core.discovery.registry import registry\n"
        "def ask(): print(registry().status('toy').state.value)\n"
        "thread = threading.Thread(target=ask); thread.start(); thread.join()\n"
    )
    assert run_python(site, tmp_path, "-P", "-c", code) == ["available"]
