from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ep_core.contracts import API_VERSION
from ep_core.errors import EpError, OptionError
from ep_core.hookspecs import COMMAND_GROUP, PROVIDER_GROUP
from ep_sdk.new import KINDS, create_project, ep_commands

VENDORS = [None, "Chips & Söhne", 'The "Quick" Company', "back\\slash", "{braces} %s $name"]


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_every_file_is_well_formed(tmp_path: Path, kind, vendor):
    folder = create_project("my_chip", tmp_path, kind=kind, vendor=vendor)
    assert folder == tmp_path / "ep_my_chip"
    written = texts(folder)
    for path in ["README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml"]:
        assert written[path]
    assert written["src/ep_my_chip/py.typed"] == ""
    for path, text in written.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
    placeholders = [text for text in written.values() if re.search(r"\$(?!\{\{)(?!name\b)", text)]
    assert placeholders == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_the_package_says_who_it_is(tmp_path: Path, kind, vendor):
    folder = create_project("my_chip", tmp_path, kind=kind, vendor=vendor)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "ep-my-chip"
    assert project["entry-points"][PROVIDER_GROUP] == {"my_chip": "ep_my_chip"}
    assert project["authors"] == [{"name": vendor or "MyChip"}]
    code = (folder / "src/ep_my_chip/__init__.py").read_text(encoding="utf-8")
    assert f"api_version={API_VERSION}" in code
    spelled = re.search(r"vendor=(\".*\"),", code)
    assert spelled is not None
    assert ast.literal_eval(spelled[1]) == (vendor or "MyChip")


@pytest.mark.parametrize("kind", KINDS)
def test_the_compliance_suite_is_wired_in(tmp_path: Path, kind):
    folder = create_project("my_chip", tmp_path, kind=kind)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    options = project["tool"]["pytest"]["ini_options"]
    assert (options["ep_provider"], options["ep_level"]) == ("my_chip", "mustpass")
    assert tomllib.loads((folder / options["ep_waivers"]).read_text(encoding="utf-8")) == {}
    assert "ep-compliance[pytest]" in project["project"]["optional-dependencies"]["test"]
    module = (folder / "tests/test_compliance.py").read_text(encoding="utf-8")
    assert "from ep_compliance.suite import test_compliance" in module


@pytest.mark.parametrize("kind", KINDS)
def test_the_new_package_passes_its_own_tests(tmp_path: Path, kind):
    folder = create_project("my_chip", tmp_path, kind=kind, vendor="Chips & Söhne")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = install_by_hand(project, tmp_path / "site")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(folder / "src")]),
        "EP_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # The kit and its settings are another package's; tests/test_new_provider.py has them.
    arguments = ["-m", "pytest", "-q", "-W", "error", "-W", "ignore::pytest.PytestConfigWarning"]
    arguments += ["-p", "no:cacheprovider", "tests/test_ep_my_chip.py"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[3-9] passed", done.stdout)


def install_by_hand(project, site: Path) -> Path:
    """Write the metadata that an installer would, so that no build tool or network is needed."""
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines.extend(f"{name} = {value}" for name, value in points.items())
    info.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
    return site


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MyChip", "mychip"),
        ("my-chip", "my_chip"),
        ("9000 Turbo", "turbo"),
        ("my__chip", "my_chip"),
        ("_chip", "chip"),
        ("chip_", "chip"),
        ("", "mychip"),
        ("日本", "mychip"),
        ("../up", "up"),
        ("a" * 31, "a" * 30),
        ("chip\n", "chip"),
    ],
)
def test_a_name_that_is_no_identifier_is_refused_with_one_that_is(tmp_path: Path, name, hint):
    with pytest.raises(OptionError, match=rf"For example: {hint}$"):
        create_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "x1", "class", "my_chip_2", "a" * 30])
def test_identifiers_are_taken(tmp_path: Path, name):
    assert create_project(name, tmp_path).name == f"ep_{name}"


def test_the_prefix_is_not_part_of_the_name(tmp_path: Path):
    with pytest.raises(OptionError, match="Leave out the prefix: chip"):
        create_project("ep_chip", tmp_path)


@pytest.mark.parametrize("name", ["compliance", "core", "sdk", "tools"])
def test_names_of_the_project_are_reserved(tmp_path: Path, name):
    with pytest.raises(OptionError, match="reserved"):
        create_project(name, tmp_path)


def test_an_installed_provider_is_not_shadowed(tmp_path: Path):
    with pytest.raises(OptionError, match="'simulator' is installed already, by ep-sdk"):
        create_project("simulator", tmp_path)


def test_an_installed_package_is_not_shadowed(tmp_path: Path, monkeypatch):
    (tmp_path / "ep_taken.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "ep_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    parent = tmp_path / "new"
    parent.mkdir()
    with pytest.raises(OptionError, match=r"ep_taken is installed already, at .*ep_taken\.py"):
        create_project("taken", parent)
    create_project("folder", parent)


@pytest.mark.parametrize("vendor", ["", "  ", "two\nlines", "bell\a", "x" * 61])
def test_a_vendor_that_fits_no_line_is_refused(tmp_path: Path, vendor):
    with pytest.raises(OptionError, match="printable"):
        create_project("chip", tmp_path, vendor=vendor)


def test_an_unknown_kind_is_refused(tmp_path: Path):
    with pytest.raises(OptionError, match="Did you mean 'kernel'"):
        create_project("chip", tmp_path, kind="kernels")


# ---------------------------------------------------------------- places


def test_what_exists_is_left_alone(tmp_path: Path):
    (tmp_path / "ep_file").write_text("mine")
    (tmp_path / "ep_folder").mkdir()
    (tmp_path / "ep_link").symlink_to(tmp_path / "nowhere")
    for name in ["file", "folder", "link"]:
        with pytest.raises(EpError, match="exists already"):
            create_project(name, tmp_path)
    assert (tmp_path / "ep_file").read_text() == "mine"
    assert list((tmp_path / "ep_folder").iterdir()) == []
    assert len(list(tmp_path.iterdir())) == 3


def test_a_missing_parent_is_an_error(tmp_path: Path):
    with pytest.raises(EpError, match="there is no folder"):
        create_project("chip", tmp_path / "absent")


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch):
    write_text = Path.write_text

    def full_disk(self, *arguments, **keywords):
        if self.name == "__init__.py":
            raise OSError(28, "No space left on device")
        return write_text(self, *arguments, **keywords)

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(EpError, match="No space left"):
        create_project("chip", tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the command


def run_command(*arguments: str) -> int:
    (command,) = ep_commands()
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args(arguments))


def test_the_command_is_registered():
    (point,) = entry_points(group=COMMAND_GROUP, name="new")
    (command,) = point.load().ep_commands()
    assert command.name == "new"


def test_the_command_writes_and_says_what_is_next(tmp_path: Path, capsys):
    assert run_command("chip", "--dir", str(tmp_path), "--kind", "compiler", "--vendor", "Me") == 0
    shown = capsys.readouterr().out
    assert "src/ep_chip/provider.py" in shown
    assert "pip install -e" in shown
    assert 'vendor="Me"' in (tmp_path / "ep_chip/src/ep_chip/__init__.py").read_text()


def test_the_command_writes_into_the_current_folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command("chip") == 0
    assert (tmp_path / "ep_chip" / "tests" / "test_ep_chip.py").is_file()
