"""The pytest plugin as a provider's own tests use it: real runs of pytest on animals of the zoo."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from ep_compliance.pytest_suite.run import Settings, SuiteRun
from ep_core.errors import EpError

ZOO = Path(__file__).parent / "zoo"
MODULE = "from ep_compliance.suite import test_compliance  # noqa: F401\n"

# Generating every case takes long; these are enough. The first has a wrong answer for one case.
FEW_JOBS = """
from zoo_cases import CASES
from ep_compliance.pytest_suite import run as suite_run
from ep_compliance.checks import all_checks

JOBS = [all_checks()["claims/pure"], all_checks()["options/defaults"], *CASES.values()]
suite_run.collect_jobs = lambda level: [job for job in JOBS if job.level <= level]
"""
WRONG = """
import numpy as np
from zoo_base import CorrectProvider, Plugin, table_with

class Wrong(CorrectProvider):
    table = table_with(Relu=lambda x: np.where(x > 0, x, x.dtype.type(0)))

class Gone(CorrectProvider):
    pass

wrong = Plugin(Wrong, "wrong")
gone = Plugin(Gone, "gone")
gone._factory.devices = lambda: []
gone._factory.why_unavailable = lambda: "the zoo is closed on Mondays"
"""
WAIVER = """
[[waiver]]
id = "{}"
reason = "no time for elephants"
link = "https://example.com/1"
owner = "keeper"
expires = {}
"""


class Done(NamedTuple):
    code: int
    text: str

    @property
    def counts(self):
        """Numbers by outcome, from the last line."""
        return {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", self.text.splitlines()[-1])}


@pytest.fixture
def run(site, tmp_path):
    """Run pytest in a folder with the one-line module, and a few jobs instead of all."""
    (tmp_path / "few_jobs.py").write_text(FEW_JOBS)
    (tmp_path / "zoo_wrong.py").write_text(WRONG)
    info = tmp_path / "zoo_wrong-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-wrong\nVersion: 1.0\n")
    points = "wrong = zoo_wrong:wrong\ngone = zoo_wrong:gone\n"
    (info / "entry_points.txt").write_text(f"[ep_core.providers]\n{points}")
    package = tmp_path / "package"
    (package / "tests").mkdir(parents=True)
    (package / "tests" / "test_it.py").write_text(MODULE)

    def run(*arguments, ini="", at="."):
        (package / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{ini}\n")
        path = os.pathsep.join(map(str, (tmp_path, site, ZOO)))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-W", "error", "-p", "few_jobs", *arguments],
            cwd=package / at,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout + done.stderr)

    run.folder = package
    return run


# ---------------------------------------------------------------- outcomes


def test_a_correct_provider_passes_all_that_it_claims(run):
    done = run("--provider", "correct", "-rs")
    assert done.code == 0, done.text
    assert done.counts == {"passed": 15, "skipped": 1}
    assert "test_it.py:1: unsupported: " in done.text


def test_a_defect_fails_its_case_and_says_how_to_repeat_it(run):
    done = run("--provider", "wrong", "--option", "threads=2")
    assert done.code == 1
    assert done.counts == {"failed": 1, "passed": 14, "skipped": 1}
    assert "FAILED tests/test_it.py::test_compliance::zoo/relu_special" in done.text
    assert "FAIL: " in done.text
    assert (
        "saving model and inputs: ep certify wrong --option threads=2 --only zoo/relu_special"
        in done.text
    )
    assert "Error" not in done.text, "no traceback of ours"


def test_a_crash_costs_one_item(run):
    done = run("--provider", "crashes", "--ep-jobs", "2", "--junitxml", "report.xml")
    assert done.counts == {"failed": 1, "passed": 14, "skipped": 1}
    assert "CRASH: the process crashed with SIGSEGV" in done.text
    (failed,) = ElementTree.parse(run.folder / "report.xml").findall(".//testcase[failure]")
    assert failed.get("name") == "zoo/mul"


def test_what_cannot_be_opened_is_an_error_that_ends_the_run(run):
    done = run("--provider", "cant_open")
    assert done.code == 2
    assert done.counts == {"error": 1}
    assert "not run: a worker process doesn't start: the process ended with exit" in done.text


def test_items_are_chosen_and_ended_as_usual(run):
    done = run("--provider", "crashes", "-k", "mul or add", "-x")
    assert done.counts == {"failed": 1, "passed": 4, "deselected": 10}
    done = run("--provider", "crashes", "--lf")
    assert done.counts == {"failed": 1, "deselected": 15}
    done = run("--provider", "crashes", "tests/test_it.py::test_compliance::zoo/add")
    assert done.counts == {"passed": 1}
    suite = "ep_compliance.suite::test_compliance::zoo/add"
    assert run("--provider", "crashes", "--pyargs", suite).counts == {"passed": 1}


@pytest.mark.skipif(not importlib.util.find_spec("xdist"), reason="needs pytest-xdist")
def test_xdist_spreads_the_items(run):
    done = run("--provider", "crashes", "-n", "2")
    assert done.counts == {"failed": 1, "passed": 14, "skipped": 1}
    assert "CRASH: the process crashed with SIGSEGV" in done.text


# ---------------------------------------------------------------- waivers and overrides


def test_waivers_are_strict(run):
    never, long_ago = "9999-12-31", "2020-01-01"
    waivers = [("zoo/mul", never), ("zoo/add", never), ("zoo/relu", long_ago)]
    waivers += [("zoo/sqrt", never), ("zoo/matmull", never)]
    text = "".join(WAIVER.format(*waiver) for waiver in waivers)
    (run.folder / "waivers.toml").write_text(text)
    done = run(ini='ep_provider = "crashes"\nep_waivers = "waivers.toml"', at="tests")
    assert done.counts == {"failed": 4, "passed": 11, "skipped": 1, "xfailed": 1}
    assert "'zoo/add' must pass; no waiver covers it" in done.text
    assert "the waiver for 'zoo/relu' has run out on 2020-01-01; its owner: keeper" in done.text
    assert "the waiver for 'zoo/sqrt' isn't needed any more: pass; remove it" in done.text
    assert "test_compliance::waiver/zoo/matmull" in done.text
    assert "Did you mean 'zoo/matmul'" in done.text


def test_a_waiver_rests_where_its_case_is_not_in_the_level(run):
    (run.folder / "w.toml").write_text(WAIVER.format("zoo/mul", "9999-12-31"))
    done = run("--provider", "crashes", "--waivers", "w.toml", "--level", "mustpass")
    assert done.code == 0, done.text
    assert done.counts == {"passed": 3}


def test_overrides_are_strict(run):
    text = '[[override]]\ncase = "{}"\nreason = "zoo"\nulps = 9\n'
    (run.folder / "o.toml").write_text(text.format("zoo/sqrt") + text.format("zoo/nothing"))
    done = run("--provider", "correct", "--overrides", "o.toml", "-k", "sqrt or nothing")
    assert done.counts == {"failed": 2, "deselected": 15}
    assert "the override of 'zoo/sqrt' isn't needed; remove it" in done.text
    assert "test_compliance::override/zoo/nothing" in done.text


# ---------------------------------------------------------------- settings


def test_the_command_line_wins_over_the_file(run):
    ini = 'ep_provider = "gone"\nep_level = "full"\nep_options = ["threads=0"]'
    done = run("--provider", "correct", "--level=mustpass", "--option", "threads=1", ini=ini)
    assert done.code == 0, done.text
    assert done.counts == {"passed": 3}


def test_what_is_wrong_is_said_without_a_traceback(run):
    done = run()
    assert done.code == 2
    assert "ERROR collecting tests/test_it.py" in done.text
    assert "ep-compliance: no provider is named. Add --provider NAME, or ep_provider" in done.text
    assert "Traceback" not in done.text
    done = run("--pyargs", "ep_compliance.suite", "--provider", "gone")
    assert done.code == 2
    assert "provider 'gone' can't be used: the zoo is closed on Mondays" in done.text
    assert "Traceback" not in done.text


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({"provider": "corect"}, "no provider 'corect' is installed. Did you mean 'correct'"),
        ({"device": "7"}, "no such device"),
        ({"options": ("x",)}, "expected KEY=VALUE"),
        ({"options": ("thread=2",)}, "Did you mean 'threads'"),
        ({"level": "ful"}, "no level 'ful'. Did you mean 'full'"),
        ({"workers": 0}, "--ep-jobs; expected at least 1"),
        ({"waivers": Path("none.toml")}, "none.toml"),
        ({"overrides": Path("none.toml")}, "none.toml"),
    ],
)
def test_wrong_settings_say_what_is_right(monkeypatch, changes, saying):
    monkeypatch.setattr("ep_compliance.pytest_suite.run.collect_jobs", lambda level: [])
    plain = Settings("correct", "", (), "full", None, None, None)
    with pytest.raises(EpError, match=saying):
        SuiteRun(dataclasses.replace(plain, **changes))


def test_options_of_a_project_stay_its_own(run):
    conftest = run.folder / "tests" / "conftest.py"
    conftest.write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--device', type=int)\n"
        "    parser.addoption('--level', action='store_true')\n"
        "def pytest_report_header(config):\n"
        '    return f\'own: {config.getoption("device")} {config.getoption("level")}\'\n'
    )
    arguments = ["--device", "7", "--level", "--ep-level", "mustpass", "--ep-device", "0"]
    done = run("--provider", "correct", *arguments, "tests")
    assert done.code == 0, done.text
    assert "own: 7 True" in done.text
    assert done.counts == {"passed": 3}


def test_without_its_plugin_the_module_fails_and_says_so(run):
    done = run("-p", "no:ep_compliance")
    assert done.code == 1
    assert "the pytest plugin of ep-compliance isn't loaded" in done.text


def test_the_plugin_is_declared():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {
        "ep_compliance": "ep_compliance.pytest_suite.plugin"
    }
    assert not any(name.startswith("pytest") for name in project["dependencies"])


def test_the_kit_does_without_pytest():
    code = (
        "import sys; sys.modules['pytest'] = None; "
        "import ep_compliance.commands.certify, ep_compliance.suite, ep_compliance.pytest_suite.run"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
