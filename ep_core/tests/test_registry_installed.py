"""The registry and packages on sys.path: entry points, clashes, damaged metadata, commands.

Probing in child processes is switched off here; it has tests of its own.
"""

from __future__ import annotations

import importlib.metadata
import sys
import textwrap

import pytest

from ep_core.discovery.registry import ProviderState, Registry
from ep_core.errors import OptionError, ProviderNotFoundError, ProviderUnavailableError
from ep_core.hookspecs import COMMAND_GROUP, PROVIDER_GROUP

GOOD = """
from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.hookspecs import hookimpl
from ep_core.types import DeviceInfo

class Factory:
    info = ProviderInfo(NAME, "1.0", API_VERSION)
    def devices(self): return [DeviceInfo(NAME, "0", "cpu")]
    def why_unavailable(self): return None
    def create(self, device, options): raise NotImplementedError

@hookimpl
def ep_provider_factory():
    return Factory()
"""

COMMANDS = """
from ep_core.hookspecs import hookimpl

class Greet:
    name = "greet"
    help = "Say hello."
    def configure(self, parser): pass
    def run(self, args): return 0

@hookimpl
def ep_commands():
    return [Greet()]
"""


class Packages:
    """Writes packages that importlib.metadata and import find, as if pip had installed them."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, distribution, modules, points, group=PROVIDER_GROUP):
        """`modules`: source by module name; `points`: module by entry point name."""
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        info = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text("\n".join(lines))
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        return info


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """An environment in which only the packages of this test are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    real = importlib.metadata.distributions
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: real(path=[str(folder)]))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EP_PROBE_TIMEOUT", "0")
    monkeypatch.delenv("EP_PLUGIN_AUTOLOAD", raising=False)
    yield Packages(folder)
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]


def good(name):
    return f"NAME = {name!r}\n{GOOD}"


def test_only_metadata_is_read_until_a_provider_is_wanted(packages):
    packages.install("ep-one", {"plug_one": good("one")}, {"one": "plug_one"})
    packages.install("ep-two", {"plug_two": good("two")}, {"two": "plug_two"})
    registry = Registry()
    assert registry.factory("one").info.name == "one"
    assert "plug_one" in sys.modules
    assert "plug_two" not in sys.modules
    assert [(s.name, s.distribution, s.version) for s in registry.providers()] == [
        ("one", "ep-one", "1.0"),
        ("two", "ep-two", "1.0"),
    ]
    assert registry.distribution("two").version == "1.0"


def test_providers_that_are_used_only_if_named_are_not_asked_for_devices(packages):
    asks = "def devices(self): asked.append(1); return"
    slow = f"asked = []\n{good('slow').replace('def devices(self): return', asks)}"
    quick = good("quick").replace("API_VERSION)", "API_VERSION, auto=True)")
    packages.install("ep-slow", {"plug_slow": slow}, {"slow": "plug_slow"})
    packages.install("ep-quick", {"plug_quick": quick}, {"quick": "plug_quick"})
    registry = Registry()
    assert registry.automatic() == ("quick",)
    assert sys.modules["plug_slow"].asked == []
    assert registry.available() == ("quick", "slow")
    assert sys.modules["plug_slow"].asked == [1]
    assert registry.automatic() == ("quick",)


def test_one_package_may_bring_two_providers(packages):
    modules = {"plug_a": good("a"), "plug_b": good("b")}
    packages.install("ep-pair", modules, {"a": "plug_a", "b": "plug_b"})
    assert Registry().available() == ("a", "b")


def test_two_packages_with_one_name_are_both_listed_and_neither_is_loaded(packages):
    packages.install("ep-left", {"plug_left": good("same")}, {"same": "plug_left"})
    packages.install("ep-right", {"plug_right": good("same")}, {"same": "plug_right"})
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    registry = Registry()
    clash = [status for status in registry.providers() if status.name == "same"]
    assert [status.distribution for status in clash] == ["ep-left", "ep-right"]
    for status in clash:
        assert status.state is ProviderState.BROKEN
        assert "ep-left 1.0" in status.reason
        assert "ep-right 1.0" in status.reason
    with pytest.raises(ProviderUnavailableError, match=r"ep-left 1\.0 and by ep-right 1\.0"):
        registry.factory("same")
    assert "plug_left" not in sys.modules
    assert registry.available() == ("good",)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("plug_missing", "No module named 'plug_missing'"),
        ("plug_good:nothing", "has no attribute 'nothing'"),
        ("not a module", "importing 'not a module' raised"),
        ("plug_syntax", "SyntaxError"),
        ("plug_exit", "SystemExit: 3"),
    ],
)
def test_an_entry_point_that_cant_be_imported(packages, value, reason):
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    modules = {"plug_syntax": "def f(:", "plug_exit": "raise SystemExit(3)"}
    packages.install("ep-bad", modules, {"bad": value})
    registry = Registry()
    status = registry.status("bad")
    assert status.state is ProviderState.BROKEN
    assert status.reason.startswith("ep-bad 1.0: importing ")
    assert reason in status.reason
    assert "author" in status.reason
    assert registry.available() == ("good",)


@pytest.mark.parametrize("damage", [b"[ep_core.providers]\nbad\n", b"ep_core.providers \xff\xfe"])
def test_damaged_metadata_costs_its_own_package_only(packages, damage):
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    info = packages.install("ep-bad", {}, {})
    (info / "entry_points.txt").write_bytes(damage)
    registry = Registry()
    assert registry.available() == ("good",)
    (broken,) = [s for s in registry.providers() if s.state is ProviderState.BROKEN]
    assert "is damaged" in broken.reason


def test_autoload_off_hides_every_package(packages, monkeypatch):
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    assert Registry().providers() == ()
    with pytest.raises(ProviderNotFoundError):
        Registry().factory("good")
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "off")
    with pytest.raises(OptionError, match="EP_PLUGIN_AUTOLOAD; expected 0 or 1; got off"):
        Registry().providers()


def test_a_plugin_by_hand_hides_an_installed_one(packages):
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    registry = Registry()
    installed = registry.factory("good")
    status = registry.register(sys.modules["plug_good"], name="good")
    assert status.distribution == ""
    assert registry.factory("good") is not installed
    registry.unregister("good")
    assert registry.factory("good") is installed


def test_recheck_finds_packages_installed_meanwhile(packages):
    registry = Registry()
    assert registry.providers() == ()
    packages.install("ep-good", {"plug_good": good("good")}, {"good": "plug_good"})
    assert registry.providers() == ()
    registry.recheck()
    assert registry.available() == ("good",)


def test_commands_are_loaded_and_broken_ones_reported(packages):
    broken = {
        "fails": "raise ImportError('no numpy')",
        "exits": "raise SystemExit(1)",
        "empty": "",
        "garbage": COMMANDS.replace("[Greet()]", "['greet']"),
        "bare": COMMANDS.replace("[Greet()]", "Greet()"),
        "silent": COMMANDS.replace('help = "Say hello."', "help = None"),
    }
    packages.install("tool-a", {"plug_greet": COMMANDS}, {"greet": "plug_greet"}, COMMAND_GROUP)
    for name, source in broken.items():
        modules = {f"plug_{name}": source}
        packages.install(f"tool-{name}", modules, {name: f"plug_{name}"}, COMMAND_GROUP)
    packages.install("tool-z", {"plug_again": COMMANDS}, {"z": "plug_again"}, COMMAND_GROUP)
    found = Registry().commands()
    assert [command.name for command in found.commands] == ["greet"]
    problems = {text.partition(" 1.0: ")[0]: text for text in found.problems}
    assert set(problems) == {
        "tool-fails",
        "tool-exits",
        "tool-garbage",
        "tool-bare",
        "tool-silent",
        "tool-z",
    }
    assert "ImportError: no numpy" in problems["tool-fails"]
    assert "SystemExit" in problems["tool-exits"]
    assert "Command objects; got str" in problems["tool-garbage"]
    assert "got Greet" in problems["tool-bare"]
    assert "'greet' exists already" in problems["tool-z"]


def test_autoload_off_hides_commands_too(packages, monkeypatch):
    packages.install("tool-a", {"plug_greet": COMMANDS}, {"greet": "plug_greet"}, COMMAND_GROUP)
    monkeypatch.setenv("EP_PLUGIN_AUTOLOAD", "0")
    assert Registry().commands().commands == ()
