"""Partitions with native parts: a host program some of whose steps are native segments.

A partition that is native as a whole takes the short way: one call, nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import replace
from typing import Any

from ep_core.contracts import NodeTime, Stream, Value
from ep_core.errors import AllocationError, RunError
from ep_core.graph import Initializer, Node, Subgraph
from ep_core.types import TensorType
from ep_cpu.native.bfloat16 import in_bfloat16
from ep_cpu.native.fusing import fuse
from ep_cpu.native.layout import turn
from ep_cpu.native.operators import translate
from ep_cpu.native.program import ProgramParts, build_program
from ep_cpu.native.quantised_groups import group
from ep_cpu.native.quantising import weights_view
from ep_cpu.native.segments import Segment, divide
from ep_cpu.native.steps import NativeStep
from ep_sdk.host_program import HostProgram
from ep_sdk.kernels import Kernel, KernelNode, KernelRow
from ep_sdk.lowering import FindRow, Lowered, LoweredStep, Workspace, lower

__all__ = ["NativeProgram", "NativeSegment", "NativeSettings", "native_program"]


class NativeSettings:
    """How native programs are made: the compiled module, a set of instructions, threads.

    Args:
        in_bfloat16: products with constant weights round their operands to bfloat16.
    """

    def __init__(self, module: Any, level: str, threads: int, in_bfloat16: bool = False) -> None:
        self.module = module
        self.level = level
        self.threads = threads
        self.in_bfloat16 = in_bfloat16


class NativeSegment:
    """A kernel for several nodes: one call of native code.

    Args:
        program: a finished native program.
        steps: what it is made of, in order.
        outputs: how many values it gives.
        make_fallback: makes a program of the other kernels for the same nodes, for inputs that the
            native code refuses; its run says what is wrong with them, or computes.
    """

    def __init__(
        self,
        program: Any,
        steps: Sequence[NativeStep],
        outputs: int,
        make_fallback: Callable[[], HostProgram],
    ) -> None:
        self.program = program
        self._steps = tuple(steps)
        self._outputs = outputs
        self._make_fallback = make_fallback
        self._fallback: HostProgram | None = None
        self._lock = threading.Lock()

    def __call__(self, *inputs: Value, out: Value = None) -> Any:
        """Compute; the only output, or a tuple of all."""
        outputs: list[Value] = [None] * self._outputs
        outputs[0] = out
        self.run(inputs, outputs)
        return outputs[0] if self._outputs == 1 else tuple(outputs)

    def run(self, inputs: Sequence[Value], outputs: list[Value]) -> None:
        """Compute into `outputs`, whose entries are memory or None."""
        try:
            if self.program.run(inputs, outputs):
                return
        except MemoryError as error:
            raise AllocationError("no memory for the values inside a partition") from error
        self.fallback().run(inputs, outputs)

    def timed(self, record: Callable[[NodeTime], None]) -> Kernel:
        """A kernel that does the same and reports how long each step took."""

        def run(*inputs: Value, out: Value = None) -> Any:
            outputs: list[Value] = [None] * self._outputs
            outputs[0] = out
            times = self.program.run_timed(inputs, outputs)
            if times is None:
                return self(*inputs, out=out)
            for step, (start, end) in zip(self._steps, times, strict=True):
                if end:
                    node = step.nodes[-1]
                    record(NodeTime(node.name, node.op_type, start, end))
            return outputs[0] if self._outputs == 1 else tuple(outputs)

        return run

    def close(self) -> None:
        """Give up the program and its packed weights; twice without harm."""
        self.program = None
        with self._lock:
            if self._fallback is not None:
                self._fallback.close()

    def fallback(self) -> HostProgram:
        """The program of the other kernels; made when it is first needed."""
        with self._lock:
            if self._fallback is None:
                self._fallback = self._make_fallback()
            return self._fallback


class NativeProgram(HostProgram):
    """A host program with native segments.

    Attributes:
        packed_bytes: of weights in the form that native code reads, beside the constants.
    """

    def __init__(self, lowered: Lowered, on_close: Callable[[Any], None]) -> None:
        super().__init__(lowered, on_close)
        self._whole = _only_segment(lowered)
        kernels = (step.kernel for step in lowered.steps)
        self._segments = [kernel for kernel in kernels if isinstance(kernel, NativeSegment)]
        self.packed_bytes = sum(segment.program.constant_bytes for segment in self._segments)

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """All outputs of a partition that is native as a whole."""
        if self._whole is not None:
            return [True] * len(self._outputs)
        return super().accepts_outputs

    def change_kernels(self, change: Callable[[LoweredStep], Kernel]) -> None:
        """As in `HostProgram`; the short way is over, since it calls no kernel."""
        super().change_kernels(change)
        self._whole = None

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Compute the outputs; see `CompiledPartition.run`."""
        whole = self._whole
        if whole is None or type(outputs) is not list:
            super().run(inputs, outputs, stream)
        elif self._closed:
            raise RunError("the partition is closed", fix="Compile the subgraph again.")
        else:
            whole.run(inputs, outputs)

    def close(self) -> None:
        """Give up the native programs too; twice without harm."""
        self._whole = None
        for segment in self._segments:
            segment.close()
        super().close()


def _only_segment(lowered: Lowered) -> NativeSegment | None:
    """The segment that is the whole partition, with inputs and outputs in the same order."""
    if len(lowered.steps) != 1:
        return None
    (step,) = lowered.steps
    if not isinstance(step.kernel, NativeSegment):
        return None
    same = step.inputs == lowered.inputs and step.outputs == lowered.outputs
    return step.kernel if same else None


def native_program(
    subgraph: Subgraph,
    describe: Callable[[Node], KernelNode],
    find: FindRow,
    workspace: Workspace,
    settings: NativeSettings,
    on_close: Callable[[Any], None],
) -> NativeProgram | None:
    """A program with native segments, None where no part of the subgraph is worth one.

    Raises:
        CompileError: a node has no kernel, or its kernel can't be made.
    """
    if not subgraph.inputs:
        return None
    steps: dict[int, NativeStep] = {}
    for index, node in zip(subgraph.indices, subgraph.nodes, strict=True):
        answer = translate(_with_weights(subgraph, describe(node)))
        if isinstance(answer, NativeStep):
            steps[index] = answer
    segments = divide(subgraph, steps)
    if not any(segment.native for segment in segments):
        return None
    native = {i for segment in segments if segment.native for i in segment.indices}
    nodes = {subgraph.graph.nodes[index].name for index in native}
    lowered = lower(subgraph, _lazily(find, nodes), workspace)
    order = {id(step.node): step for step in lowered.steps}
    slots = {name: slot for slot, name in enumerate(lowered.names)}
    made: list[LoweredStep] = []
    for segment, part in zip(segments, _parts(subgraph, segments), strict=True):
        if segment.native:
            own = [steps[index] for index in (*segment.helpers, *segment.indices)]
            made.append(_native_step(part, own, slots, find, workspace, settings))
        else:
            made.extend(order[id(node)] for node in part.nodes)
    return NativeProgram(lowered.with_steps(made), on_close)


def _with_weights(subgraph: Subgraph, node: KernelNode) -> KernelNode:
    """The same with convolution weights that a conversion of constants makes.

    Their values aren't looked at; `group` computes them where they are needed.
    """
    own = node.node
    if own.op_type != "Conv" or node.constants[1] is not None:
        return node
    graph = subgraph.graph
    maker = next((n for n in subgraph.nodes if own.inputs[1] in n.outputs), None)
    if maker is None or maker.op_type != "DequantizeLinear" or maker.domain:
        return node
    shapes = [graph.constant(name) for name in maker.inputs if name]
    if any(constant is None for constant in shapes) or shapes[0] is None:
        return node
    weights = weights_view(shapes[0].shape)
    constants = [weights if i == 1 else node.constants[i] for i in range(len(own.inputs))]
    return replace(node, constants=constants)


def _native_step(
    part: Subgraph,
    own: Sequence[NativeStep],
    slots: Mapping[str, int],
    find: FindRow,
    workspace: Workspace,
    settings: NativeSettings,
) -> LoweredStep:
    graph = part.graph
    constants = dict(part.constants)
    for step in own:
        for name, array in step.constants.items():
            constants[name] = Initializer.from_array(name, array)
    grouped = group(own, part.outputs, constants, graph.type_of)
    turned = turn(grouped.steps, part.outputs, grouped.constants, graph.type_of)
    fused = fuse(turned.steps, part.outputs, turned.constants, turned.types)
    if settings.in_bfloat16:
        fused = in_bfloat16(fused, turned.constants)
    parts = ProgramParts(fused, part.inputs, part.outputs, turned.constants)
    program = build_program(settings.module, parts, graph.type_of, settings.level, settings.threads)

    def make_fallback() -> HostProgram:
        return HostProgram(lower(part, find, workspace), on_close=lambda _: None)

    kernel = NativeSegment(program, fused, len(part.outputs), make_fallback)
    return LoweredStep(
        node=own[-1].nodes[-1],
        kernel=kernel,
        inputs=tuple(slots[name] for name in part.inputs),
        outputs=tuple(slots[name] for name in part.outputs),
        writes_out=len(part.outputs) == 1,
        aliases=False,
        workspace=_arena_bytes(program, part),
    )


def _parts(subgraph: Subgraph, segments: Sequence[Segment]) -> list[Subgraph]:
    """The segments as subgraphs; outputs are what other segments, or others outside, read."""
    graph = subgraph.graph
    if len(segments) == 1:
        return [subgraph]
    cuts = [Subgraph.cut(graph, (*s.helpers, *s.indices), subgraph.name) for s in segments]
    needed = set(subgraph.outputs).union(*(part.inputs for part in cuts))
    parts: list[Subgraph] = []
    for segment, part in zip(segments, cuts, strict=True):
        made = (name for index in segment.indices for name in graph.nodes[index].outputs)
        parts.append(replace(part, outputs=tuple(name for name in made if name in needed)))
    return parts


def _arena_bytes(program: Any, part: Subgraph) -> int | None:
    shapes: list[tuple[int, ...]] = []
    for name in part.inputs:
        kind = part.graph.type_of(name)
        shape = kind.static_shape if isinstance(kind, TensorType) else None
        if shape is None:
            return None
        shapes.append(shape)
    found: int | None = program.arena_bytes(shapes)
    return found


def _lazily(find: FindRow, nodes: set[str]) -> FindRow:
    """The same rows, whose kernels for some nodes are never made: a native segment has them."""

    def found(node: Node) -> tuple[KernelNode, KernelRow | str]:
        kernel_node, row = find(node)
        if isinstance(row, str) or node.name not in nodes:
            return kernel_node, row
        return kernel_node, replace(row, make=_never_made)

    return found


def _never_made(node: KernelNode) -> Kernel:
    def kernel(*inputs: Value, **options: Any) -> Any:
        raise RunError(f"node {node.node.name!r} is part of a native segment")

    return kernel
