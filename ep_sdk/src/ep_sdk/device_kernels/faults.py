"""What kernels can tell of bad values in their inputs, which they only meet while they run."""

from __future__ import annotations

from ep_core.contracts import HostArray
from ep_core.errors import RunError

__all__ = ["FAULTS", "fault_error"]

FAULTS = {1: "an index is out of range", 2: "the length of a sequence is out of range"}
"""By the number that they write; see `DeviceStream.fault_word`."""


def fault_error(fault: HostArray) -> RunError:
    """The error of a fault word that isn't 0."""
    return RunError(f"a kernel met bad values: {FAULTS.get(int(fault[0]), int(fault[0]))}")
