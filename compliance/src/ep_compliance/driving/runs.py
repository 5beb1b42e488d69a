"""The runs of one compiled partition, and what must hold of inputs and outputs around them.

The runs: into memory that the partition makes; twice more with the same inputs, into memory given
for the outputs that it accepts (twice, as many a runtime changes its ways after a first run); and
once after every earlier output has been overwritten, on the host with read-only inputs in layouts
that a caller may have them in: every second element, column by column, rows backwards.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_compliance.driving.findings import Broken, text_of
from ep_compliance.driving.lanes import DeviceLane, HostLane
from ep_compliance.driving.values import (
    LAYOUTS,
    Held,
    any_alive,
    arrays_in,
    describe,
    hold,
    misfit,
    poison,
    poisoned,
    same_bits,
    shape_misfit,
)
from ep_core.contracts import Buffer, CompiledPartition, Value
from ep_core.graph import Subgraph
from ep_core.memory import copy_value
from ep_core.types import TensorType

__all__ = ["DeviceRuns", "HostRuns", "Ran", "Values", "runs_of"]

Values = list[Value]

_AGAIN = (
    "the second run, with memory for its outputs",
    "the third run, with memory for its outputs",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of running a partition in every way.

    Attributes:
        answers: outputs that are to be judged.
        seconds: of each run in turn, from the call until the outputs are there, without copies.
    """

    answers: list[Values]
    seconds: list[float]


def runs_of(
    lane: HostLane | DeviceLane,
    partition: CompiledPartition,
    subgraph: Subgraph,
    inputs: Sequence[Value],
    *,
    repeatable: bool,
) -> Ran:
    """Run a partition in every way; return the outputs that are to be judged, and the times.

    Args:
        inputs: host values in the order of `subgraph.inputs`; they stay as they are.
        repeatable: equal inputs must give equal bits.

    Raises:
        Broken: a run fails, or breaks a contract.
    """
    runs: DeviceRuns | HostRuns
    if isinstance(lane, DeviceLane):
        runs = DeviceRuns(lane, partition, subgraph, inputs, repeatable)
    else:
        runs = HostRuns(lane, partition, subgraph, inputs, repeatable)
    return Ran(runs.all(), runs.seconds)


class HostRuns:
    """The runs of a partition in host memory.

    Attributes:
        seconds: of each run with inputs as the core lays them out.
    """

    def __init__(
        self,
        lane: HostLane,
        partition: CompiledPartition,
        subgraph: Subgraph,
        inputs: Sequence[Value],
        repeatable: bool,
    ) -> None:
        self._lane = lane
        self._partition = partition
        self._subgraph = subgraph
        self._inputs = inputs
        self._repeatable = repeatable
        self.seconds: list[float] = []

    def all(self) -> list[Values]:
        """See `runs_of`."""
        held = [hold(value) for value in self._inputs]
        made = self._run(held, [None] * len(self._subgraph.outputs), "the first run")
        first = [copy_value(value) for value in made]
        answers = [first]
        for what in _AGAIN:
            given = [
                hold(value) if accepts and isinstance(value, np.ndarray) else None
                for value, accepts in zip(made, self._partition.accepts_outputs, strict=True)
            ]
            again = self._run_again(held, given, made, first, what)
            if not self._repeatable:
                answers.append(again)
        for value in made:
            poison(value)
        # An output without elements may be a view of an input; that keeps nothing but itself.
        del made, value
        self._check_kept(held, "the third run")
        rank = max((array.ndim for array in arrays_in(self._inputs)), default=0)
        timed = len(self.seconds)
        for what, lay in [(what, lay) for what, lay, lowest in LAYOUTS if lowest <= rank]:
            answers.append(self._run_laid(what, lay))
        # They are about contents; much of their time goes into copies.
        del self.seconds[timed:]
        return answers

    def _run_laid(self, what: str, lay: Callable[[Value], Held]) -> Values:
        held = [lay(value) for value in self._inputs]
        made = self._run(held, [None] * len(self._subgraph.outputs), what)
        copies = [copy_value(value) for value in made]
        del made
        self._check_kept(held, what)
        return copies

    def _run_again(
        self,
        held: list[Held],
        given: list[Held | None],
        made: Values,
        first: Values,
        what: str,
    ) -> Values:
        """A run into given memory; what it writes to is overwritten in the end."""
        targets = [None if item is None else item.value for item in given]
        for target in targets:
            poison(target)
        outputs = self._run(held, list(targets), what)
        for name, target, item, output in zip(
            self._subgraph.outputs, targets, given, outputs, strict=True
        ):
            if item is None:
                continue
            if output is not target:
                raise Broken(f"{what}: output {name!r} isn't in the memory that it accepted")
            if item.beside():
                raise Broken(f"{what}: bytes beside the memory of output {name!r} were written")
        _check_equal(self._subgraph, first, outputs, what if self._repeatable else "")
        if not all(map(same_bits, first, made)):
            raise Broken(f"{what} changed an output that the first run had handed over")
        _check_apart(self._subgraph.outputs, outputs, made, f"{what}: an output of the first run")
        copies = [copy_value(value) for value in outputs]
        for value in outputs:
            poison(value)
        return copies

    def _run(self, held: list[Held], outputs: Values, what: str) -> Values:
        inputs = [item.value for item in held]
        try:
            self.seconds.append(self._lane.run(self._partition, inputs, outputs))
        except Exception as error:
            raise Broken(f"claimed and compiled, but {what} fails: {text_of(error)}") from error
        names = self._subgraph.inputs
        for name, item in zip(names, held, strict=True):
            if damage := item.damage():
                raise Broken(f"{what} mistreats input {name!r}: {damage}")
        for position, (name, value) in enumerate(zip(self._subgraph.outputs, outputs, strict=True)):
            if text := misfit(value, self._subgraph.graph.type_of(name)):
                raise Broken(f"{what}: output {name!r}: {text}")
            others = [*outputs[:position], *outputs[position + 1 :]]
            _check_apart([name], [value], others, f"{what}: another output")
        _check_apart(self._subgraph.outputs, outputs, inputs, f"{what}: an input")
        constants = [item.numpy() for item in self._subgraph.constants.values()]
        _check_apart(self._subgraph.outputs, outputs, constants, f"{what}: a constant")
        return outputs

    def _check_kept(self, held: list[Held], what: str) -> None:
        watched = [item.let_go() for item in held]
        if any_alive(watched):
            # Garbage in cycles isn't kept on purpose, but it is freed only by a collection.
            gc.collect()
        for name, references in zip(self._subgraph.inputs, watched, strict=True):
            if any_alive([references]):
                raise Broken(f"input {name!r} is still kept after {what} is over")


class DeviceRuns:
    """The runs of a partition in a device's memory.

    Attributes:
        seconds: of each run.
    """

    def __init__(
        self,
        lane: DeviceLane,
        partition: CompiledPartition,
        subgraph: Subgraph,
        inputs: Sequence[Value],
        repeatable: bool,
    ) -> None:
        self._lane = lane
        self._partition = partition
        self._subgraph = subgraph
        self._inputs = inputs
        self._repeatable = repeatable
        self._owned: list[Buffer] = []
        self.seconds: list[float] = []

    def all(self) -> list[Values]:
        """See `runs_of`."""
        try:
            answers = self._all()
        except BaseException:
            self._release_quietly()
            raise
        try:
            self._lane.release(self._owned)
            self._lane.wait()
        except Exception as error:
            raise Broken(f"releasing buffers fails: {text_of(error)}") from error
        return answers

    def _all(self) -> list[Values]:
        buffers = self._feed(self._inputs)
        nothing: Values = [None] * len(self._subgraph.outputs)
        made = self._run(buffers, nothing, "the first run")
        first = self._fetch(made)
        answers = [first]
        written = list(made)
        for what in _AGAIN:
            outputs = self._run_again(buffers, made, first, what)
            answers.append(self._fetch(outputs))
            written += outputs
        for buffer, value in zip(written, [v for values in answers for v in values], strict=True):
            self._lane.overwrite(buffer, poisoned(value))
        self._check_inputs(buffers, "an output shares memory with an input")
        what = "a run after the earlier outputs were overwritten"
        answers.append(self._fetch(self._run(buffers, list(nothing), what)))
        _check_equal(self._subgraph, first, answers[-1], what if self._repeatable else "")
        return [first] if self._repeatable else answers

    def _run_again(self, buffers: Values, made: Values, first: Values, what: str) -> Values:
        """A run into given memory; returns the buffers of its outputs."""
        given = [
            self._feed([poisoned(value)])[0] if accepts else None
            for value, accepts in zip(first, self._partition.accepts_outputs, strict=True)
        ]
        outputs = self._run(buffers, list(given), what)
        for name, target, output in zip(self._subgraph.outputs, given, outputs, strict=True):
            if target is not None and output is not target:
                raise Broken(f"{what}: output {name!r} isn't in the memory that it accepted")
        _check_equal(self._subgraph, first, self._fetch(outputs), what if self._repeatable else "")
        if not all(map(same_bits, first, self._fetch(made))):
            raise Broken(f"{what} changed an output that the first run had handed over")
        return outputs

    def _run(self, buffers: Values, outputs: Values, what: str) -> Values:
        given = list(outputs)
        try:
            self.seconds.append(self._lane.run(self._partition, buffers, outputs))
        except Exception as error:
            raise Broken(f"claimed and compiled, but {what} fails: {text_of(error)}") from error
        for name, target, output in zip(self._subgraph.outputs, given, outputs, strict=True):
            self._check_buffer(name, output, what)
            if output is not target:
                self._owned.append(output)
        everything = [*buffers, *outputs]
        if len({id(item) for item in everything}) != len(everything):
            raise Broken(f"{what}: an output is an input or another output")
        self._check_inputs(buffers, f"{what} changes an input")
        return outputs

    def _check_buffer(self, name: str, output: Any, what: str) -> None:
        if not isinstance(output, Buffer):
            raise Broken(f"{what}: output {name!r} is {describe(output)}, not a buffer")
        if output.memory != self._lane.provider.memory:
            raise Broken(f"{what}: output {name!r} lies in {output.memory}")
        kind = self._subgraph.graph.type_of(name)
        if not isinstance(kind, TensorType):
            return
        if output.dtype is not kind.dtype:
            got = output.dtype.text
            raise Broken(f"{what}: output {name!r}: expected {kind.dtype.text}, got {got}")
        if text := shape_misfit(output.shape, kind):
            raise Broken(f"{what}: output {name!r}: {text}")

    def _check_inputs(self, buffers: Values, text: str) -> None:
        if not all(map(same_bits, self._fetch(buffers), self._inputs)):
            raise Broken(text)

    def _feed(self, values: Sequence[Value]) -> Values:
        try:
            buffers = self._lane.feed(values)
        except Exception as error:
            raise Broken(f"copying inputs to the device fails: {text_of(error)}") from error
        self._owned += buffers
        return buffers

    def _fetch(self, buffers: Values) -> Values:
        try:
            return self._lane.fetch(buffers)
        except Exception as error:
            raise Broken(f"copying outputs to the host fails: {text_of(error)}") from error

    def _release_quietly(self) -> None:
        """After a finding: what is left is given back one by one, as far as that works."""
        for buffer in self._owned:
            try:
                self._lane.release([buffer])
            except Exception:  # noqa: BLE001 - the finding is what counts
                continue


def _check_equal(subgraph: Subgraph, first: Values, other: Values, what: str) -> None:
    """Compare bit by bit, if `what` names a run that is bound to repeat the first one."""
    if not what:
        return
    for name, a, b in zip(subgraph.outputs, first, other, strict=True):
        if not same_bits(a, b):
            raise Broken(f"{what}: output {name!r} isn't bit-equal to the first run's")


def _check_apart(
    names: Sequence[str], outputs: Sequence[Value], others: Sequence[Value], whose: str
) -> None:
    """Raise Broken if an output may share memory with a value of others."""
    rivals = [array for other in others for array in arrays_in(other)]
    for name, value in zip(names, outputs, strict=True):
        for array in arrays_in(value):
            if any(np.may_share_memory(array, rival) for rival in rivals):
                raise Broken(f"{whose} shares memory with output {name!r}")
