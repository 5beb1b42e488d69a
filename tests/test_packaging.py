"""Each distribution by itself: it builds, installs, imports and passes its tests alone.

Everything happens in bare environments that hold one distribution and what it declares, so that a
forgotten dependency, a file missing from a wheel or an import across a border shows up here. uv
caches what it downloads, so that a second run needs no network.
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pretrained import fetch
from pretrained.answers import check_answer
from pretrained.samples import sample_feeds

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "ep-compliance": ROOT / "compliance",
    "ep-core": ROOT / "ep_core",
    "ep-sdk": ROOT / "ep_sdk",
    "ep-cpu": ROOT / "plugins" / "ep_cpu",
    "ep-cuda": ROOT / "plugins" / "ep_cuda",
    "ep-opencl": ROOT / "plugins" / "ep_opencl",
    "ep-openvino": ROOT / "plugins" / "ep_openvino",
    "ep-tools": ROOT / "ep_tools",
}
MAY_IMPORT = {
    "ep-compliance": {"ep-core", "ep-sdk"},
    "ep-core": set(),
    "ep-sdk": {"ep-core"},
    "ep-cpu": {"ep-core", "ep-sdk"},
    "ep-cuda": {"ep-core", "ep-sdk"},
    "ep-opencl": {"ep-core", "ep-sdk"},
    "ep-openvino": {"ep-core", "ep-sdk"},
    "ep-tools": {"ep-core", "ep-sdk"},
}
"""Which of our own distributions each may depend on."""
IMPORT_NAMES = {"pillow": "PIL"}
"""Import names that aren't the distribution's name with underscores."""
DISTRIBUTIONS = sorted(FOLDERS)


def project(name: str) -> dict[str, object]:
    return tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text("utf-8"))["project"]


def module_name(distribution: str) -> str:
    return IMPORT_NAMES.get(distribution, distribution.replace("-", "_"))


def declared(name: str) -> set[str]:
    """Names of the distributions that one declares, also as extras, without versions."""
    extras = project(name).get("optional-dependencies", {}).values()
    return names_of([*project(name).get("dependencies", []), *chain.from_iterable(extras)])


def declared_for_tests(name: str) -> set[str]:
    """Names of those that it declares for its own tests, as the extra `test`."""
    return names_of(project(name).get("optional-dependencies", {}).get("test", []))


def names_of(requirements: list[str]) -> set[str]:
    """Names of distributions without extras and versions."""
    found = set()
    for requirement in requirements:
        length = next(
            (i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")),
            len(requirement),
        )
        found.add(requirement[:length].lower().replace("_", "-"))
    return found


def run(*command: str | Path, cwd: Path | None = None, seconds: int = 600, **variables: str) -> str:
    """Run a command away from the checkout's environment; fail with all it printed."""
    ours = {"PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTEST_ADDOPTS"}
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ours and not key.startswith("PYTEST_XDIST")
    } | variables
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{command}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


def bare_environment(folder: Path) -> Path:
    """Make an environment without any package and return its interpreter."""
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder)
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    return folder / scripts / "python"


def install(python: Path, wheels: Path, *requirements: str | Path) -> None:
    run(
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python),
        *("--find-links", wheels, *requirements),
        cwd=wheels,
    )


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of every distribution, each built out of its source archive."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in DISTRIBUTIONS:
        run(
            *(sys.executable, "-m", "uv", "build", "--quiet", "--python", sys.executable),
            *("--no-sources", "--out-dir", folder, FOLDERS[name]),
        )
    return folder


def wheel_of(wheels: Path, name: str) -> Path:
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    return wheel


# ---------------------------------------------------------------- what is in a wheel


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_wheel_has_types_license_and_every_source_file(wheels: Path, name: str) -> None:
    module = module_name(name)
    source = FOLDERS[name] / "src"
    with zipfile.ZipFile(wheel_of(wheels, name)) as archive:
        packed = set(archive.namelist())
    written = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert written <= packed
    assert f"{module}/py.typed" in packed
    assert any(entry.endswith(".dist-info/licenses/LICENSE") for entry in packed)
    assert not any(entry.startswith("tests/") for entry in packed)


def test_the_cpu_provider_carries_its_native_core_and_what_it_was_made_from(wheels: Path) -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("requires: a compiler for C++")
    listed = FOLDERS["ep-cpu"] / "src" / "ep_cpu" / "_native.sources"
    with zipfile.ZipFile(wheel_of(wheels, "ep-cpu")) as archive:
        modules = [name for name in archive.namelist() if name.startswith("ep_cpu/_native.c")]
        assert archive.read("ep_cpu/_native.sources") == listed.read_bytes()
    assert modules


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_license_is_the_same_everywhere(name: str) -> None:
    assert (FOLDERS[name] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


# ---------------------------------------------------------------- who imports whom


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_imports_are_declared(name: str) -> None:
    allowed = {module_name(other) for other in declared(name) | {name}}
    foreign = {
        (top, path.name)
        for path in (FOLDERS[name] / "src").rglob("*.py")
        for top in imported_modules(path)
        if top not in allowed and top not in sys.stdlib_module_names
    }
    assert not foreign


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_dependencies_stay_inside_the_borders(name: str) -> None:
    kit = {"ep-compliance"} & declared_for_tests(name)
    assert (declared(name) - {name} - kit) & set(FOLDERS) <= MAY_IMPORT[name]
    assert "ep-compliance" not in names_of(project(name).get("dependencies", []))


def test_core_depends_on_four_packages() -> None:
    assert declared("ep-core") == {"ml-dtypes", "numpy", "onnx", "pluggy"}


def imported_modules(path: Path) -> set[str]:
    """Top-level names of everything a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


# ---------------------------------------------------------------- installed alone

IMPORT_EVERYTHING = """
import importlib, importlib.metadata, pkgutil, sys, warnings
warnings.simplefilter("error")
package = importlib.import_module({module!r})
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith(".__main__") and not found.name.startswith({beyond!r}):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] not in {extras!r}:
                raise
for point in importlib.metadata.distribution({name!r}).entry_points:
    if point.group != "pytest11":
        point.load()
    print(point.group, point.name)
ours = {ours!r}
assert {{name.split(".")[0] for name in sys.modules}} & set(ours) <= set({allowed!r})
"""


# What only pytest loads, and so needs it.
FOR_PYTEST = ("ep_compliance.suite", "ep_compliance.pytest_suite")


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_installs_alone_and_every_module_imports(wheels: Path, tmp_path: Path, name: str) -> None:
    python = bare_environment(tmp_path / "env")
    install(python, wheels, name)
    program = IMPORT_EVERYTHING.format(
        name=name,
        module=module_name(name),
        beyond=FOR_PYTEST,
        extras=[module_name(extra) for extra in project(name).get("optional-dependencies", {})],
        ours=[module_name(other) for other in DISTRIBUTIONS],
        allowed=[module_name(other) for other in {name} | MAY_IMPORT[name]],
    )
    printed = run(python, "-I", "-c", program, cwd=tmp_path).splitlines()
    entry_points = [
        f"{group} {entry}"
        for group, entries in project(name).get("entry-points", {}).items()
        for entry in entries
    ]
    entry_points += [f"console_scripts {entry}" for entry in project(name).get("scripts", {})]
    assert sorted(printed) == sorted(entry_points)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_own_tests_pass_with_declared_dependencies(wheels: Path, tmp_path: Path, name: str) -> None:
    python = bare_environment(tmp_path / "env")
    install(python, wheels, name, "pytest", "hypothesis")
    printed = run(
        *(python, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path),
        *("-p", "no:cacheprovider", "-q", FOLDERS[name] / "tests"),
        cwd=tmp_path,
        seconds=1200,
    )
    assert " passed" in printed


RUN_ONE_MODEL = """
import sys
import numpy as np
from ep_core import InferenceSession, SessionOptions
model, provider, feeds, results = sys.argv[1:]
options = SessionOptions()
options.disable_cpu_fallback = True
options.certificate_policy = "off"  # whether the wheel has one for this machine isn't the question
with InferenceSession(model, options, providers=[provider]) as session:
    np.savez(results, *session.run(None, dict(np.load(feeds))))
"""
WHEELS_OF_PROVIDERS = {
    "cpu": "ep-cpu",
    "openvino": "ep-openvino",
    "opencl": "ep-opencl[cpu-runtime]",
}


@pytest.mark.parametrize("provider", WHEELS_OF_PROVIDERS)
def test_a_wheel_alone_runs_a_real_model(wheels: Path, tmp_path: Path, provider: str) -> None:
    if provider == "opencl" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("requires: x86-64 Linux, for which PyPI has a driver")
    name = "picture-classifier"
    python = bare_environment(tmp_path / "env")
    install(python, wheels, WHEELS_OF_PROVIDERS[provider])
    feeds, results = tmp_path / "feeds.npz", tmp_path / "results.npz"
    np.savez(feeds, **sample_feeds(name))
    run(python, "-I", "-c", RUN_ONE_MODEL, fetch(name), provider, feeds, results, cwd=tmp_path)
    with np.load(results) as found:
        check_answer(name, list(found.values()))


def test_without_a_compiler_the_cpu_provider_runs_on_python(wheels: Path, tmp_path: Path) -> None:
    (archive,) = wheels.glob("ep_cpu-*.tar.gz")
    run(
        *(sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--python", sys.executable),
        *("--out-dir", tmp_path, archive),
        CXX="/bin/false",
    )
    (wheel,) = tmp_path.glob("ep_cpu-*-py3-none-any.whl")
    python = bare_environment(tmp_path / "env")
    install(python, wheels, "ep-core", "ep-sdk")
    install(python, wheels, wheel)
    program = (
        "from importlib.metadata import distribution\n"
        "from ep_core.certificates.content import content_hash\n"
        "from ep_cpu.factory import make_factory\n"
        "device = make_factory().devices()[0]\n"
        "print(device.properties['native'], device.fingerprint, sep='\\n')\n"
        "print(content_hash(distribution('ep-cpu')))"
    )
    native, fingerprint, content = run(python, "-I", "-c", program).splitlines()
    assert native.startswith("no, ")
    assert "; python; " in fingerprint
    feeds, results = tmp_path / "feeds.npz", tmp_path / "results.npz"
    name = "picture-classifier"
    np.savez(feeds, **sample_feeds(name))
    run(python, "-I", "-c", RUN_ONE_MODEL, fetch(name), "cpu", feeds, results, cwd=tmp_path)
    with np.load(results) as found:
        check_answer(name, list(found.values()))
    install(python, wheels, "--reinstall-package", "ep-cpu", wheel_of(wheels, "ep-cpu"))
    built = run(python, "-I", "-c", program).splitlines()
    assert built[-1] == content


def test_plain_pip_installs_the_folders_together(tmp_path: Path) -> None:
    """Without uv, the way the README says it."""
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, *(f"./{folder.relative_to(ROOT)}" for folder in FOLDERS.values()), cwd=ROOT)
    printed = run(python.with_name("ep"), "providers", cwd=tmp_path)
    assert "cpu" in printed
