"""`ep certify` and `ep certificate`, as the frame of `ep` calls them."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import pytest
from zoo_cases import CASES

from ep_compliance.checks import all_checks
from ep_compliance.commands import certificate as certificate_module
from ep_compliance.commands import certify as certify_module
from ep_core.errors import EpError
from ep_core.hookspecs import COMMAND_GROUP

pytestmark = pytest.mark.usefixtures("site")

CHECKS = ("claims/pure", "options/defaults", "faults/close-twice")


def ep(*arguments):
    """Run a subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="ep")
    commands = parser.add_subparsers(required=True)
    for module in (certify_module, certificate_module):
        for command in module.ep_commands():
            sub = commands.add_parser(command.name, help=command.help)
            sub.set_defaults(command=command)
            command.configure(sub)
    args = parser.parse_args([str(argument) for argument in arguments])
    return args.command.run(args)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user's folder of its own, a folder to write to, and few cases."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    jobs = [*(all_checks()[name] for name in CHECKS), *CASES.values()]
    monkeypatch.setattr(
        certify_module,
        "collect_jobs",
        lambda level, pattern="": [job for job in jobs if job.level <= level],
    )
    return tmp_path


def installed(home):
    return sorted((home / "data" / "ep_core" / "certificates").glob("*.json"))


def test_a_correct_provider_gets_reports_and_a_certificate(home, capsys):
    assert ep("certify", "correct", "--jobs", 2, "--out", home / "out") == 0
    said = capsys.readouterr().out
    assert "17 cases and checks: 16 pass, 1 unsupported" in said
    names = sorted(path.name for path in (home / "out").iterdir())
    assert names == ["correct.jsonl", "report.html", "report.json", "report.xml"]
    (path,) = installed(home)
    assert json.loads(path.read_text())["provider"] == "correct"
    assert ep("certificate", "verify", "correct") == 0
    assert f"fits  {path}: level full" in capsys.readouterr().out


def test_a_failure_costs_its_row_and_the_exit_code(home, capsys):
    assert ep("certify", "crashes", "--out", home / "out") == 1
    said = capsys.readouterr().out
    assert "CRASH zoo/mul: the process crashed with SIGSEGV" in said
    (path,) = installed(home)
    granted = {row["op_type"] for row in json.loads(path.read_text())["rows"]}
    assert "Mul" not in granted
    assert "Add" in granted


def test_waivers_are_applied_and_strict(home, capsys):
    path = home / "waivers.toml"
    text = (
        '[[waiver]]\nid = "zoo/mul"\nreason = "broadcast"\nlink = "https://example.com"\n'
        'owner = "zoo"\nexpires = 9999-12-31\n'
    )
    path.write_text(text)
    assert ep("certify", "crashes", "--out", home / "out", "--waivers", path) == 0
    (made,) = installed(home)
    assert json.loads(made.read_text())["waivers"][0]["id"] == "zoo/mul"
    with pytest.raises(EpError, match="isn't needed any more"):
        ep("certify", "correct", "--out", home / "out", "--waivers", path)
    path.write_text(text.replace("zoo/mul", "zoo/add"))
    with pytest.raises(EpError, match="'zoo/add' must pass"):
        ep("certify", "crashes", "--out", home / "out", "--waivers", path)


def test_only_runs_what_matches_and_gives_no_certificate(home, capsys):
    assert ep("certify", "correct", "--only", "zoo/add*", "--out", home / "out") == 0
    said = capsys.readouterr().out
    assert "4 cases and checks" in said
    assert "no certificate, as --only leaves out cases" in said
    assert installed(home) == []
    with pytest.raises(EpError, match="matches 'nothing'"):
        ep("certify", "correct", "--only", "nothing", "--out", home / "out")


def test_resume_takes_verdicts_over_for_the_same_target_only(home, capsys):
    ep("certify", "correct", "--only", "zoo/*", "--jobs", 1, "--out", home / "out")
    journal = home / "out" / "correct.jsonl"
    lines = journal.read_text().splitlines()
    forged = [line.replace('"pass"', '"timeout"') if "zoo/sqrt" in line else line for line in lines]
    journal.write_text("\n".join(forged[:-2]) + "\n")
    arguments = ["certify", "correct", "--only", "zoo/*", "--out", home / "out", "--resume"]
    assert ep(*arguments) == 1
    assert "TIMEOUT zoo/sqrt" in capsys.readouterr().out
    assert ep(*arguments, "--option", "threads=2") == 0


def test_levels_choose_cases(home, capsys):
    assert ep("certify", "correct", "--level", "mustpass", "--out", home / "out") == 0
    assert "4 cases and checks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["no_such"], "no provider 'no_such' is installed"),
        (["correct", "--device", "7"], "no such device"),
        (["correct", "--option", "threads"], "expected KEY=VALUE"),
        (["correct", "--option", "thread=2"], "Did you mean 'threads'"),
        (["correct", "--option", "threads=none"], "can't be 'none'"),
        (["correct", "--jobs", "0"], "at least 1"),
        (["correct", "--waivers", "none.toml"], "can't read none.toml"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments, saying):
    with pytest.raises(EpError, match=saying):
        ep("certify", *arguments)


def test_a_provider_that_cant_be_opened_gets_nothing(home):
    with pytest.raises(EpError, match=r"incomplete: 17 jobs were not run .*exit code 9"):
        ep("certify", "cant_open", "--out", home / "out")


def test_the_entry_points_are_declared():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    found = project["entry-points"][COMMAND_GROUP]
    assert found["certify"] == "ep_compliance.commands.certify"
    assert found["certificate"] == "ep_compliance.commands.certificate"
