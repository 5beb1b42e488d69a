"""The CPU provider's native core where Python's tests can't go: emulated machines and sanitizers.

Each build holds `plugins/ep_cpu/tests/native/check.cpp`, which compares operations with plain loops
at every level that runs there, on several threads, and prints what is wrong.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "plugins" / "ep_cpu" / "native"
ARM_COMPILER = "aarch64-linux-gnu-g++"
ARM_MACHINE = "qemu-aarch64"

pytestmark = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("g++")), reason="requires: cmake and g++"
)


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{command}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


def build(folder: Path, *definitions: str) -> Path:
    """Build the check in a folder and return the program."""
    generator = ("-G", "Ninja") if shutil.which("ninja") else ()
    given = [f"-D{definition}" for definition in definitions]
    run("cmake", *generator, "-S", SOURCES, "-B", folder, "-DEP_CHECK=ON", *given)
    run("cmake", "--build", folder)
    return folder / "native_check"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    flags = f"-fsanitize={sanitizer} -fno-sanitize-recover=all -fno-omit-frame-pointer"
    program = build(
        tmp_path,
        "CMAKE_CXX_COMPILER=g++",
        "CMAKE_BUILD_TYPE=RelWithDebInfo",
        f"CMAKE_CXX_FLAGS={flags}",
    )
    assert "0 of " in run(program)


@pytest.mark.skipif(
    not (shutil.which(ARM_COMPILER) and shutil.which(ARM_MACHINE)),
    reason=f"requires: {ARM_COMPILER} and {ARM_MACHINE}",
)
def test_an_emulated_arm_machine_computes_the_same(tmp_path: Path) -> None:
    program = build(
        tmp_path,
        "CMAKE_SYSTEM_NAME=Linux",
        "CMAKE_SYSTEM_PROCESSOR=aarch64",
        f"CMAKE_CXX_COMPILER={ARM_COMPILER}",
    )
    assert "0 of " in run(ARM_MACHINE, "-L", "/usr/aarch64-linux-gnu", program)
