"""The options that the CPU provider takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ep_core.contracts import OptionSpec
from ep_cpu.native.binding import NO_INSTRUCTIONS

__all__ = ["AUTOMATIC", "BFLOAT16", "FLOAT32", "OPTIONS"]

AUTOMATIC = "auto"
FLOAT32 = "f32"
BFLOAT16 = "bf16"
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


def _precision(given: Any) -> str:
    text = str(given).lower()
    if text not in (FLOAT32, BFLOAT16):
        raise ValueError(f"{FLOAT32} or {BFLOAT16}")
    return text


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
    "precision": OptionSpec(
        FLOAT32,
        "f32, or bf16: products with constant weights round their operands to bfloat16 and add up "
        "in float32, in native code alone.",
        parse=_precision,
        numerics=True,
    ),
}
