"""Chains of elementwise operators become one kernel: nothing between them goes through memory.

A producer goes into its reader where nobody else reads it and both have the same static shape, so
that nothing is computed twice. A chain goes into the tail of the product that it follows; see
`epilogue.py`. Works on lowered steps, whose kernels say what they compute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ep_core.contracts import FusedGroup, Support
from ep_core.errors import EpError
from ep_core.graph import Graph
from ep_core.types import TensorType, ValueType
from ep_sdk.device_kernels.epilogue import Epilogue, Lies, TakesEpilogue, lies
from ep_sdk.device_kernels.expression import Expression
from ep_sdk.device_kernels.kernels.elementwise import ELEMENTWISE, ElementwiseKernel
from ep_sdk.lowering import Lowered, LoweredStep

__all__ = ["fuse_elementwise", "fuse_epilogues", "fused_groups"]

_MOST_INPUTS = 12
_MOST_OPERATIONS = 32
"""Beyond these a kernel has more arguments, and more live values, than devices like."""

_MOST_EXTRAS = 6
"""Inputs of an epilogue, the sum among them."""

_RANK_OF_MATRIX = 2

_PRODUCTS = {
    "Conv": 1,
    "ConvInteger": 1,
    "Gemm": -1,
    "MatMul": -1,
    "MatMulInteger": -1,
    "QLinearConv": 1,
}
"""Axes of the products that take epilogues."""

_ALIGNED = frozenset({"BatchNormalization", "DequantizeLinear", "QuantizeLinear"})
"""Operators whose operands don't broadcast from the last dimension on; offered for chains only."""

_CALLS = re.compile(r"\b(?!fabs|fmax|fmin|rint|COMPUTED|LARGER|SMALLER)[a-z]\w*\(|/")
"""A call of a function, or a division, in a formula."""

_CHEAP = frozenset(
    {"Abs", "Add", "Cast", "Clip", "LeakyRelu", "Max", "Min", "Mul", "Neg", "Relu", "Sub"}
)
"""Operators that are worth computing in a tail on a processor. There a product is one work-item for
a whole tile, and what calls a function for each element is faster in a kernel of its own, which the
driver turns into vectors."""

Shape = tuple[Any, ...]


def fuse_elementwise(lowered: Lowered) -> Lowered:
    """Return the same work with chains of elementwise steps joined."""
    steps = _Fuser(lowered).run()
    return lowered.with_steps(steps) if len(steps) < len(lowered.steps) else lowered


def fused_groups(
    graph: Graph, answers: Sequence[Support], *, is_cpu: bool = False
) -> list[FusedGroup]:
    """What will be joined into chains, and chains into products, if the provider gets all of it.

    A node goes into the group of its readers where they are all in one; so no path leaves a group
    and comes back.
    """
    readers = graph.consumers
    outputs = frozenset(graph.output_names)
    group_of: dict[int, int] = {}
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        is_elementwise = node.op_type in ELEMENTWISE and not node.domain and node.outputs
        if not answers[number].supported or not is_elementwise:
            continue
        group_of[number] = number
        name = node.outputs[0]
        found = {group_of.get(reader) for reader in readers.get(name, ())}
        if name in outputs or len(found) != 1 or None in found:
            continue
        (group,) = found
        assert group is not None
        last = graph.nodes[group].outputs[0]
        if _same_shape(graph.type_of(name), graph.type_of(last)):
            group_of[number] = group
    return _groups(graph, group_of, answers, is_cpu)


def _groups(
    graph: Graph, group_of: Mapping[int, int], answers: Sequence[Support], is_cpu: bool
) -> list[FusedGroup]:
    members: dict[int, list[int]] = {}
    for number, group in sorted(group_of.items()):
        members.setdefault(group, []).append(number)
    found = []
    for numbers in members.values():
        if len(numbers) > _MOST_OPERATIONS or len(_read_by(graph, numbers)) > _MOST_INPUTS:
            continue
        suits = not is_cpu or all(graph.nodes[n].op_type in _CHEAP for n in numbers)
        before = _product_before(graph, numbers) if suits else []
        product = [n for n in before if answers[n].supported]
        whole = [*product, *numbers]
        if len(whole) > 1:
            # What a provider says of the product stands: the chain is computed on the way.
            cost = answers[product[0]].cost if product else None
            found.append(FusedGroup(tuple(sorted(whole)), cost))
    return found


def _read_by(graph: Graph, numbers: Sequence[int]) -> list[str]:
    """What nodes read that none of them makes."""
    made = {name for number in numbers for name in graph.nodes[number].outputs}
    read = (name for number in numbers for name in graph.nodes[number].inputs if name)
    return [name for name in dict.fromkeys(read) if name not in made]


def _product_before(graph: Graph, numbers: Sequence[int]) -> list[int]:
    """The product whose epilogue a group will be, if there is one."""
    nodes = graph.nodes
    if any(nodes[number].op_type in _ALIGNED for number in numbers):
        return []
    names = _read_by(graph, numbers)
    result = _known_shape(graph.type_of(nodes[numbers[-1]].outputs[0]))
    shapes = {name: _known_shape(graph.type_of(name)) for name in names}
    if not result or None in shapes.values() or len(names) > _MOST_EXTRAS:
        return []
    for name in names:
        number = graph.producers.get(name)
        if number is None or name in graph.output_names or shapes[name] != result:
            continue
        node = nodes[number]
        axis = _PRODUCTS.get(node.op_type) if not node.domain else None
        if axis is None or not set(graph.consumers[name]) <= set(numbers):
            continue
        second = _known_shape(graph.type_of(node.inputs[1]))
        if axis == -1 and (second is None or len(second) < _RANK_OF_MATRIX):
            continue
        others = [shape for other, shape in shapes.items() if other != name and shape is not None]
        if all(lies(shape, result, axis) for shape in others):
            return [number]
    return []


def fuse_epilogues(lowered: Lowered) -> Lowered:
    """Return the same work with elementwise steps in the tails of the products that they follow."""
    readers = Counter(slot for step in lowered.steps for slot in dict.fromkeys(step.inputs))
    makers: dict[int, int] = {}
    steps: list[LoweredStep | None] = []
    for step in lowered.steps:
        kept = step
        if isinstance(step.kernel, ElementwiseKernel):
            for source in dict.fromkeys(step.inputs):
                place = makers.get(source)
                if place is None or source in lowered.outputs or readers[source] != 1:
                    continue
                merged = _in_tail(lowered.types, step, source, steps[place])
                if merged is not None:
                    steps[place] = None
                    kept = merged
                    break
        elif isinstance(step.kernel, TakesEpilogue) and len(step.outputs) == 1:
            makers[step.outputs[0]] = len(steps)
        steps.append(kept)
    left = [step for step in steps if step is not None]
    return lowered.with_steps(left) if len(left) < len(steps) else lowered


def _in_tail(
    types: Sequence[ValueType | None],
    step: LoweredStep,
    source: int,
    producer: LoweredStep | None,
) -> LoweredStep | None:
    """An elementwise step as the epilogue of the product that makes one of its inputs."""
    kernel = step.kernel
    assert isinstance(kernel, ElementwiseKernel)
    if producer is None or not isinstance(producer.kernel, TakesEpilogue):
        return None
    slots = [step.inputs[position] for position in kernel.positions]
    if source not in slots or not _suits_tail(kernel):
        return None
    expression, sources = kernel.expression.with_inputs_merged(slots)
    number = sources.index(source)
    shapes = [_known_shape(types[slot]) for slot in sources]
    others = tuple(slot for slot in sources if slot != source)
    axis = producer.kernel.axis
    how = _how_operands_lie(expression, number, shapes, axis)
    is_alike = expression.inputs[number] is producer.kernel.gives
    if how is None or not is_alike or _is_vector_product(types, producer):
        return None
    epilogue = Epilogue(expression, number, how, axis)
    return replace(
        step,
        kernel=producer.kernel.with_epilogue(epilogue, len(producer.inputs)),
        inputs=(*producer.inputs, *others),
    )


def _suits_tail(kernel: ElementwiseKernel) -> bool:
    if not kernel.bench.device.is_cpu:
        return True
    return all(not _CALLS.search(item.text) for item in kernel.expression.operations)


def _how_operands_lie(
    expression: Expression, number: int, shapes: Sequence[Shape | None], axis: int
) -> tuple[Lies, ...] | None:
    """How the operands beside the sum lie along it; None if one lies in another way."""
    if any(shape is None for shape in shapes) or len(shapes) > _MOST_EXTRAS:
        return None
    known = [shape for shape in shapes if shape is not None]
    moves = any(align is not None for item in expression.operations for align in item.aligns)
    if moves and any(isinstance(length, str) for shape in known for length in shape):
        return None
    try:
        result, aligned = expression.shapes_of(known)
    except EpError:
        return None
    if result != known[number] or not result:
        return None
    found = [lies(item, result, axis) for n, item in enumerate(aligned) if n != number]
    return None if None in found else tuple(item for item in found if item is not None)


def _known_shape(kind: ValueType | None) -> Shape | None:
    """Lengths, some of which may be names; None if there is one that nobody knows."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return None if shape is None or None in shape else tuple(shape)


def _is_vector_product(types: Sequence[ValueType | None], step: LoweredStep) -> bool:
    """A product with a vector has no columns in its result."""
    assert isinstance(step.kernel, TakesEpilogue)
    if step.kernel.axis != -1:
        return False
    shape = _known_shape(types[step.inputs[1]])
    return shape is None or len(shape) < _RANK_OF_MATRIX


class _Fuser:
    """The state of one walk over the steps, in order."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._readers = Counter(
            slot for step in lowered.steps for slot in dict.fromkeys(step.inputs)
        )
        self._outputs = frozenset(lowered.outputs)
        self._steps: list[LoweredStep | None] = []
        # Where the step stands that gives a slot, for steps that may go into their reader.
        self._makers: dict[int, int] = {}

    def run(self) -> list[LoweredStep]:
        """The steps that are left."""
        for step in self._lowered.steps:
            joined = step
            if isinstance(step.kernel, ElementwiseKernel):
                while (larger := self._absorb_one(joined)) is not None:
                    joined = larger
                self._makers[step.outputs[0]] = len(self._steps)
            self._steps.append(joined)
        return [step for step in self._steps if step is not None]

    def _absorb_one(self, step: LoweredStep) -> LoweredStep | None:
        """Put one producer into a step; None if there is none left that may go there."""
        types = self._lowered.types
        for source in dict.fromkeys(step.inputs):
            place = self._makers.get(source)
            if place is None or source in self._outputs or self._readers[source] != 1:
                continue
            producer = self._steps[place]
            if producer is None or not _same_shape(types[source], types[step.outputs[0]]):
                continue
            merged = _merged(step, source, producer)
            if merged is None:
                continue
            self._steps[place] = None
            for slot in set(step.inputs) & set(producer.inputs):
                # Both read it; from now on it is read once.
                self._readers[slot] -= 1
            return merged
        return None


def _merged(step: LoweredStep, source: int, producer: LoweredStep) -> LoweredStep | None:
    reader, maker = step.kernel, producer.kernel
    assert isinstance(reader, ElementwiseKernel)
    assert isinstance(maker, ElementwiseKernel)
    own = [step.inputs[position] for position in reader.positions]
    if source not in own:
        return None
    expression, sources = reader.expression.with_inputs_merged(own)
    number = sources.index(source)
    expression = expression.with_input_computed(number, maker.expression)
    slots = [slot for slot in sources if slot != source]
    slots += [producer.inputs[position] for position in maker.positions]
    expression, sources = expression.with_inputs_merged(slots)
    if len(sources) > _MOST_INPUTS or len(expression.operations) > _MOST_OPERATIONS:
        return None
    kernel = ElementwiseKernel(reader.bench, expression, range(len(sources)))
    return replace(step, kernel=kernel, inputs=sources)


def _same_shape(first: ValueType | None, second: ValueType | None) -> bool:
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return False
    shape = first.shape
    return shape is not None and None not in shape and shape == second.shape
