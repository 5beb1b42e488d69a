"""The read-only graph that providers, passes and the partitioner look at.

Built by `loading/` from an ONNX proto and rewritten only by making a new one (`Graph.replace`).
Everything is frozen: a provider can keep a `Graph`, a `Node` or a `Subgraph` and never see it
change. Protos appear here only on the way out (`to_model`), for vendors whose compiler reads ONNX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from ep_core.types import DataType, OpSet, TensorType, ValueType

__all__ = [
    "AttributeValue",
    "Graph",
    "Initializer",
    "Node",
    "Subgraph",
    "ValueInfo",
]

AttributeValue = Any
"""int, float, str, bytes, numpy.ndarray, Graph, ValueType, or a tuple of one of them."""


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named value and its type; the type is None where inference could not tell."""

    name: str
    type: ValueType | None = None
    doc: str = ""


class Initializer:
    """A constant tensor, decoded on first use and shared by everything that refers to it.

    External data is memory-mapped, so that an initializer costs no memory until it is read.
    """

    __slots__ = ("__weakref__", "_array", "_read", "dtype", "name", "shape")

    def __init__(
        self,
        name: str,
        dtype: DataType,
        shape: tuple[int, ...],
        read: Callable[[], np.ndarray[Any, Any]],
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self._read: Callable[[], np.ndarray[Any, Any]] | None = read
        self._array: np.ndarray[Any, Any] | None = None

    @classmethod
    def from_array(cls, name: str, array: np.ndarray[Any, Any]) -> Initializer:
        """Wrap an array; it is marked read-only."""
        view = array.view()
        view.flags.writeable = False
        return cls(name, DataType.from_numpy(array.dtype), view.shape, lambda: view)

    @property
    def type(self) -> TensorType:
        """The tensor type, always static."""
        return TensorType(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements when packed; strings count as 0."""
        count = 1
        for length in self.shape:
            count *= length
        return (count * self.dtype.bits + 7) // 8

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the tensor as a read-only array of `shape` and `dtype.numpy`."""
        array = self._array
        if array is None:
            read = self._read
            # Two threads may both read; both get equal data and the last one stays.
            array = read() if read is not None else self._array
            assert array is not None
            array.flags.writeable = False
            self._array = array
            self._read = None
        return array

    def renamed(self, name: str) -> Initializer:
        """Return the same tensor under another name, without copying it."""
        return Initializer(name, self.dtype, self.shape, self.numpy)

    def __repr__(self) -> str:
        return f"Initializer({self.name!r}, {self.dtype.text}, {self.shape})"


@dataclass(frozen=True, eq=False)
class Node:
    """One operator call.

    Attributes:
        name: unique within its graph; made up by the loader where the model has none.
        op_type: e.g. `Conv`.
        domain: `""` for ai.onnx.
        since_version: version of the operator's schema in force at the model's opset; for
            operators without a schema the opset version of the domain.
        inputs: value names; `""` marks an optional input that is left out.
        outputs: value names; `""` marks an output nobody asked for.
        attributes: only those the model sets; schema defaults are not filled in.
    """

    name: str
    op_type: str
    domain: str
    since_version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))

    @property
    def key(self) -> str:
        """`Conv`, or `com.microsoft.Gelu` outside the default domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @cached_property
    def bodies(self) -> Mapping[str, Graph]:
        """Graph attributes by attribute name, e.g. `then_branch`."""
        found: dict[str, Graph] = {}
        for name, value in self.attributes.items():
            if isinstance(value, Graph):
                found[name] = value
            elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
                found.update({f"{name}[{i}]": item for i, item in enumerate(value)})
        return MappingProxyType(found)

    @property
    def captures(self) -> tuple[str, ...]:
        """Values of outer scopes that the bodies use, without repeats, in order of first use."""
        # Graph.captures comes here and is asked from here. In Python 3.11 a cached property holds
        # a lock of its class while it computes: were both cached, two threads could block.
        seen: dict[str, None] = {}
        for body in self.bodies.values():
            seen.update(dict.fromkeys(body.captures))
        return tuple(seen)

    @property
    def reads(self) -> Iterator[str]:
        """Every value the node depends on: inputs that are present, then captures."""
        yield from (name for name in self.inputs if name)
        yield from self.captures

    def replace(self, **changes: Any) -> Node:
        """Return a copy with the given fields changed."""
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        return f"<{self.key} {self.name!r}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph in topological order: a model's main graph, or the body of a control-flow node.

    Attributes:
        inputs: values the caller feeds, in the model's order, including those of `overridable`.
        outputs: values the caller gets.
        nodes: in an order in which every value is produced before it is used.
        initializers: constants and defaults by name.
        overridable: inputs that have a default in `initializers` and may be left out of a feed;
            their initializers are **not** constants.
        values: what is known of the type of every value, inputs and outputs included.
        opsets: operator set versions in force.
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Initializer]
    opsets: OpSet
    values: Mapping[str, ValueInfo] = field(default_factory=dict)
    overridable: frozenset[str] = frozenset()
    doc: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "initializers", MappingProxyType(dict(self.initializers)))
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of `inputs`."""
        return tuple(value.name for value in self.inputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Names of `outputs`."""
        return tuple(value.name for value in self.outputs)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """Index of the node that produces each value."""
        return MappingProxyType(
            {name: i for i, node in enumerate(self.nodes) for name in node.outputs if name}
        )

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the nodes that read each value, bodies included, ascending."""
        found: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(i)
        return MappingProxyType({name: tuple(users) for name, users in found.items()})

    @cached_property
    def captures(self) -> tuple[str, ...]:
        """Names used here, or in nested bodies, that no value of this graph defines."""
        defined = set(self.input_names) | set(self.initializers) | set(self.producers)
        seen: dict[str, None] = {}
        for node in self.nodes:
            seen.update(dict.fromkeys(name for name in node.reads if name not in defined))
        seen.update(dict.fromkeys(name for name in self.output_names if name not in defined))
        return tuple(seen)

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value, None where it is unknown."""
        found = self.values.get(name)
        if found is not None and found.type is not None:
            return found.type
        initializer = self.initializers.get(name)
        return initializer.type if initializer is not None else None

    def constant(self, name: str) -> Initializer | None:
        """The initializer behind `name` if no feed can override it, else None."""
        return None if name in self.overridable else self.initializers.get(name)

    def replace(self, **changes: Any) -> Graph:
        """Return a copy with the given fields changed."""
        return dataclasses.replace(self, **changes)

    def to_model(self) -> onnx.ModelProto:
        """Return the graph as a valid ONNX model; a body's captures become its inputs."""
        from ep_core.loading.export import export_model

        return export_model(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.nodes)} nodes>"


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The nodes of one claim, cut out of a graph: what a provider compiles.

    Attributes:
        graph: the graph it is cut out of.
        indices: positions of its nodes in `graph.nodes`, ascending.
        inputs: values that come from outside and are no constants, in a fixed order; the order
            in which `CompiledPartition.run` gets them.
        outputs: values needed outside, in a fixed order.
        constants: the initializers its nodes read, captures of their bodies included.
    """

    graph: Graph
    indices: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Initializer]
    name: str = ""

    @classmethod
    def cut(cls, graph: Graph, indices: Iterable[int], name: str = "") -> Subgraph:
        """Cut the given nodes out of `graph`; the boundary follows from who reads what."""
        chosen = tuple(sorted(indices))
        members = set(chosen)
        made = {out for i in chosen for out in graph.nodes[i].outputs if out}
        inputs: dict[str, None] = {}
        constants: dict[str, Initializer] = {}
        for i in chosen:
            for value in graph.nodes[i].reads:
                constant = graph.constant(value)
                if constant is not None:
                    constants[value] = constant
                elif value not in made:
                    inputs[value] = None
        wanted = set(graph.output_names)
        outputs = tuple(
            out
            for i in chosen
            for out in graph.nodes[i].outputs
            if out
            and (out in wanted or any(u not in members for u in graph.consumers.get(out, ())))
        )
        return cls(graph, chosen, tuple(inputs), outputs, MappingProxyType(constants), name)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in topological order."""
        return tuple(self.graph.nodes[i] for i in self.indices)

    def as_graph(self) -> Graph:
        """Return the cut as a graph of its own: inputs, constants and types included."""
        graph = self.graph
        names = {name for node in self.nodes for name in (*node.reads, *node.outputs)}
        return Graph(
            name=self.name or graph.name,
            inputs=tuple(ValueInfo(n, graph.type_of(n)) for n in self.inputs),
            outputs=tuple(ValueInfo(n, graph.type_of(n)) for n in self.outputs),
            nodes=self.nodes,
            initializers=self.constants,
            opsets=graph.opsets,
            values={n: graph.values[n] for n in names if n in graph.values},
        )

    def to_model(self) -> onnx.ModelProto:
        """Return the cut as an ONNX model whose inputs and outputs keep their names."""
        return self.as_graph().to_model()
