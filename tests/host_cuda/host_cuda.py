"""Builds the host stand-ins for NVIDIA's driver and kernel compiler, and says how to run with them.

A process that is started with `environment()` finds `libcuda.so.1` and, for the provider, NVRTC
made of the sources beside this file. Nothing of the provider or of pycuda is changed or known here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["HostCudaError", "build", "environment", "find_headers", "missing"]

_HERE = Path(__file__).parent
_DRIVER = sorted((_HERE / "driver").glob("*.cpp"))
_COMPILER = _HERE / "compiler" / "nvrtc.cpp"
_SOURCES = sorted([*_HERE.glob("*/*.cpp"), *_HERE.glob("*/*.h")])
_BASE = ("-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-pthread")

_STUB_HEAD = """// An answer for every function of the driver that the other files don't have.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
extern "C" {
"""
_NOTHING = "CUDA_ERROR_NOT_SUPPORTED"
_FUNCTION = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)")


class HostCudaError(RuntimeError):
    """The stand-ins can't be built; the text says what is missing."""


def find_headers() -> Path | None:
    """The folder of `cuda.h`: of HOST_CUDA_INCLUDE, the wheel nvidia-cuda-runtime, or a toolkit."""
    folders = [Path(found) for found in [os.environ.get("HOST_CUDA_INCLUDE")] if found]
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    folders += sorted(packages.glob("cu*/include"), reverse=True)
    folders += [packages / "cuda_runtime" / "include", Path("/usr/local/cuda/include")]
    return next((folder for folder in folders if (folder / "cuda.h").is_file()), None)


def missing() -> str | None:
    """Why the stand-ins can't be built here, in a sentence; None where they can."""
    if not (sys.platform == "linux" and os.uname().machine == "x86_64"):
        return "the stand-in for CUDA is written for Linux on x86-64"
    if shutil.which("g++") is None:
        return "there is no g++"
    if find_headers() is None:
        return "there is no cuda.h: install the package nvidia-cuda-runtime"
    return None


def build(cache: Path) -> Path:
    """Build both libraries unless they are there already.

    Args:
        cache: folder for them; another one inside it is made for each state of the sources.

    Returns:
        The folder with `libcuda.so.1` and `libnvrtc.so`.

    Raises:
        HostCudaError: something is missing, or the compiler refuses the sources.
    """
    reason = missing()
    headers = find_headers()
    if reason is not None or headers is None:
        raise HostCudaError(f"the stand-in for CUDA can't be built: {reason}")
    folder = cache / f"libraries-{_key(headers)}"
    if folder.is_dir():
        return folder
    making = cache / f"making-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    stubs = making / "stubs.cpp"
    stubs.write_text(_stubs(headers), encoding="utf-8")
    driver = making / "libcuda.so.1"
    include = ["-I", str(headers), "-D_GNU_SOURCE"]
    _compile([*_BASE, "-Wl,-soname,libcuda.so.1", *include], [*_DRIVER, stubs], driver)
    (making / "libcuda.so").symlink_to(driver.name)
    where = f'-DHOST_CUDA_COMPILER_FOLDER="{_COMPILER.parent}"'
    _compile([*_BASE, where], [_COMPILER], making / "libnvrtc.so")
    try:
        making.rename(folder)
    except OSError:
        # Another process was faster.
        shutil.rmtree(making)
    return folder


def environment(
    cache: Path,
    *,
    order: str = "forward",
    seed: int = 1,
    delay: int = 0,
    devices: int = 1,
    sanitize: bool = False,
    base: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The environment of a process that is to find the stand-ins.

    Args:
        cache: folder for libraries and compiled kernels, which may be kept.
        order: of blocks and threads: `forward`, `backward` or `shuffled`.
        seed: for `shuffled`.
        delay: microseconds that each stream waits before each piece of its work, so that others
            that don't wait for it are surely early.
        devices: how many there are.
        sanitize: kernels are compiled with the address sanitizer, which is preloaded.
        base: what else is in the environment.

    Raises:
        HostCudaError: as `build`.
    """
    folder = build(cache)
    found = dict(base)
    paths = [str(folder), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    found |= {
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
        "EP_CUDA_NVRTC": str(folder / "libnvrtc.so"),
        "HOST_CUDA_CACHE": str(cache / "kernels"),
        "HOST_CUDA_ORDER": order,
        "HOST_CUDA_SEED": str(seed),
        "HOST_CUDA_DELAY": str(delay),
        "HOST_CUDA_DEVICES": str(devices),
    }
    if sanitize:
        found |= {
            "HOST_CUDA_CXXFLAGS": "-fsanitize=address -g",
            # The sanitizer looks for the C++ library when it is loaded itself.
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
            # Python itself leaves memory behind, and fibers have stacks of their own.
            "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        }
    return found


def _library(name: str) -> str:
    return _output(["g++", f"-print-file-name={name}"]).strip()


def _key(headers: Path) -> str:
    digest = hashlib.sha256("\0".join([str(_HERE), str(headers), *_BASE]).encode())
    for path in (Path(__file__), *_SOURCES, headers / "cuda.h"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _stubs(headers: Path) -> str:
    """Source of weak functions for the whole interface; each says that it isn't supported."""
    command = ["g++", "-E", "-P", "-x", "c++", "-D__CUDA_API_VERSION_INTERNAL"]
    text = _output([*command, "-I", str(headers), str(headers / "cuda.h")])
    text = _ATTRIBUTE.sub("", text)
    functions = dict(_FUNCTION.findall(text))
    lines = [
        f"__attribute__((weak)) CUresult {name}({parameters}) {{ return {_NOTHING}; }}"
        for name, parameters in sorted(functions.items())
    ]
    return _STUB_HEAD + "\n".join(lines) + "\n}\n"


def _compile(flags: Iterable[str], sources: Iterable[Path], target: Path) -> None:
    _output(["g++", *flags, "-o", str(target), *map(str, sources), "-ldl"])


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.splitlines()[:40]
        raise HostCudaError("\n".join([f"failed: {' '.join(command)}", *lines]))
    return done.stdout
