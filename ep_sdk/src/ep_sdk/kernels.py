"""The kernel table: the one place where a provider says what it can compute and how.

A row says which operator, which versions and which types; `make` turns a node into a function.
Capability and dispatch are both derived from the rows, so they can't disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ep_core.graph import Node
from ep_core.types import DataType, TensorType, ValueType

__all__ = ["Kernel", "KernelNode", "KernelRow", "KernelTable", "MakeKernel"]

Kernel = Callable[..., Any]
"""Computes one node: `kernel(*inputs)` returns the output, or a tuple with one entry per output.

Inputs are values in the provider's memory, None for an input that is left out; inputs must not be
changed. A node's kernel may run on several threads at once and keeps nothing between runs. What
it returns is new memory, unless its row says `view`: then it may be one of the inputs or a view of
one.

A kernel whose row says `writes_out` also takes `out=`: memory of the right dtype and shape, or
None; it returns what it wrote. Only for nodes with one output, whose shape follows from the shapes
of the inputs and from constants. `out` never overlaps an input.

Host arrays: numpy scalars and lists are turned into arrays. Floating-point warnings are off.

For providers with streams the first argument is the stream; the kernel allocates its outputs with
the allocator of `KernelNode.provider` on that stream. A `view` kernel there never returns memory
of its own: always an input, or a buffer inside an input that needs no release.
"""


@dataclass(frozen=True)
class KernelNode:
    """A node as its kernel factory sees it: all that is known before the first run.

    Attributes:
        node: the node itself.
        input_types: type of each input, None where it is unknown or left out.
        output_types: likewise.
        constants: the value of each input that is constant, else None. Read on first use, so that
            looking at one doesn't load the others.
        options: the provider's options.
        provider: the provider that is asked, for its allocator and device; None in a test that
            makes a kernel without one.
    """

    node: Node
    input_types: tuple[ValueType | None, ...]
    output_types: tuple[ValueType | None, ...]
    constants: Sequence[np.ndarray[Any, Any] | None]
    options: Mapping[str, Any] = field(default_factory=dict)
    provider: Any = None

    @property
    def version(self) -> int:
        """since_version of the operator's schema."""
        return self.node.since_version

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or `default` where the model doesn't set it.

        Float attributes of ONNX are float32, so a float default is rounded as if it had been set.
        """
        if name in self.node.attributes:
            return self.node.attributes[name]
        return float(np.float32(default)) if type(default) is float else default

    def has_input(self, index: int) -> bool:
        """True if the input is present (not left out)."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def wants_output(self, index: int) -> bool:
        """True if somebody asked for the output."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def input_dtype(self, index: int) -> DataType | None:
        """Element type of a tensor input, None where unknown."""
        kind = self.input_types[index] if index < len(self.input_types) else None
        return kind.dtype if isinstance(kind, TensorType) else None

    def output_dtype(self, index: int = 0) -> DataType | None:
        """Element type of a tensor output, None where unknown."""
        kind = self.output_types[index] if index < len(self.output_types) else None
        return kind.dtype if isinstance(kind, TensorType) else None


MakeKernel = Callable[[KernelNode], Kernel]


@dataclass(frozen=True)
class KernelRow:
    """One row: which nodes it takes, and how it computes them.

    Attributes:
        op_type, domain: the operator.
        since, until: range of schema versions, both ends included.
        types: allowed element types by type parameter of the schema (`"T"`) or by input position
            (`0`); parameters that aren't named may have any type.
        make: called once per node at compile time.
        writes_out: the kernel takes `out=`.
        view: the kernel may return an input or a view of one. Such a kernel switches numpy's
            float warnings off itself if it also computes.
        predicate: further conditions; returns None for yes, or the reason for a no.
    """

    op_type: str
    domain: str
    since: int
    until: int
    types: Mapping[str | int, frozenset[DataType]]
    make: MakeKernel
    writes_out: bool = False
    view: bool = False
    predicate: Callable[[KernelNode], str | None] | None = None


class KernelTable:
    """Rows by operator. Rows are tried in the order they were added; the first that fits wins.

    Args:
        newest: newest opset version by domain that the author has looked at; the default for
            `until`, so that a later ONNX doesn't silently widen a claim.
    """

    def __init__(self, newest: Mapping[str, int]) -> None:
        self.newest = dict(newest)
        self._rows: dict[tuple[str, str], list[KernelRow]] = {}

    def kernel(
        self,
        op_type: str,
        *,
        domain: str = "",
        since: int = 1,
        until: int | None = None,
        types: Mapping[str | int, Iterable[DataType]] | None = None,
        writes_out: bool = False,
        view: bool = False,
        predicate: Callable[[KernelNode], str | None] | None = None,
    ) -> Callable[[MakeKernel], MakeKernel]:
        """Add a row; decorates the factory that makes the kernel."""

        def add(make: MakeKernel) -> MakeKernel:
            row = KernelRow(
                op_type=op_type,
                domain=domain,
                since=since,
                until=self.newest.get(domain, since) if until is None else until,
                types={key: frozenset(kinds) for key, kinds in (types or {}).items()},
                make=make,
                writes_out=writes_out,
                view=view,
                predicate=predicate,
            )
            self._rows.setdefault((domain, op_type), []).append(row)
            return make

        return add

    def rows(self, domain: str, op_type: str) -> tuple[KernelRow, ...]:
        """The rows of one operator, in order."""
        return tuple(self._rows.get((domain, op_type), ()))

    def __iter__(self) -> Iterator[KernelRow]:
        for rows in self._rows.values():
            yield from rows

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())
