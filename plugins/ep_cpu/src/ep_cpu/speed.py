"""How fast the CPU provider says that it is: from facts about the processor, never by the clock.

The rates are what a processor could do, times the part of it that was got out of one core of an AMD
EPYC 9004 (Zen 4, 2.6 GHz nominal, AVX-512).

With kernels in Python (numpy 2.4, OpenBLAS 0.3.31, one thread) that was measured in the nodes of
seven models. The times of six of these models were predicted as 0.8 to 2.5 of what they are; the
seventh spends its time in a quantised LSTM, whose work isn't counted. With the native core it was
measured in ResNet-50, BERT-base, MiniLM and a small perceptron.

The same machine says the same each time: of clocks only the nominal one counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ep_core.cores import usable_cores
from ep_core.types import DeviceSpeed

__all__ = ["declared_speed", "nominal_hertz"]

_BASE_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency")  # in kHz
_NAMED_FREQUENCY = re.compile(r"@ *(\d+(?:\.\d+)?) *GHz")
_USUAL_HERTZ = 2.5e9

_FLOPS_PER_CYCLE = (
    (frozenset({"avx512f"}), 64),
    (frozenset({"avx2", "fma"}), 32),
    (frozenset({"avx"}), 16),
    (frozenset({"asimd"}), 16),
    (frozenset({"neon"}), 16),
)
"""32-bit operations of one core with two units of that width; the first set that is there counts.
A multiplication that adds is two.
Source: A. Fog, The microarchitecture of Intel, AMD and VIA CPUs."""
_USUAL_FLOPS_PER_CYCLE = 16

_LEVELS = {"avx512vnni": 64, "avx512": 64, "avx2": 32, "portable": 16}
"""The same of the native core's sets of instructions."""


@dataclass(frozen=True, slots=True)
class _Rates:
    """What is got out of a processor.

    Attributes:
        efficiency: the part of the peak that convolutions and matrix products reach.
        serial: the part of their time in which more cores don't help.
        bytes_per_second: of other operators.
        operator_seconds: of a node with little to do.
        partition_seconds: of one call, and the planner's steps around it.
    """

    efficiency: float
    serial: float
    bytes_per_second: float
    operator_seconds: float
    partition_seconds: float


_PYTHON = _Rates(0.24, 0.5, 1e10, 5e-6, 5e-6)
"""Efficiency: 40 of 166 GFLOP/s, packing included; the matrix product alone has 105. Serial: about
37% of a convolution's time and 73% of a matrix product's were inside OpenBLAS, which alone uses
several cores. Bytes: plain arithmetic had 20 to 80 GB/s while all fits in the cache; pooling,
padding and transposing 5 to 11; Softmax and LayerNormalization, which go over their input several
times, 1 to 3. An operator: the median of 185 nodes of less than 4 KiB, most of which took 2 to 10
microseconds."""
_NATIVE = _Rates(0.6, 0.05, 2e10, 5e-7, 5e-6)
"""Efficiency: ResNet-50 ran at 95 GFLOP/s of 166, BERT-base at 108, all operators included. Serial:
two threads took 0.51 to 0.53 of the time of one."""


def declared_speed(flags: Collection[str], model: str, level: str | None) -> DeviceSpeed:
    """The speed to declare.

    Args:
        flags: of the processor, as in `/proc/cpuinfo`; none where they can't be read.
        model: the processor's name, which may tell the nominal clock.
        level: the native core's set of instructions, None without it.
    """
    wide = (count for wanted, count in _FLOPS_PER_CYCLE if wanted <= set(flags))
    per_cycle = next(wide, _USUAL_FLOPS_PER_CYCLE)
    rates = _PYTHON
    if level is not None:
        rates = _NATIVE
        per_cycle = min(per_cycle, _LEVELS.get(level, per_cycle))
    gain = 1 / (rates.serial + (1 - rates.serial) / usable_cores())
    return DeviceSpeed(
        flops_per_second=nominal_hertz(model) * per_cycle * rates.efficiency * gain,
        bytes_per_second=rates.bytes_per_second,
        operator_seconds=rates.operator_seconds,
        partition_seconds=rates.partition_seconds,
    )


def nominal_hertz(model: str) -> float:
    """The nominal clock as the system or the processor's name tells it, else a usual one."""
    try:
        found = float(_BASE_FREQUENCY.read_text(encoding="ascii")) * 1e3
    except (OSError, ValueError):
        named = _NAMED_FREQUENCY.search(model)
        found = float(named[1]) * 1e9 if named else 0.0
    return found if 1e8 <= found <= 1e11 else _USUAL_HERTZ
