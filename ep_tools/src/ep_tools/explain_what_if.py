"""Providers that answer and don't work: for placing a model on devices that aren't here.

A `StandIn` takes the place of a provider that can't be opened and claims what its certificate
grants. A `Dry` one is open, answers as it would, and compiles nothing. Neither ever runs anything.
Nothing here decides a placement: that is the core's work, with these among the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ep_core.certificates.file import Certificate, read_certificate
from ep_core.certificates.grants import CertificatePolicy, Grants
from ep_core.contracts import (
    API_VERSION,
    Allocator,
    AllocatorStats,
    Buffer,
    Capability,
    CompiledPartition,
    DataTransfer,
    HostArray,
    NodeTime,
    PartitionMemory,
    ProviderFeatures,
    ProviderInfo,
    Stream,
    Support,
    Value,
)
from ep_core.errors import NotSupportedError
from ep_core.forwarding import ForwardingProvider
from ep_core.graph import Graph, Node, Subgraph
from ep_core.partition import CONTROL_FLOW, Candidate
from ep_core.types import HOST_MEMORY, DataType, DeviceInfo, MemoryInfo, MemoryKind

__all__ = ["DEVICE_ID", "StandIn", "dry", "stand_in"]

DEVICE_ID = "what-if"
_NON_TENSORS = ("seq(", "map(", "optional(")


def stand_in(path: str) -> Candidate:
    """Read a certificate and return the provider that stands for what it grants.

    Raises:
        CertificateError: the file can't be read, or isn't a certificate.
    """
    provider = StandIn(read_certificate(Path(path)), path)
    return Candidate(provider.info.name, provider, _granted)


def dry(candidate: Candidate) -> Candidate:
    """The same candidate, which answers as before and compiles nothing."""
    return replace(candidate, provider=_Dry(candidate.provider))


def _granted(graph: Graph, node: Node) -> tuple[bool, str]:
    """A stand-in's claims are its certificate's rows already."""
    return True, ""


class _Unable:
    """A partition, an allocator or a transfer that exists so that a plan can name it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def refuse(self) -> NotSupportedError:
        return NotSupportedError(f"{self._what} only stands in for a device and can't be used")


class _Hollow(_Unable):
    """A partition that nobody runs."""

    def __init__(self, subgraph: Subgraph) -> None:
        super().__init__(f"partition {subgraph.name!r}")
        self._outputs = len(subgraph.outputs)

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        return [False] * self._outputs

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None,
    ) -> None:
        raise self.refuse()

    def close(self) -> None:
        """Nothing to release."""


class _NoMemory(_Unable):
    """An allocator without memory."""

    def __init__(self, memory: MemoryInfo) -> None:
        super().__init__(f"memory {memory}")
        self._memory = memory

    @property
    def memory(self) -> MemoryInfo:
        return self._memory

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> Buffer:
        raise self.refuse()

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        raise self.refuse()

    def stats(self) -> AllocatorStats:
        return AllocatorStats()


class _NoTransfer(_Unable):
    """Says that there are copies from and to the host, and makes none."""

    def __init__(self, memory: MemoryInfo) -> None:
        super().__init__(f"memory {memory}")
        self._memory = memory

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        return {source, target} == {self._memory, HOST_MEMORY}

    def copy(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: Stream | None
    ) -> None:
        raise self.refuse()


class StandIn:
    """Claims the nodes that a certificate's rows grant.

    A certificate doesn't tell where its device's memory is. Only a provider in host memory may
    handle sequences, maps and optionals, so one with rows for those is taken to be in host memory;
    any other has a memory of its own, which is the dearer guess.

    Attributes:
        certificate: whose rows count.
        source: the path it was read from.
    """

    def __init__(self, certificate: Certificate, source: str) -> None:
        self.certificate = certificate
        self.source = source
        self._grants = Grants(CertificatePolicy.ENFORCE, certificate)
        self._on_host = any(
            (kind or "").startswith(_NON_TENSORS)
            for row in certificate.rows
            for types in (*row.inputs, *row.outputs)
            for kind in types or ()
        )

    @property
    def info(self) -> ProviderInfo:
        made = self.certificate
        return ProviderInfo(made.provider, version=made.version, api_version=API_VERSION)

    @property
    def device(self) -> DeviceInfo:
        made = self.certificate
        return DeviceInfo(
            made.provider,
            DEVICE_ID,
            "absent",
            fingerprint=made.device_fingerprint,
            speed=made.speed,
        )

    @property
    def features(self) -> ProviderFeatures:
        whole = {row.op_type for row in self.certificate.rows if not row.domain}
        return ProviderFeatures(
            control_flow=not CONTROL_FLOW.isdisjoint(whole), non_tensor_values=self._on_host
        )

    @property
    def memory(self) -> MemoryInfo:
        if self._on_host:
            return HOST_MEMORY
        return MemoryInfo(f"{self.certificate.provider}:{DEVICE_ID}", MemoryKind.DEVICE)

    @property
    def allocator(self) -> Allocator | None:
        return None if self._on_host else _NoMemory(self.memory)

    @property
    def data_transfer(self) -> DataTransfer | None:
        return None if self._on_host else _NoTransfer(self.memory)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of the placement that comes of it, in sentences."""
        made = self.certificate
        name = made.provider
        where = (
            "in host memory, as it was certified for sequences or maps"
            if self._on_host
            else "in a memory of its own, which the certificate doesn't tell"
        )
        times = (
            f"Times on {name} are predicted from the speed that the certificate declares"
            if made.speed is not None
            else f"The certificate declares no speed, so that what {name} takes in time isn't known"
        )
        return (
            f"{name} isn't opened: {self.source} stands in for it, a certificate of "
            f"{made.distribution} {made.version}, made on {made.device_fingerprint or 'a device'} "
            f"on {made.date} at level {made.level}.",
            f"{name} is taken to run every node that a row of it grants, and to work {where}.",
            f"What {name} would refuse, fuse or fail to compile isn't known; "
            "nothing was compiled for any provider, and nothing was run.",
            f"{times}.",
        )

    def create_stream(self) -> None:
        return None

    def get_capability(self, graph: Graph) -> Capability:
        """Yes where a row fits, with what else held of its cases; else why none does."""
        return Capability(tuple(self._answer(graph, node) for node in graph.nodes))

    def _answer(self, graph: Graph, node: Node) -> Support:
        granted, reason = self._grants(graph, node)
        if not granted:
            return Support(False, reason)
        rows = self.certificate.by_operator.get((node.domain, node.op_type), ())
        told = {row.predicate for row in rows if row.since <= node.since_version <= row.until}
        told.discard("")
        return Support(True, f"certified with: {'; '.join(sorted(told))}" if told else "")

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        return _Hollow(subgraph)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        raise NotSupportedError("a stand-in exports nothing")

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        raise NotSupportedError("a stand-in imports nothing")

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        raise NotSupportedError("a stand-in runs nothing that could be timed")

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        raise NotSupportedError("a stand-in has no pinned memory")

    def import_dlpack(self, tensor: Any) -> Buffer:
        raise NotSupportedError("a stand-in has no memory of its own")

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        raise NotSupportedError("a stand-in compiles nothing that could take memory")

    def close(self) -> None:
        """Nothing to release."""


class _Dry(ForwardingProvider):
    """An open provider that is asked and not set to work."""

    @property
    def features(self) -> ProviderFeatures:
        """What it declares, without what concerns a partition that isn't there."""
        return replace(self.inner.features, tells_memory=False)

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        return _Hollow(subgraph)

    def export_partition(self, partition: CompiledPartition) -> bytes:
        raise NotSupportedError("nothing was compiled that could be exported")

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        raise NotSupportedError("nothing was compiled that could be timed")

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        raise NotSupportedError("nothing was compiled that could take memory")
