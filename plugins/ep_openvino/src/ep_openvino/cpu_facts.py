"""What the CPU is, as far as it bears on OpenVINO's results and speed.

OpenVINO picks its kernels by instruction set. Which one it is changes the last bits of sums, and
for 8-bit integers more than that: without VNNI, sums of two products saturate at 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.types import DeviceSpeed
from ep_sdk.processor import processor_facts, widest_level

__all__ = ["cpu_speed", "instruction_set"]

# From the widest down, each with the flags of /proc/cpuinfo that it takes.
_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amx", ("amx_int8", "avx512f")),
    ("avx512-vnni", ("avx512_vnni", "avx512f")),
    ("avx512", ("avx512f",)),
    ("avx2-vnni", ("avx_vnni", "avx2")),
    ("avx2", ("avx2",)),
    ("sse4.2", ("sse4_2",)),
    ("sve", ("sve",)),
    ("neon", ("asimd",)),
)

# Additions and multiplications of 32-bit floats that one core does in a cycle: two units that
# multiply and add, of 8 lanes. Wider registers count the same, as many processors have one unit
# for them or split them in two.
_OPERATIONS_PER_CYCLE: Mapping[str, int] = {"sse4.2": 8, "neon": 16, "sve": 16}
_USUAL_OPERATIONS = 32
_USUAL_HERTZ = 2.5e9
# No interface tells the bandwidth of memory. One core draws about this much, and few more fill it.
_BYTES_PER_CORE = 1e10
_MOST_BYTES = 1e11

_OPERATOR_SECONDS = 5e-7
"""What one more node took, of up to 30 on 8 by 8 numbers: 0.1 to 0.3 microseconds with known
lengths, 0.5 with an open one."""
_PARTITION_SECONDS = 2e-5
"""One call: 12 microseconds with known lengths, 20 with an open one, by OpenVINO 2026.4. Models of
small partitions, for which it counts, mostly have open ones."""


def instruction_set(flags: str) -> str:
    """The widest of the sets that OpenVINO has kernels for; empty where nothing tells."""
    return widest_level(flags, _LEVELS)


def cpu_speed(cores: int) -> DeviceSpeed:
    """Peak by clock, cores and instruction set; what starting takes, as measured."""
    facts = processor_facts()
    try:
        hertz = float(facts["megahertz"]) * 1e6
    except ValueError:
        hertz = _USUAL_HERTZ
    each = _OPERATIONS_PER_CYCLE.get(instruction_set(facts["flags"]), _USUAL_OPERATIONS)
    return DeviceSpeed(
        flops_per_second=cores * hertz * each,
        bytes_per_second=min(cores * _BYTES_PER_CORE, _MOST_BYTES),
        operator_seconds=_OPERATOR_SECONDS,
        partition_seconds=_PARTITION_SECONDS,
    )
