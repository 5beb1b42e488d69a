"""The base class of providers whose vendor has a compiler that reads ONNX.

The subclass says what the compiler takes and calls it; the base exports the subgraph, binds inputs
and outputs by name, keeps memory apart, and turns the vendor's errors into the project's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx

from ep_core.contracts import (
    Capability,
    CompiledPartition,
    FusedGroup,
    ProviderFeatures,
    Stream,
    Support,
    Value,
)
from ep_core.errors import AllocationError, CompileError, EpError, ProviderError, RunError
from ep_core.graph import Graph, Node, Subgraph
from ep_core.memory import copy_value
from ep_core.types import TensorType
from ep_sdk.base import ProviderBase
from ep_sdk.host import copy_into

__all__ = ["CompiledModel", "CompilerPartition", "CompilerProvider"]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class CompiledModel:
    """What a vendor's compiler made.

    Attributes:
        run: takes the inputs by name and returns the outputs by name. Inputs must not be changed.
        inputs: names that the compiled model still has; None if it has all. Compilers drop what
            they find unused, and refuse to be fed it.
        fresh_outputs: every array that `run` returns is new: no view of an input, a constant or
            memory that the next run writes to. The base copies results unless this is True.
        close: releases the compiled model; called once.
        export: returns what `CompilerProvider.import_model` needs; None if that can't be had.
    """

    run: Callable[[Mapping[str, Value]], Mapping[str, Value]]
    inputs: tuple[str, ...] | None = None
    fresh_outputs: bool = False
    close: Callable[[], None] = _nothing
    export: Callable[[], bytes] | None = None


class CompilerProvider(ProviderBase, ABC):
    """Meets `ep_core.contracts.ExecutionProvider` with a vendor's compiler, in host memory.

    A subclass writes `compile_model`, and `supports` or, if the vendor answers for whole graphs,
    `claims`. Compilers like large subgraphs: all that is claimed and connected comes as one.

    A compiler whose results can be stored declares `artifacts` among its features, sets `export` in
    what `compile_model` and `import_model` return, and writes `import_model`.
    """

    features: ClassVar[ProviderFeatures] = ProviderFeatures(concurrent_runs=False)

    @abstractmethod
    def compile_model(self, model: onnx.ModelProto, subgraph: Subgraph) -> CompiledModel:
        """Required. Compile a self-contained model.

        Args:
            model: `subgraph` as ONNX; inputs and outputs have the subgraph's names.
            subgraph: for types, and for names that say which part of the model this is.

        Raises:
            Any exception; it costs this claim only.
        """

    def import_model(self, artifact: bytes, subgraph: Subgraph) -> CompiledModel:
        """Required with `features.artifacts`. Load what `CompiledModel.export` gave.

        Args:
            artifact: whole, and of an equal subgraph, device and build: the core sees to that.
            subgraph: for names and types; it needn't be compiled.

        Raises:
            Any exception; the core then compiles.
        """
        raise CompileError(f"provider {self.info.name!r} imports no models")

    def supports(self, node: Node, graph: Graph) -> Support:
        """Say whether the compiler takes one node. Required unless `claims` is overridden."""
        return Support(False, f"{type(self).__name__} doesn't say which nodes it takes")

    def claims(self, graph: Graph) -> Sequence[Support]:
        """Answer for every node of a graph, in order. Default: ask `supports` one by one."""
        return [self.supports(node, graph) for node in graph.nodes]

    def fused_groups(self, graph: Graph, answers: Sequence[Support]) -> Sequence[FusedGroup]:
        """Return what the compiler will run as one piece, of nodes that were said yes to; pure.

        Only where that is known; what a group may be is told in `FusedGroup`.
        """
        return ()

    def get_capability(self, graph: Graph) -> Capability:
        """The answers of `claims`; where the vendor's query raises, a no with its message."""
        try:
            found = tuple(self.claims(graph))
            groups = tuple(self.fused_groups(graph, found))
        except Exception as error:  # noqa: BLE001 - a claim must not raise, whatever the graph
            reason = f"the query of {self.info.name!r} failed: {type(error).__name__}: {error}"
            return Capability((Support(False, reason),) * len(graph.nodes))
        return Capability(found, groups)

    def compile(self, subgraph: Subgraph) -> CompilerPartition:
        """Export the subgraph and compile it.

        Raises:
            CompileError: the vendor refused or failed, with its message.
            AllocationError: memory ran out.
            ProviderError: the provider is closed.
        """
        make = lambda: self.compile_model(subgraph.to_model(), subgraph)  # noqa: E731
        return self._partition(subgraph, "compile", make)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """Ask a partition's model for its artifact.

        Raises:
            CompileError: the partition has none to give, or the vendor failed.
            ProviderError: the provider is closed.
        """
        self.check_open()
        if not isinstance(partition, CompilerPartition):
            raise CompileError(f"the partition isn't one of provider {self.info.name!r}")
        return partition.export()

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompilerPartition:
        """Make a partition by `import_model`; raises what `compile` does."""
        make = lambda: self.import_model(artifact, subgraph)  # noqa: E731
        return self._partition(subgraph, "import", make)

    def _partition(
        self, subgraph: Subgraph, doing: str, make: Callable[[], CompiledModel]
    ) -> CompilerPartition:
        self.check_open()
        try:
            compiled = make()
        except EpError:
            raise
        except MemoryError as error:
            what = f"{self.info.name!r} ran out of memory to {doing} {subgraph.name!r}"
            raise AllocationError(what) from error
        except Exception as error:
            raise CompileError(
                f"{self.info.name!r} can't {doing} {subgraph.name!r} "
                f"({len(subgraph.nodes)} nodes): {type(error).__name__}: {error}"
            ) from error
        partition = CompilerPartition(compiled, subgraph, self.info.name, on_close=self.forget)
        self.track(partition)
        return partition


class CompilerPartition:
    """Meets `ep_core.contracts.CompiledPartition`: binds by name and keeps memory apart.

    Args:
        vendor: for messages.
        on_close: called once, with the partition, when it is closed.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        subgraph: Subgraph,
        vendor: str,
        on_close: Callable[[Any], None],
    ) -> None:
        taken = compiled.inputs
        self._compiled = compiled
        self._label = f"{vendor!r}, subgraph {subgraph.name!r}"
        self._on_close = on_close
        self._inputs = tuple(
            (position, name)
            for position, name in enumerate(subgraph.inputs)
            if taken is None or name in taken
        )
        self._outputs = subgraph.outputs
        self._types = tuple(subgraph.graph.type_of(name) for name in subgraph.outputs)
        self._closed = False
        unknown = sorted(set(taken or ()) - set(subgraph.inputs))
        if unknown:
            self.close()
            raise CompileError(
                f"{self._label}: the compiled model has an input {unknown[0]!r} of its own",
                expected=f"some of {list(subgraph.inputs)}",
            )

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """None: the vendor's results are copied into the caller's memory."""
        return [False] * len(self._outputs)

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None = None,
    ) -> None:
        """Run the vendor's model; see `CompiledPartition.run`."""
        if self._closed:
            raise RunError("the partition is closed", fix="Compile the subgraph again.")
        feeds = {name: inputs[position] for position, name in self._inputs}
        try:
            results = self._compiled.run(feeds)
        except EpError:
            raise
        except MemoryError as error:
            raise AllocationError(f"{self._label} ran out of memory: {error}") from error
        except Exception as error:
            raise RunError(f"{self._label} failed: {type(error).__name__}: {error}") from error
        for position, name in enumerate(self._outputs):
            if name not in results:
                raise RunError(
                    f"{self._label} returned no {name!r}", got=f"outputs {sorted(results)}"
                )
            outputs[position] = self._leave(position, results[name], outputs[position])

    def export(self) -> bytes:
        """The artifact of the vendor's model; raises CompileError where there is none."""
        if self._closed or self._compiled.export is None:
            what = "is closed" if self._closed else "can't be exported"
            raise CompileError(f"{self._label}: the partition {what}")
        try:
            return self._compiled.export()
        except EpError:
            raise
        except Exception as error:
            raise CompileError(
                f"{self._label} can't be exported: {type(error).__name__}: {error}"
            ) from error

    def close(self) -> None:
        """Release the vendor's model; twice without harm."""
        if self._closed:
            return
        self._closed = True
        try:
            self._compiled.close()
        except EpError:
            raise
        except Exception as error:
            raise ProviderError(
                f"{self._label} can't be released: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._on_close(self)

    def _leave(self, position: int, result: Value, memory: Value | None) -> Value:
        """Check a result's type and make it the caller's own."""
        name = self._outputs[position]
        kind = self._types[position]
        is_new = self._compiled.fresh_outputs
        if isinstance(kind, TensorType):
            if not isinstance(result, np.ndarray):
                result = np.asarray(result)
                is_new = False
            if result.dtype != kind.dtype.numpy:
                raise RunError(
                    f"{self._label} returned {name!r} of another type",
                    expected=kind.dtype.numpy,
                    got=result.dtype,
                )
        if memory is not None:
            copy_into(memory, result, name)
            return memory
        return result if is_new else copy_value(result)
