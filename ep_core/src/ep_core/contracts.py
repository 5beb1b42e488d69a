"""Every contract between the core and a provider, in one file and without implementation.

Methods say whether they are required or optional, who owns what, and in which order things happen.
Optional features are declared as data (`ProviderFeatures`); the core never probes with `hasattr`.
`ep_sdk` has base classes that meet these protocols; deriving from them is convenience, not duty.

The life of a provider: discover, enumerate, certify, claim, compile, run, close.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ep_core.graph import Graph, Subgraph
from ep_core.types import DataType, DeviceInfo, MemoryInfo

__all__ = [
    "API_VERSION",
    "Allocator",
    "AllocatorStats",
    "Buffer",
    "Capability",
    "Command",
    "CompiledPartition",
    "DataTransfer",
    "Event",
    "ExecutionProvider",
    "FusedGroup",
    "GraphPass",
    "HostArray",
    "NodeTime",
    "Numerics",
    "OptionSpec",
    "PartitionMemory",
    "ProviderFactory",
    "ProviderFeatures",
    "ProviderInfo",
    "Stream",
    "Support",
    "Value",
]

API_VERSION = (1, 0)
"""Version of these contracts. A different major number is refused; a provider built for a newer
minor number than the core's is refused too, an older one is served."""

HostArray = np.ndarray[Any, np.dtype[Any]]
Value = Any
"""What flows between partitions. In host memory: `numpy.ndarray` for tensors (object arrays of
`str` for strings), `list` for sequences, `dict` for maps, `None` for an empty optional or an
input that is left out. In any other memory: a `Buffer`. Values are immutable once produced."""


# ---------------------------------------------------------------- memory and order


@runtime_checkable
class Buffer(Protocol):
    """A dense tensor in a provider's own memory. The bytes are C-contiguous and packed."""

    @property
    def dtype(self) -> DataType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def memory(self) -> MemoryInfo: ...

    def data_ptr(self) -> int:
        """Required. Address of the first byte as the vendor's own libraries take it, or raise
        BufferError where the memory has no addresses. Valid until the buffer is released."""
        ...

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        """Required. Export without a copy, or raise BufferError where the memory has no DLPack
        device. The capsule keeps the memory alive after the buffer is released. One of the old
        form does, whatever `max_version` says that the consumer knows."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """Counters of an allocator, in bytes and calls since it was made.

    Attributes:
        in_use_bytes, peak_bytes: in buffers that are out now, and the most there ever were.
        reserved_bytes: taken from the device, those that wait for their next use included.
        allocations, releases: calls.
        device_allocations: how often memory was taken from the device itself. What is given out
            again isn't counted, so that a run which needs nothing new leaves it as it is.
        pinned_bytes: page-locked host memory that arrays of `allocate_pinned` hold now.
    """

    in_use_bytes: int = 0
    peak_bytes: int = 0
    reserved_bytes: int = 0
    allocations: int = 0
    releases: int = 0
    device_allocations: int = 0
    pinned_bytes: int = 0


class Event(Protocol):
    """A point in the work of a stream."""

    def done(self) -> bool:
        """Required. True once all work before the point has finished; never blocks."""
        ...

    def synchronize(self) -> None:
        """Required. Block the host until `done()`; raise the error of any work that failed."""
        ...


class Stream(Protocol):
    """A queue of work on one device. Work on one stream happens in the order it was given;
    work on two streams is unordered unless one waits on an event of the other."""

    def record(self) -> Event:
        """Required. An event after everything submitted so far."""
        ...

    def wait(self, event: Event) -> None:
        """Required. Later work on this stream starts only after `event`, which may belong to any
        provider. May block the host if the device can't wait for foreign events. Holds after an
        error of earlier work too: memory released on this stream may be in use until then."""
        ...

    def synchronize(self) -> None:
        """Required. Block the host until the stream is empty; raise the first error that any
        work on it met, and once only."""
        ...

    def close(self) -> None:
        """Required. Finish the work, free the queue; twice without harm."""
        ...


class Allocator(Protocol):
    """Gives out buffers of one memory. Safe to call from many threads."""

    @property
    def memory(self) -> MemoryInfo: ...

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> Buffer:
        """Required. Memory for work submitted to `stream` from now on, with no stream for work of
        any kind; contents are undefined. Raises AllocationError. The caller owns the buffer until
        it calls `release` of the allocator that made it."""
        ...

    def release(self, buffer: Buffer, stream: Stream | None = None) -> None:
        """Required. Give the buffer back. Ordered: the memory is reused only by work submitted to
        `stream` later, so that work already queued there may still use it. With no stream the
        caller guarantees that nothing uses it any more."""
        ...

    def stats(self) -> AllocatorStats:
        """Required. A consistent snapshot."""
        ...


class DataTransfer(Protocol):
    """Copies tensors between a provider's memory and others."""

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """Required. Pure. Host to device and device to host must be possible; a direct way to
        another device's memory is a bonus, otherwise the core goes through the host."""
        ...

    def copy(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: Stream | None
    ) -> None:
        """Required. Copy all bytes; shapes and dtypes are equal, arrays C-contiguous. With no
        stream it is done when it returns, and what it reads is ready when it is called. Else it
        is ordered on `stream`, and may return before it is done. Source and target stay alive and
        unchanged (source) or unread (target) until then: the core keeps them, and waits for an
        event of `stream` before host code reads a target or reuses a source."""
        ...


# ---------------------------------------------------------------- describing a provider


@dataclass(frozen=True, slots=True)
class Numerics:
    """What a provider declares about its arithmetic, where it isn't IEEE 754 all the way.

    Attributes:
        flushes_denormals: denormal inputs may be read, and denormal results come out, as zeros.
        narrow_accumulation: sums of 16-bit floats are kept in 16 bits.
    """

    flushes_denormals: bool = False
    narrow_accumulation: bool = False


@dataclass(frozen=True, slots=True)
class ProviderFeatures:
    """What a provider declares about itself; the core relies on it.

    Attributes:
        asynchronous: `run` may return before the work is done; needs streams.
        concurrent_runs: one partition may run on several threads at once; otherwise the core
            takes turns.
        control_flow: may claim If, Loop and Scan as a whole. If not, the core runs them and
            offers their bodies one by one.
        non_tensor_values: handles sequences, optionals and maps. Only for host memory.
        deterministic: equal inputs give bit-equal outputs.
        artifacts: compiled partitions can be exported and imported, so that a later session
            needn't compile; the core keeps them where the caller wants it.
        maps_artifacts: takes artifacts as read-only memoryviews of mapped files, too, in place of
            bytes. The memory is good for as long as the view is referred to.
        profiles_nodes: can tell how long each node of a partition takes.
        overlaps_copies: copies on one stream go on beside work on another, so that the core copies
            on streams of their own, one in and one out. Needs `asynchronous`.
        pinned_host: gives out page-locked host memory.
        imports_dlpack: takes tensors of other libraries that lie in its memory, which
            `DeviceInfo.dlpack_device` tells.
        tells_memory: can tell what a partition takes of the device's memory.
        numerics: of the device as it was opened; options may have a say in it.
    """

    asynchronous: bool = False
    concurrent_runs: bool = True
    control_flow: bool = False
    non_tensor_values: bool = False
    deterministic: bool = True
    artifacts: bool = False
    maps_artifacts: bool = False
    profiles_nodes: bool = False
    overlaps_copies: bool = False
    pinned_host: bool = False
    imports_dlpack: bool = False
    tells_memory: bool = False
    numerics: Numerics = field(default_factory=Numerics)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option a provider takes.

    Attributes:
        default: used when the caller says nothing.
        doc: one sentence, with the unit.
        parse: turns what the caller gave (often a `str`) into the value, raising ValueError with
            what would be right.
        numerics: results depend on its value, beyond what every tolerance allows (a precision, a
            fast-math switch). A certificate holds for the values that it was made with.
        artifacts: compiled artifacts depend on its value; one made with another isn't taken back.
    """

    default: Any
    doc: str
    parse: Callable[[Any], Any] = lambda value: value
    numerics: bool = False
    artifacts: bool = True


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """Who a provider is.

    Attributes:
        name: short name, as in `providers=["cpu"]`; equal to the entry point's name.
        aliases: other accepted names, such as `CPUExecutionProvider`.
        vendor, version: of the provider package.
        api_version: the `API_VERSION` it was written for.
        auto: takes part when the caller names no providers. A provider that is new, slow, or only
            right for some models leaves that to the caller.
        priority: order among automatic providers, higher first; the CPU fallback is 0.
        options: what `provider_options` may contain.
    """

    name: str
    version: str
    api_version: tuple[int, int]
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    auto: bool = False
    priority: int = 100
    options: Mapping[str, OptionSpec] = field(default_factory=dict)


# ---------------------------------------------------------------- claims


@dataclass(frozen=True, slots=True)
class Support:
    """A provider's answer for one node: yes, or no with a reason.

    Attributes:
        reason: required for a no: `dtype int4 of input 'x'`, `needs a constant 'shape'`, ...
        cost: estimated seconds on the device, None if the provider has no idea.
    """

    supported: bool
    reason: str = ""
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """Nodes that the provider runs as one piece of work, if it gets them all.

    It is an offer, not a condition: each node was said yes to by itself as well.

    Attributes:
        nodes: positions in `graph.nodes`, ascending, at least two; all supported. The nodes are
            connected, and no path between two of them leaves the group.
        cost: estimated seconds for all of them together, None if the provider has no idea; then
            placement assumes that nothing between the nodes goes through memory.
    """

    nodes: tuple[int, ...]
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Capability:
    """A provider's answer for a graph.

    Attributes:
        nodes: one `Support` per node of `graph.nodes`, in the same order.
        groups: what would be fused; groups don't overlap.
    """

    nodes: tuple[Support, ...]
    groups: tuple[FusedGroup, ...] = ()


# ---------------------------------------------------------------- the provider


@dataclass(frozen=True, slots=True)
class NodeTime:
    """When one node ran, in nanoseconds of `time.perf_counter_ns`.

    Attributes:
        node, op_type: of the node; where nodes are fused, of the one that gives the result.
        queue: empty for work of the thread that called `run`, or else a name of the queue of the
            device on which the work was done then. Times on one queue don't overlap.
    """

    node: str
    op_type: str
    start_ns: int
    end_ns: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PartitionMemory:
    """What a partition takes of the memory that its provider works in, in bytes.

    Attributes:
        constant_bytes: held from `compile` to `close`: weights, packed or not.
        workspace_bytes: the most that one run takes at any time for what isn't an input or output,
            None where it depends on shapes that aren't known beforehand.
        output_bytes: the most that one run takes for outputs that it makes itself, None likewise.
        together_bytes: the most for both at one time, where that is less than their sum.
        stages: what makes the most known for any outputs that the caller brings memory for. Each
            is what a run takes for what isn't an input or output, and the positions of the outputs
            that it has made by then. Where there are any they count, and not the sums above.
    """

    constant_bytes: int
    workspace_bytes: int | None
    output_bytes: int | None
    together_bytes: int | None = None
    stages: tuple[tuple[int, tuple[int, ...]], ...] = ()


class CompiledPartition(Protocol):
    """A subgraph ready to run."""

    @property
    def accepts_outputs(self) -> Sequence[bool]:
        """Required. For each output: True if `run` can write into memory it is given without an
        extra copy. The core then plans that memory by lifetime and uses it again."""
        ...

    def run(
        self,
        inputs: Sequence[Value],
        outputs: MutableSequence[Value | None],
        stream: Stream | None,
    ) -> None:
        """Required. Compute the outputs of the subgraph.

        Args:
            inputs: in the order of `Subgraph.inputs`, all in the provider's memory. Read only:
                never changed, never kept after the work on `stream` is done. Host arrays may be
                non-contiguous or read-only.
            outputs: in the order of `Subgraph.outputs`. An entry that is not None is memory of
                the right dtype and shape to write into. For None the provider puts a value it
                made itself; from then on it belongs to the caller, who releases it through the
                provider's allocator, also where `run` raises later. An output never shares memory
                with an input, a constant, or another output.
            stream: where to submit the work; None for a provider without streams.

        Raises:
            RunError, AllocationError, DeviceLostError. An asynchronous failure may surface at a
            later synchronisation instead.
        """
        ...

    def close(self) -> None:
        """Required. Release what it holds, in any order with the provider's own `close`, twice
        without harm. Not called while a run is under way."""
        ...


class ExecutionProvider(Protocol):
    """A device that is open and ready to compile for."""

    @property
    def info(self) -> ProviderInfo: ...

    @property
    def device(self) -> DeviceInfo: ...

    @property
    def features(self) -> ProviderFeatures: ...

    @property
    def memory(self) -> MemoryInfo:
        """Required. Where its partitions read and write; `HOST_MEMORY` for host providers."""
        ...

    @property
    def allocator(self) -> Allocator | None:
        """Required unless `memory` is `HOST_MEMORY`."""
        ...

    @property
    def data_transfer(self) -> DataTransfer | None:
        """Required unless `memory` is `HOST_MEMORY`."""
        ...

    def create_stream(self) -> Stream | None:
        """Required if `features.asynchronous`; else return None. The core closes it."""
        ...

    def get_capability(self, graph: Graph) -> Capability:
        """Required. Pure: no side effects, the same answer twice, no exception on strange graphs.
        `graph` may be the body of a control-flow node, and types may be unknown."""
        ...

    def compile(self, subgraph: Subgraph) -> CompiledPartition:
        """Required. Compile nodes that `get_capability` said yes to. After an exception the core
        compiles parts of the claim, to find the operator that is to blame; those nodes of the
        claim, or all of it if there is no time to look, go to others."""
        ...

    def export_partition(self, partition: CompiledPartition) -> bytes:
        """Required if `features.artifacts`; never called otherwise. What `import_partition` of
        the same provider build needs to do without compiling. Raises CompileError where this
        partition can't be exported."""
        ...

    def import_partition(self, subgraph: Subgraph, artifact: bytes) -> CompiledPartition:
        """Required if `features.artifacts`; never called otherwise. Make a partition of what
        `export_partition` gave for an equal subgraph, on an equal device, with equal options. The
        core keeps artifacts apart by all of these and checks that the bytes are whole; a provider
        raises CompileError on what it doesn't know, and the core then compiles."""
        ...

    def profile_partition(
        self, partition: CompiledPartition, record: Callable[[NodeTime], None]
    ) -> None:
        """Required if `features.profiles_nodes`; never called otherwise, nor in sessions that
        aren't profiled. From now on each run of `partition`, which hasn't run yet, calls `record`
        for each node, from any thread, and before whoever waits for the results has them."""
        ...

    def allocate_pinned(self, shape: tuple[int, ...], dtype: DataType) -> HostArray:
        """Required if `features.pinned_host`; never called otherwise. A C-contiguous array in
        page-locked host memory, contents undefined. Copies between it and the device may overlap
        with other work. It is an array like any other for everybody else. The memory is freed
        with the last reference to the array or a view of it, also after `close`. Raises
        AllocationError."""
        ...

    def import_dlpack(self, tensor: Any) -> Buffer:
        """Required if `features.imports_dlpack`; never called otherwise. A buffer over the memory
        of an object with `__dlpack__` and `__dlpack_device__`, without a copy. What its library
        still has queued for it is waited for, or ordered before whatever is submitted later. The
        tensor is kept alive until the allocator gets the buffer back. Raises BufferError where
        the device, the dtype or the layout doesn't fit."""
        ...

    def get_partition_memory(self, partition: CompiledPartition) -> PartitionMemory:
        """Required if `features.tells_memory`; never called otherwise. For planning: an upper
        bound that holds for every run, as close as the provider can tell."""
        ...

    def close(self) -> None:
        """Required. Release everything, also partitions and streams still open; twice without
        harm. The core doesn't close a provider while a value still lies in its memory."""
        ...


class ProviderFactory(Protocol):
    """What the hook `ep_provider_factory` returns. Making one must not load the vendor's library.
    `info` is all that is read before the API versions have been compared."""

    @property
    def info(self) -> ProviderInfo: ...

    def devices(self) -> Sequence[DeviceInfo]:
        """Required. The devices that can be used now; empty where the hardware, its driver or its
        library is missing. The vendor's library is imported here, not before."""
        ...

    def why_unavailable(self) -> str | None:
        """Required. A sentence for a person when `devices()` is empty, else None."""
        ...

    def create(self, device: DeviceInfo, options: Mapping[str, Any]) -> ExecutionProvider:
        """Required. Open a device. `options` has every key of `info.options`, parsed."""
        ...


# ---------------------------------------------------------------- other hooks


class GraphPass(Protocol):
    """A rewrite of a graph into an equal one with the same inputs and outputs. Idempotent."""

    @property
    def name(self) -> str: ...

    def __call__(self, graph: Graph) -> Graph:
        """Return the rewritten graph, or `graph` itself when there is nothing to do."""
        ...


class Command(Protocol):
    """A subcommand of `ep`, by the hook `ep_commands`."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Required. Add the command's arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Required. Do the work and return the exit code; an EpError is shown by the caller."""
        ...
