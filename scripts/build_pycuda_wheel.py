"""Builds a wheel of pycuda on a machine without a CUDA toolkit, driver or GPU.

Pycuda comes as source only, and building it asks for CUDA's headers and for a `libcuda` to link to.
The headers are in NVIDIA's packages, and for linking a library is enough that has the functions'
names. The wheel then works wherever there is a driver.

    python scripts/build_pycuda_wheel.py --python python3.12 --to wheels

It takes some minutes of one core. A C++ compiler and the headers of that Python have to be there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PYCUDA = "pycuda==2026.1"
HEADERS = (
    "nvidia-cuda-runtime>=13,<14",
    "nvidia-cuda-crt>=13,<14",
    "nvidia-cuda-profiler-api>=13,<14",
)
_FUNCTION = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(")
_CHECK = "import pycuda.driver; print(pycuda.VERSION_TEXT)"


class BuildError(RuntimeError):
    """The wheel can't be built; the text says why."""


def main() -> int:
    """Build one wheel and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the Python that it is for")
    parser.add_argument("--to", type=Path, default=Path("wheels"), help="folder of the wheel")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="pycuda-") as folder:
            wheel = build(options.python, Path(folder), options.to.absolute())
    except BuildError as error:
        sys.stderr.write(f"pycuda can't be built: {error}\n")
        return 1
    sys.stdout.write(f"{wheel}\n")
    return 0


def build(python: str, work: Path, target: Path) -> Path:
    """Build the wheel and import it once.

    Args:
        python: command or path of the Python that the wheel is for.
        work: an empty folder.
        target: where the wheel goes.

    Raises:
        BuildError: something is missing, or a step fails.
    """
    if sys.platform != "linux":
        raise BuildError("this way of building is for Linux")
    for tool in ("g++", python):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} isn't there")
    _need_python_headers(python)
    pip = _environment(python, work / "building", [*HEADERS])
    root = _cuda_root(work / "building")
    stub = _link_stub(root / "include", work / "stub")
    home = work / "home"
    home.mkdir()
    settings = {
        "CUDA_ROOT": str(root),
        "CUDADRV_LIB_DIR": [str(stub.parent)],
        # Random numbers of cuRAND: its headers are a package of their own, and nobody asks for it.
        "CUDA_ENABLE_CURAND": False,
    }
    lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
    (home / ".aksetup-defaults.py").write_text("".join(lines), encoding="utf-8")
    built = work / "wheels"
    # Pycuda's setup reads its settings from the home folder.
    command = [*pip, "wheel", "--no-deps", "--no-cache-dir", "-w", str(built), PYCUDA]
    _run("building pycuda", command, {"HOME": str(home)})
    wheels = list(built.glob("pycuda-*.whl"))
    if len(wheels) != 1:
        raise BuildError(f"one wheel was expected, got {[path.name for path in wheels]}")
    _check(python, work / "trying", wheels[0], stub.parent)
    target.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(wheels[0], target))


def _need_python_headers(python: str) -> None:
    code = "import sysconfig; print(sysconfig.get_paths()['include'])"
    folder = _run("asking Python for its headers", [python, "-c", code]).strip()
    if not (Path(folder) / "Python.h").is_file():
        raise BuildError(f"{python} has no headers: there is no Python.h in {folder}")


def _environment(python: str, folder: Path, packages: Sequence[str]) -> list[str]:
    """Make a virtual environment with packages in it; returns its pip as a command."""
    _run("making a virtual environment", [python, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run("installing packages", [*pip, "install", *packages])
    return pip


def _cuda_root(environment: Path) -> Path:
    found = sorted(environment.glob("lib/python3*/site-packages/nvidia/cu*/include/cuda.h"))
    if not found:
        raise BuildError("NVIDIA's packages have no cuda.h where it was expected")
    return found[-1].parents[1]


def _link_stub(include: Path, folder: Path) -> Path:
    """A `libcuda.so.1` that has all names of the driver's interface and does nothing."""
    folder.mkdir()
    names: set[str] = set()
    for header in ("cuda.h", "cudaProfiler.h"):
        defines = ["-D__CUDA_API_VERSION_INTERNAL", "-I", str(include)]
        command = ["g++", "-E", "-P", "-x", "c++", *defines, str(include / header)]
        names.update(_FUNCTION.findall(_run("reading the headers", command)))
    source = folder / "stub.c"
    # 801 is CUDA_ERROR_NOT_SUPPORTED.
    text = "".join(f"int {name}(void) {{ return 801; }}\n" for name in sorted(names))
    source.write_text(text, encoding="utf-8")
    library = folder / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    _run("making the library to link to", [*command, str(source)])
    (folder / "libcuda.so").symlink_to(library.name)
    return library


def _check(python: str, folder: Path, wheel: Path, libraries: Path) -> None:
    # It doesn't say that it needs numpy.
    _environment(python, folder, [str(wheel), "numpy"])
    command = [str(folder / "bin" / "python"), "-c", _CHECK]
    _run("importing what was built", command, {"LD_LIBRARY_PATH": str(libraries)})


def _run(what: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        BuildError: it fails; with the end of what it printed.
    """
    variables = {**os.environ, **(more or {})}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).splitlines()[-15:]
        raise BuildError("\n".join([f"{what} failed: {' '.join(command)}", *last]))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
