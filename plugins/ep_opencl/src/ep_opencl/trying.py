"""Trying a driver's compiler without risking this process; a driver that works is remembered."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from ep_core.discovery.verdicts import cache_folder, write_atomically
from ep_opencl.processor import short_hash

__all__ = ["compiler_failure"]

_PROGRAM = Path(__file__).with_name("probe.py")
_PATIENCE_SECONDS = 30
"""Less than the core waits for a list of devices."""


@cache
def compiler_failure(build_key: str, platform: str, number: int) -> str | None:
    """Say why kernels can't be built for a device; None if they can.

    Args:
        build_key: device and driver.
        platform: OpenCL's name of the platform.
        number: of the device among those of the platform.
    """
    verdict = _verdict(build_key)
    if verdict is not None and verdict.exists():
        return None
    command = [sys.executable, "-P", str(_PROGRAM), platform, str(number)]
    try:
        result = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_PATIENCE_SECONDS} seconds"
    except OSError as error:
        return f"it can't be tried: {error}"
    if result.returncode:
        return _telling_line(result.stderr.decode("utf-8", "replace"), result.returncode)
    if verdict is not None:
        try:
            write_atomically(verdict, b"works\n")
        except OSError:
            return None  # then it is tried again the next time
    return None


def _verdict(build_key: str) -> Path | None:
    """The file that is there if the driver was seen to work."""
    try:
        return cache_folder() / "opencl" / "drivers" / short_hash(build_key)
    except RuntimeError:
        return None  # no home folder


def _telling_line(output: str, code: int) -> str:
    """The line that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    found = (telling or lines or [f"it ended with {code}"])[0]
    return found if len(found) <= 120 else f"{found[:117]}..."
