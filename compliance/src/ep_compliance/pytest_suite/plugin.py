"""The pytest plugin: options, and the hook that puts the kit's jobs in place of `test_compliance`.

Loaded in every run of pytest where the kit is installed, so it must be light and get in nobody's
way. Collecting and running stand in `pytest_items`, which is loaded when a suite is collected.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ep_compliance.pytest_suite.run import Settings


_GROUP = "ep-compliance"

_OPTIONS: dict[str, dict[str, Any]] = {
    "provider": {"metavar": "NAME", "help": "the execution provider that is put to the test"},
    "device": {"metavar": "ID", "help": "one of its devices (default: the first)"},
    "option": {
        "metavar": "K=V",
        "action": "append",
        "help": "an option of the provider; may be repeated",
    },
    "level": {"metavar": "L", "help": "how thorough: mustpass, full (default) or soak"},
    "waivers": {"metavar": "FILE", "help": "known failures (waivers.toml)"},
    "overrides": {"metavar": "FILE", "help": "wider tolerances of single cases (overrides.toml)"},
}
"""Each has a long name that is ours alone, and a short one if nobody else has that."""

_INI = {
    "provider": "the execution provider that the compliance suite puts to the test",
    "device": "one of its devices",
    "level": "how thorough: mustpass, full or soak",
    "waivers": "file of known failures, relative to the configuration file",
    "overrides": "file of wider tolerances of single cases, relative to the configuration file",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the long names, and the settings of a configuration file."""
    group = parser.getgroup(_GROUP, "compliance of an ONNX execution provider (ep-compliance)")
    for name, settings in _OPTIONS.items():
        group.addoption(f"--ep-{name}", dest=f"ep_{name}", **settings)
    group.addoption(
        "--ep-jobs",
        type=int,
        dest="ep_jobs",
        metavar="N",
        help="worker processes of the suite (default: one per processor; with xdist, one each)",
    )
    for name, text in _INI.items():
        parser.addini(f"ep_{name}", text)
    parser.addini("ep_options", "options of the provider, K=V each", type="args")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, Any]:
    """Add the short names last, so that a project's own --device, say, stays what it was."""
    result = yield
    group = parser.getgroup(_GROUP)
    for name, settings in _OPTIONS.items():
        if _is_free(parser, f"--{name}"):
            short = {**settings, "help": f"the same as --ep-{name}"}
            group.addoption(f"--{name}", dest=f"ep_{name}", **short)
    return result


def _is_free(parser: pytest.Parser, option: str) -> bool:
    text = f"{option}=x"
    try:
        return text in parser.parse_known_and_unknown_args([text])[1]
    except pytest.UsageError:
        # It is there, and 'x' isn't what it wants.
        return False


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    """Collect cases and checks where a module has imported `test_compliance`."""
    if name != "test_compliance" or getattr(obj, "__module__", "") != "ep_compliance.suite":
        return None
    from ep_compliance.pytest_suite.items import SuiteCollector

    settings = _settings(collector.config)
    suite: pytest.Collector = SuiteCollector.from_parent(collector, name=name, settings=settings)
    return suite


def _settings(config: pytest.Config) -> Settings:
    from ep_compliance.pytest_suite.run import Settings

    def value(name: str) -> str:
        return str(config.getoption(f"ep_{name}") or config.getini(f"ep_{name}"))

    def file(name: str) -> Path | None:
        if given := config.getoption(f"ep_{name}"):
            return Path(config.invocation_params.dir, given)
        folder = config.inipath.parent if config.inipath else config.rootpath
        found = config.getini(f"ep_{name}")
        return Path(folder, found) if found else None

    return Settings(
        provider=value("provider"),
        device=value("device"),
        options=tuple(config.getoption("ep_option") or config.getini("ep_options")),
        level=value("level") or "full",
        waivers=file("waivers"),
        overrides=file("overrides"),
        workers=config.getoption("ep_jobs"),
    )
