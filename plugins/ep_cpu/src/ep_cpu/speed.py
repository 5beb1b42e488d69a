"""How fast the CPU provider says that it is: from facts about the processor, never by the clock.

The rates are what a processor could do, times the part of it that kernels in numpy got out of one
core of an AMD EPYC 9004 (Zen 4, 2.6 GHz nominal, AVX-512; numpy 2.4, OpenBLAS 0.3.31, one thread)
in the nodes of seven models. The times of six of these models were predicted as 0.8 to 2.5 of what
they are; the seventh spends its time in a quantised LSTM, whose work isn't counted.

The same machine says the same each time: of clocks only the nominal one counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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

_EFFICIENCY = 0.24
"""Of the peak: 40 of 166 GFLOP/s in convolutions and matrix products, packing included. The matrix
product alone has 105."""
_SERIAL = 0.5
"""The part of that time in which more cores don't help: about 37% of a convolution's and 73% of a
matrix product's were inside OpenBLAS, which alone uses several."""
_BYTES_PER_SECOND = 1e10
"""Of other operators. Plain arithmetic had 20 to 80 GB/s while all fits in the cache; pooling,
padding and transposing 5 to 11; Softmax and LayerNormalization, which go over their input several
times, 1 to 3."""
_OPERATOR_SECONDS = 5e-6
"""The median of 185 nodes of less than 4 KiB, most of which took 2 to 10 microseconds."""
_PARTITION_SECONDS = 5e-6
"""One call, and the planner's steps around it."""


def declared_speed(flags: Collection[str], model: str) -> DeviceSpeed:
    """The speed to declare.

    Args:
        flags: of the processor, as in `/proc/cpuinfo`; none where they can't be read.
        model: the processor's name, which may tell the nominal clock.
    """
    wide = (count for wanted, count in _FLOPS_PER_CYCLE if wanted <= set(flags))
    peak = nominal_hertz(model) * next(wide, _USUAL_FLOPS_PER_CYCLE)
    gain = 1 / (_SERIAL + (1 - _SERIAL) / usable_cores())
    return DeviceSpeed(
        flops_per_second=peak * _EFFICIENCY * gain,
        bytes_per_second=_BYTES_PER_SECOND,
        operator_seconds=_OPERATOR_SECONDS,
        partition_seconds=_PARTITION_SECONDS,
    )


def nominal_hertz(model: str) -> float:
    """The nominal clock as the system or the processor's name tells it, else a usual one."""
    try:
        found = float(_BASE_FREQUENCY.read_text(encoding="ascii")) * 1e3
    except (OSError, ValueError):
        named = _NAMED_FREQUENCY.search(model)
        found = float(named[1]) * 1e9 if named else 0.0
    return found if 1e8 <= found <= 1e11 else _USUAL_HERTZ
