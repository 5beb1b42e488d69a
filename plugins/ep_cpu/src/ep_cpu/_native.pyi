"""The compiled module, see `plugins/ep_cpu/native`."""

from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any

import numpy as np

Number = int | float

def levels() -> list[str]:
    """Sets of instructions that can run here, the fastest first."""

def operation_names() -> list[str]:
    """What `Program.add_operation` knows."""

def living_weights() -> int:
    """How many packed weights somebody holds."""

class Program:
    """Operations over one arena, run in one call without Python's lock."""

    def __init__(self, level: str, threads: int, inputs: Sequence[int]) -> None:
        """`inputs` are element types, numbered as in ONNX."""

    def add_constant(self, array: np.ndarray[Any, Any], dtype: int) -> int:
        """Add a constant, before any operation; returns its number."""

    def add_operation(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: int,
        attributes: Mapping[str, Number | Sequence[Number]],
    ) -> int:
        """Add an operation; -1 is an input left out. Returns the number of its first output."""

    def finish(self, outputs: Sequence[int]) -> None:
        """Say which values leave."""

    def run(self, inputs: Sequence[np.ndarray[Any, Any]], outputs: MutableSequence[Any]) -> bool:
        """Compute; False where these inputs aren't for this program."""

    def run_timed(
        self, inputs: Sequence[np.ndarray[Any, Any]], outputs: MutableSequence[Any]
    ) -> list[tuple[int, int]] | None:
        """Likewise, with begin and end of every operation in nanoseconds; None for a refusal."""

    def arena_bytes(self, shapes: Sequence[Sequence[int]]) -> int | None:
        """Memory of one run for inputs of these shapes; None where they are refused."""

    def refusal(self, shapes: Sequence[Sequence[int]]) -> str:
        """Why inputs of these shapes are refused; empty if they aren't."""

    @property
    def constant_bytes(self) -> int:
        """Bytes of packed weights."""
