"""`ep certificate`, and what `ep certify` does with certificates, as `ep` calls them.

Runs are made up: that workers run the jobs is tested elsewhere.
"""

from __future__ import annotations

import argparse
import json
import shutil

import pytest
from zoo_cases import CASES

from ep_compliance.certificates.signing import signature_path
from ep_compliance.checks import all_checks
from ep_compliance.commands import certificate as certificate_module
from ep_compliance.commands import certify as certify_module
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import Results
from ep_core.errors import EpError

pytestmark = pytest.mark.usefixtures("site")

RELU, MUL, SQRT, ADD = (CASES[f"zoo/{name}"] for name in ("relu", "mul", "sqrt", "add"))
CHECK = all_checks()["claims/pure"]


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
def folder(tmp_path, monkeypatch):
    """A user's folder of its own, and a place to work in."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_pass(plan, on_progress):
    """What a run gives if every job passes."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    return Results(
        target=plan.target,
        device=plan.device,
        level=plan.level,
        jobs=plan.jobs,
        verdicts=[Verdict(job.id, Outcome.PASS) for job in plan.jobs],
        cases_hash="sha256:0",
        kit_version="0.1.0",
        date="2030-12-31",
    )


@pytest.fixture
def certify(monkeypatch):
    """Run `ep certify correct` on jobs that pass; returns the exit code."""
    monkeypatch.setattr(certify_module, "certify", all_pass)

    def run(*arguments, jobs=(RELU, MUL)):
        monkeypatch.setattr(certify_module, "collect_jobs", lambda *_: [CHECK, *jobs])
        return ep("certify", "correct", *arguments)

    return run


@pytest.fixture
def certificate(certify, folder):
    """A certificate of the provider `correct`, for Relu and Mul, in no folder of the core's."""
    assert certify("--certificate-folder", "made") == 0
    return (folder / "made" / "correct-zoo-1.json").rename(folder / "first.json")


def installed(folder):
    return folder / "data" / "ep_core" / "certificates" / "correct-zoo-1.json"


def changed(path, target, **changes):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return target


# ---------------------------------------------------------------- certify --diff


def test_lost_coverage_fails_a_run(certificate, certify, folder, capsys):
    capsys.readouterr()
    assert certify("--diff", certificate, jobs=[RELU]) == 1
    said = capsys.readouterr().out
    assert "- Mul 14: (float, float) -> (float)\n" in said
    assert "lost grants of 1 operator, gained nothing, since 2030-12-31" in said
    assert installed(folder).exists()


def test_gained_coverage_fails_nothing(certificate, certify, capsys):
    assert certify("--diff", certificate, jobs=[RELU, MUL, SQRT]) == 0
    said = capsys.readouterr().out
    assert "+ Sqrt 13: (float) -> (float)\n" in said
    assert "lost nothing, gained grants of 1 operator" in said
    assert certify("--diff", certificate) == 0
    assert "lost nothing, gained nothing" in capsys.readouterr().out


def test_a_report_can_be_compared_with(certify, folder):
    certify("--out", "before")
    report = folder / "before" / "report.json"
    assert certify("--diff", report) == 0
    assert certify("--diff", report, jobs=[RELU]) == 1


def test_what_can_be_lost_is_lost_without_a_certificate_too(certificate, certify, capsys):
    capsys.readouterr()
    with pytest.raises(EpError, match="no operator passed"):
        certify("--diff", certificate, jobs=[])
    assert "- Mul 14" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "arguments", "saying"),
    [
        ({"provider": "other"}, [], "of another provider; expected 'correct'; got 'other'"),
        ({"format": 2}, [], "format; expected 1; got 2"),
        ({"level": "soak"}, [], "Run with --level soak"),
        ({}, ["--level", "mustpass"], "got level mustpass. Run with --level full"),
        ({}, ["--only", "zoo/*"], "--diff needs a whole run"),
    ],
)
def test_what_cant_be_compared_is_refused_before_the_run(
    certificate, certify, folder, monkeypatch, changes, arguments, saying
):
    old = changed(certificate, folder / "old.json", **changes)
    monkeypatch.setattr(certify_module, "certify", lambda *args: pytest.fail("it runs"))
    jobs = [ADD, RELU]
    with pytest.raises(EpError, match=saying):
        certify("--diff", old, *arguments, jobs=jobs)
    with pytest.raises(EpError, match=r"can't read none\.json"):
        certify("--diff", "none.json", jobs=jobs)


# ---------------------------------------------------------------- certify: where it goes


def test_a_better_certificate_that_still_fits_is_kept(certify, folder, capsys):
    certify()
    path = installed(folder)
    before = path.read_bytes()
    assert certify("--level", "mustpass", jobs=[ADD]) == 0
    said = capsys.readouterr().out
    assert f"kept: {path}, which is of level full and still fits" in said
    assert "--replace puts this run's in its place (level mustpass)" in said
    assert path.read_bytes() == before
    assert certify("--level", "mustpass", "--replace", jobs=[ADD]) == 0
    assert json.loads(path.read_text())["level"] == "mustpass"
    assert certify() == 0
    assert json.loads(path.read_text())["level"] == "full"


@pytest.mark.parametrize("changes", [{"content_hash": "sha256:0"}, {"level": "?"}, {"format": 9}])
def test_a_better_certificate_that_doesnt_fit_is_replaced(certify, folder, changes):
    certify()
    path = changed(installed(folder), installed(folder), **changes)
    assert certify("--level", "mustpass", jobs=[ADD]) == 0
    assert json.loads(path.read_text())["level"] == "mustpass"


def test_a_certificate_can_go_into_a_package(certify, folder):
    assert certify("--certificate-folder", "package/certificates") == 0
    assert [path.name for path in (folder / "package" / "certificates").iterdir()] == [
        "correct-zoo-1.json"
    ]
    assert not installed(folder).exists()


@pytest.mark.parametrize("arguments", [["--only", "zoo/*"], []])
def test_a_folder_that_cant_be_used_is_refused_before_the_run(
    certify, folder, monkeypatch, arguments
):
    monkeypatch.setattr(certify_module, "certify", lambda *args: pytest.fail("it runs"))
    (folder / "file").write_text("")
    with pytest.raises(EpError, match=r"--certificate-folder needs|can't make the folder"):
        certify("--certificate-folder", "file/certificates", *arguments)


def test_the_signature_of_a_replaced_certificate_goes_with_it(certify, folder, capsys):
    certify()
    signature = signature_path(installed(folder))
    signature.write_bytes(b"signature")
    certify()
    assert signature.exists()
    certify(jobs=[RELU])
    assert f"removed {signature}" in capsys.readouterr().out
    assert not signature.exists()


# ---------------------------------------------------------------- show


def test_show_names_what_it_is_bound_to_and_what_it_grants(certificate, folder, capsys):
    waiver = {"id": "zoo/x", "reason": "slow\x1b[31m", "owner": "zoo", "expires": "9999-12-31"}
    relu, mul = json.loads(certificate.read_text())["rows"][::-1]
    changes = {
        "waivers": [waiver],
        "overrides": [],
        "options": {"precision": "f16"},
        "rows": [relu, {**mul, "predicate": "1 waived"}],
    }
    path = changed(certificate, folder / "c.json", **changes)
    capsys.readouterr()
    assert ep("certificate", "show", path) == 0
    said = capsys.readouterr().out
    for line in (
        "provider      correct",
        "package       zoo-all 1.0",
        "device        zoo-1",
        "level         full",
        "options       precision=f16",
        "waivers       1",
        "  zoo/x: slow\\x1b[31m (zoo, until 9999-12-31)",
        "speed         not declared",
        "signature     none",
        "2 operators in 2 rows, by version and type parameter:",
        "  Mul   14  float  [1 waived]",
        "  Relu  14  float",
    ):
        assert f"{line}\n" in said


def test_show_can_be_limited_to_operators(certificate, capsys):
    capsys.readouterr()
    assert ep("certificate", "show", certificate, "--op", "R*", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["op_type"] for row in found["rows"]] == ["Relu"]
    rows = json.loads(certificate.read_text())["rows"]
    assert found["rows"] == [row for row in rows if row["op_type"] == "Relu"]
    with pytest.raises(EpError, match=r"no operator 'Rel'\. Did you mean 'Relu'"):
        ep("certificate", "show", certificate, "--op", "Rel")


# ---------------------------------------------------------------- verify


def test_verify_says_which_fit_and_why_others_dont(certificate, folder, capsys):
    capsys.readouterr()
    assert ep("certificate", "verify", "correct") == 1
    assert "no certificate; `ep certify correct` makes one" in capsys.readouterr().out
    path = installed(folder)
    changed(certificate, path.with_name("a.json"), content_hash="sha256:0")
    changed(certificate, path.with_name("b.json"), provider="other")
    path.with_name("c.json").write_text("{")
    assert ep("certificate", "verify", "correct") == 1
    said = capsys.readouterr().out
    assert "a.json: the installed files have changed since it was made" in said
    assert "b.json" not in said
    assert "c.json: can't read" in said
    assert "none of them holds here" in said
    shutil.copy(certificate, path)
    assert ep("certificate", "verify", "correct") == 0
    assert f"  fits  {path}: level full, 2030-12-31, 2 rows" in capsys.readouterr().out


def test_verify_looks_at_options_and_devices(certificate, folder, capsys):
    with pytest.raises(EpError, match="no such device"):
        ep("certificate", "verify", "correct", "--device", "7")
    with pytest.raises(EpError, match="Did you mean 'threads'"):
        ep("certificate", "verify", "correct", "--option", "thread=1")
    with pytest.raises(EpError, match="expected KEY=VALUE"):
        ep("certificate", "verify", "correct", "--option", "threads")
    assert ep("certificate", "verify", certificate, "--device", "0", "--option", "threads=2") == 0


def test_verify_of_a_file(certificate, folder, capsys):
    capsys.readouterr()
    assert ep("certificate", "verify", certificate) == 0
    other = changed(certificate, folder / "other.json", device_fingerprint="zoo-2")
    assert ep("certificate", "verify", other) == 1
    assert "it is for device 'zoo-2', not 'zoo-1'" in capsys.readouterr().out
    assert ep("certificate", "verify", other, "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["device"], found["fits"], found["rows"]) == ("0", False, 2)
    with pytest.raises(EpError, match="can't read"):
        ep("certificate", "verify", "none.json")
    other = changed(certificate, folder / "other.json", provider="corect")
    with pytest.raises(EpError, match="Did you mean 'correct'"):
        ep("certificate", "verify", other)


def test_verify_of_an_unknown_provider():
    with pytest.raises(EpError, match=r"no provider 'corect' is .*Did you mean 'correct'"):
        ep("certificate", "verify", "corect")


def test_verify_wants_a_trusted_signature_if_asked_to(certificate, folder, capsys):
    pytest.importorskip("cryptography", reason="needs the extra `sign`")
    for name in ("ours", "theirs"):
        assert ep("certificate", "keygen", name) == 0
    assert "public key:  ours.pub" in capsys.readouterr().out
    path = installed(folder)
    path.parent.mkdir(parents=True)
    shutil.copy(certificate, path)
    assert ep("certificate", "verify", "correct", "--trusted", "ours.pub") == 1
    assert "it isn't signed" in capsys.readouterr().out
    assert ep("certificate", "sign", path, "--key", "ours") == 0
    assert f"signature: {path}.sig" in capsys.readouterr().out
    assert ep("certificate", "verify", "correct", "--trusted", "ours.pub") == 0
    assert ep("certificate", "verify", "correct", "--trusted", "theirs.pub") == 1
    assert "isn't a signature of it by a trusted key" in capsys.readouterr().out
    both = ["--trusted", "theirs.pub", "--trusted", "ours.pub"]
    assert ep("certificate", "verify", path, *both) == 0
    assert f"{path}: signed with a trusted key" in capsys.readouterr().out


# ---------------------------------------------------------------- diff and table


def test_diff_of_two_files(certificate, certify, folder, capsys):
    certify(jobs=[RELU])
    capsys.readouterr()
    arguments = ["certificate", "diff", certificate, installed(folder)]
    assert ep(*arguments) == 0
    assert "- Mul 14: (float, float) -> (float)\n" in capsys.readouterr().out
    assert ep(*arguments, "--fail-on-loss") == 1
    assert ep("certificate", "diff", *arguments[:1:-1], "--fail-on-loss") == 0
    capsys.readouterr()
    assert ep(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    float_type = ["tensor(float)"]
    assert found["lost"] == [
        {
            "domain": "",
            "op_type": "Mul",
            "versions": [14],
            "inputs": [float_type, float_type],
            "outputs": [float_type],
        }
    ]
    assert found["gained"] == []


def test_diff_says_what_else_differs(certificate, folder, capsys):
    other = changed(certificate, folder / "o.json", level="mustpass", device_fingerprint="zoo-2")
    capsys.readouterr()
    assert ep("certificate", "diff", certificate, other) == 0
    said = capsys.readouterr().out
    assert "the level differs: full, now mustpass" in said
    assert "the device differs: zoo-1, now zoo-2" in said
    other = changed(certificate, folder / "o.json", provider="other")
    with pytest.raises(EpError, match="of another provider"):
        ep("certificate", "diff", certificate, other)


def test_table_has_a_column_for_each_file(certificate, folder, capsys):
    other = changed(certificate, folder / "o.json", provider="other")
    capsys.readouterr()
    assert ep("certificate", "table", certificate, other) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].split() == ["Operator", "correct", "other"]
    assert ep("certificate", "table", certificate, "--markdown") == 0
    assert "| Operator | Versions | Types | correct |" in capsys.readouterr().out
