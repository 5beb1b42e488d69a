"""From a subgraph to numbered slots and steps, with lifetimes; shared by host and device programs.

Every value of the partition gets a slot. A step is a kernel with the slots it reads and writes.
What may share memory with what is worked out here, once, and used by both kinds of program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ep_core.errors import CompileError, EpError
from ep_core.graph import Initializer, Node, Subgraph
from ep_core.types import ValueType
from ep_sdk.kernels import Kernel, KernelNode, KernelRow
from ep_sdk.lookup import handles_containers

__all__ = ["NOWHERE", "FindRow", "Lowered", "LoweredStep", "Workspace", "lower"]

NOWHERE = -1
"""Slot of an output that nobody asked for."""

FindRow = Callable[[Node], tuple[KernelNode, KernelRow | str]]
Workspace = Callable[[KernelNode], int | None]


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """One kernel call.

    Attributes:
        outputs: one slot per output of the node, `NOWHERE` for those nobody asked for; without
            those at the end, which a kernel need not return.
        writes_out: the kernel takes `out=`; only for steps with one output.
        aliases: an output may be, or hold, an input.
        workspace: bytes that the kernel takes for itself, None where that isn't known.
    """

    node: Node
    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes_out: bool
    aliases: bool
    workspace: int | None = 0


@dataclass(frozen=True)
class Lowered:
    """A subgraph with slots in place of names.

    Slot 0 holds None, for inputs that are left out. Then come the inputs, the constants, and what
    the steps produce.

    Attributes:
        names, types: by slot.
        inputs: slots of the partition's inputs, in order.
        outputs: slots of the partition's outputs, in order.
        constants: by slot.
        steps: in order.
        last_use: by slot: the last step that reads it, the step that writes it if none does, and
            `len(steps)` for outputs.
        last_touch: by slot: like `last_use`, reads through views included.
        roots: by slot: every slot whose memory the value may share; itself, unless it is a view.
    """

    names: tuple[str, ...]
    types: tuple[ValueType | None, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: dict[int, Initializer]
    steps: tuple[LoweredStep, ...]
    last_use: tuple[int, ...]
    last_touch: tuple[int, ...]
    roots: tuple[frozenset[int], ...]

    @cached_property
    def given(self) -> frozenset[int]:
        """Slots of inputs and constants: memory that belongs to somebody else."""
        return frozenset((*self.inputs, *self.constants))

    def with_kernels(self, change: Callable[[LoweredStep], Kernel]) -> Lowered:
        """The same with other kernels in the steps."""
        steps = tuple(replace(step, kernel=change(step)) for step in self.steps)
        return replace(self, steps=steps)

    def with_steps(self, steps: Sequence[LoweredStep]) -> Lowered:
        """The same with other steps over the same slots, which compute the outputs all the same.

        Lifetimes are worked out again. A slot that no step writes any more isn't used.
        """
        roots = _find_roots(len(self.names), steps)
        last_use = _last_use(len(self.names), steps, self.outputs)
        return replace(
            self,
            steps=tuple(steps),
            last_use=tuple(last_use),
            last_touch=tuple(_last_touch(last_use, roots)),
            roots=tuple(roots),
        )


def lower(subgraph: Subgraph, find_row: FindRow, workspace: Workspace = lambda node: 0) -> Lowered:
    """Number the values, make the kernels, and work out lifetimes and sharing.

    Args:
        workspace: what the kernel of a node takes for itself.

    Raises:
        CompileError: a node has no kernel, or its kernel can't be made.
    """
    slots: dict[str, int] = {"": 0}
    inputs = tuple(slots.setdefault(name, len(slots)) for name in subgraph.inputs)
    constants = {slots.setdefault(n, len(slots)): c for n, c in subgraph.constants.items()}
    steps: list[LoweredStep] = []
    for node in subgraph.nodes:
        missing = [name for name in node.inputs if name not in slots]
        if missing:
            raise CompileError(
                f"node {node.name!r} reads {missing[0]!r}, which nothing in the subgraph provides"
            )
        reads = tuple(slots[name] for name in node.inputs)
        writes = [slots.setdefault(n, len(slots)) if n else NOWHERE for n in node.outputs]
        while len(writes) > 1 and writes[-1] == NOWHERE:
            writes.pop()
        steps.append(_make_step(node, find_row, workspace, reads, tuple(writes)))
    outputs = tuple(slots[name] for name in subgraph.outputs)
    roots = _find_roots(len(slots), steps)
    last_use = _last_use(len(slots), steps, outputs)
    return Lowered(
        names=tuple(slots),
        types=tuple(subgraph.graph.type_of(name) for name in slots),
        inputs=inputs,
        outputs=outputs,
        constants=constants,
        steps=tuple(steps),
        last_use=tuple(last_use),
        last_touch=tuple(_last_touch(last_use, roots)),
        roots=tuple(roots),
    )


def _make_step(
    node: Node,
    find_row: FindRow,
    workspace: Workspace,
    reads: tuple[int, ...],
    writes: tuple[int, ...],
) -> LoweredStep:
    kernel_node, row = find_row(node)
    if isinstance(row, str):
        raise CompileError(
            f"node {node.name!r} ({node.key}) was not claimed: {row}",
            fix="Compile only what get_capability says yes to.",
        )
    try:
        kernel = row.make(kernel_node)
    except EpError as error:
        raise CompileError(f"node {node.name!r} ({node.key}): {error}") from error
    except Exception as error:
        raise CompileError(
            f"node {node.name!r} ({node.key}): its kernel can't be made: "
            f"{type(error).__name__}: {error}"
        ) from error
    asked = tuple(slot for slot in writes if slot != NOWHERE)
    return LoweredStep(
        node=node,
        kernel=kernel,
        inputs=reads,
        outputs=writes,
        writes_out=row.writes_out and len(asked) == 1 and writes[0] == asked[0],
        aliases=row.view or handles_containers(node),
        workspace=workspace(kernel_node),
    )


def _find_roots(count: int, steps: Sequence[LoweredStep]) -> list[frozenset[int]]:
    roots = [frozenset((slot,)) for slot in range(count)]
    for step in steps:
        if not step.aliases:
            continue
        read = frozenset().union(*(roots[slot] for slot in step.inputs if slot))
        for slot in step.outputs:
            # A view that turns out to be new memory shares it only with views of itself, and
            # those have the same roots: naming it as one more would only make long chains slow.
            if slot != NOWHERE and read:
                roots[slot] = roots[slot] | read if step.writes_out else read
    return roots


def _last_use(count: int, steps: Sequence[LoweredStep], outputs: Sequence[int]) -> list[int]:
    last = [0] * count
    for number, step in enumerate(steps):
        for slot in (*step.inputs, *step.outputs):
            if slot != NOWHERE:
                last[slot] = number
    for slot in outputs:
        last[slot] = len(steps)
    return last


def _last_touch(last_use: Sequence[int], roots: Sequence[frozenset[int]]) -> list[int]:
    last = list(last_use)
    for slot, found in enumerate(roots):
        for root in found:
            last[root] = max(last[root], last_use[slot])
    return last
