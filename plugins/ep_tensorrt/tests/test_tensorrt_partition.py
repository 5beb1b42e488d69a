"""Which engine a run needs, with a stand-in for engines on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tensorrt_harness import CHAIN, graph_of, whole

from ep_core.errors import CompileError, EpError, NotSupportedError, RunError
from ep_tensorrt.partition import TensorRtPartition
from ep_tensorrt.profiles import Range, Ranges


class Machine:
    """Builds and loads engines that double their input, and remembers what it did."""

    def __init__(self) -> None:
        self.built: list[Ranges] = []
        self.open = 0

    def build(self, ranges: Ranges) -> bytes:
        self.built.append(ranges)
        return b"engine"

    def load(self, engine: bytes) -> Machine:
        self.open += 1
        return self

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if np.isnan(inputs[0]).any():
            raise ValueError("the vendor is unhappy")
        return [inputs[0] * 2]

    def close(self) -> None:
        self.open -= 1


def partition(machine: Machine, engine: Any = None, **changed: Any) -> TensorRtPartition:
    given = {"load": machine.load, "may_rebuild": True, "on_close": lambda _: None, **changed}
    return TensorRtPartition(whole(graph_of(CHAIN)), engine, machine.build, **given)


def test_an_engine_is_built_for_observed_shapes_and_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    part = partition(machine)
    with caplog.at_level(logging.WARNING), pytest.raises(CompileError, match="before its first"):
        _ = part.engine
    for length in (2, 2, 5, 3):
        outputs: list[Any] = [None]
        part.run([np.ones((length, 4), np.float32)], outputs)
        np.testing.assert_array_equal(outputs[0], np.full((length, 4), 2, np.float32))
    assert [built["x"] for built in machine.built] == [
        Range((2, 4), (2, 4), (2, 4)),
        Range((2, 4), (5, 4), (5, 4)),
    ]
    assert sum("built an engine for shapes" in text for text in caplog.messages) == 2
    assert machine.open == 1
    part.close()
    part.close()
    assert machine.open == 0


def test_building_anew_can_be_forbidden() -> None:
    machine = Machine()
    part = partition(machine, (b"engine", {"x": Range((1, 4), (2, 4), (4, 4))}), may_rebuild=False)
    part.run([np.ones((3, 4), np.float32)], [None])
    with pytest.raises(NotSupportedError, match=r"no engine was built for shapes.*\(5, 4\)"):
        part.run([np.ones((5, 4), np.float32)], [None])
    assert machine.built == []


def test_memory_of_the_caller_is_written() -> None:
    memory = np.zeros((1, 4), np.float32)
    partition(Machine()).run([np.ones((1, 4), np.float32)], [memory])
    np.testing.assert_array_equal(memory, np.full((1, 4), 2, np.float32))


def test_failures_are_errors_of_the_project() -> None:
    machine = Machine()
    part = partition(machine)
    with pytest.raises(RunError, match="ValueError: the vendor is unhappy"):
        part.run([np.full((1, 4), np.nan, np.float32)], [None])
    with pytest.raises(RunError, match="a GPU that isn't here"):
        partition(machine, load=None).run([np.ones((1, 4), np.float32)], [None])
    part.close()
    with pytest.raises(EpError, match="closed"):
        part.run([np.ones((1, 4), np.float32)], [None])
    with pytest.raises(CompileError, match="closed"):
        _ = part.engine
