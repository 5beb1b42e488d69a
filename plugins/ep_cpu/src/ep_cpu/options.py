"""The options that the CPU provider takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_core.contracts import OptionSpec
from ep_cpu.native.binding import NO_INSTRUCTIONS

__all__ = ["AUTOMATIC", "OPTIONS"]

AUTOMATIC = "auto"
_MOST_THREADS = 256
_INSTRUCTIONS = (AUTOMATIC, "avx512vnni", "avx512", "avx2", "portable", NO_INSTRUCTIONS)


def _instructions(given: Any) -> str:
    text = str(given).lower()
    if text not in _INSTRUCTIONS:
        raise ValueError(f"one of {', '.join(_INSTRUCTIONS)}")
    return text


def _threads(given: Any) -> int:
    wanted = "a number of threads from 0, for all cores, to 256"
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise ValueError(wanted)
    number = int(given)
    if not 0 <= number <= _MOST_THREADS:
        raise ValueError(wanted)
    return number


OPTIONS: Mapping[str, OptionSpec] = {
    "instructions": OptionSpec(
        AUTOMATIC,
        "Set of instructions of the native code: auto, avx512vnni, avx512, avx2, portable, or none "
        "to run on the kernels in Python.",
        parse=_instructions,
    ),
    "intra_op_num_threads": OptionSpec(
        0, "Threads inside one operator of the native code; 0 for all cores.", parse=_threads
    ),
}
