"""What a provider brings so that the kernels of this package run on its devices.

Only protocols: nothing here is imported for its code, and a provider's classes needn't inherit.
The kernels are text in C with a prelude (see `sources`); a provider compiles it, starts it, and
owns memory and streams. What else it must do beside these is `ep_core.contracts`.

What every device is expected to have: groups of 256 work-items in up to three dimensions, 17 KiB of
memory shared by a group, 64-bit integers, and atomic maximum of 32-bit integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from ep_core.contracts import Allocator, Buffer, DataTransfer, HostArray, Stream
from ep_core.types import DataType
from ep_sdk.device_kernels.tiles import TileChooser

__all__ = [
    "DeviceBuffer",
    "DeviceKernel",
    "DeviceMemory",
    "DeviceStream",
    "KernelDevice",
    "KernelHost",
]


class DeviceBuffer(Buffer, Protocol):
    """A tensor in the device's memory: dense, in the order of C, from the first byte of `handle`.

    What the host knows of the values goes with the memory, so that a view and its buffer know the
    same. `ep_sdk.pooled.PooledBuffer` brings what isn't about the device.
    """

    @property
    def handle(self) -> Any:
        """What `DeviceKernel.launch` and `DeviceStream` take for this memory. Opaque here.

        Raises:
            ContractError: the buffer has been released.
        """
        ...

    @property
    def values(self) -> HostArray | None:
        """The values in the buffer's shape, where the host knows them; not to be changed."""
        ...

    def remember_values(self, values: HostArray) -> None:
        """Tell what the bytes will be, once the work submitted so far is done.

        Nothing is remembered of memory whose address others know: they may write there.
        """
        ...

    def forget_values(self) -> None:
        """The bytes will be something else."""
        ...

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        """The same bytes under another shape of as many elements; never released by itself."""
        ...


class DeviceStream(Stream, Protocol):
    """An in-order queue: each kernel and copy sees what all before it on this stream wrote.

    Attributes:
        name: no other stream has it.
        rehearses: nothing runs here: a launch does nothing. False for every stream of a provider;
            see `rehearsal`.
    """

    name: str

    @property
    def rehearses(self) -> bool: ...

    def fault_word(self) -> Any:
        """The handle of memory for one int, 0 so far, into which kernels write one of `FAULTS`.

        It belongs to the stream. Events and `synchronize` read it after the work before them, set
        it to 0, and raise `faults.fault_error` if it wasn't.
        """
        ...

    def copy_bytes(
        self, source: Any, source_start: int, target: Any, target_start: int, nbytes: int
    ) -> None:
        """Copy inside the device's memory, in order, and return.

        Args:
            source, target: handles, of different memory.
            source_start, target_start: in bytes.
            nbytes: more than 0.

        Raises:
            AllocationError, DeviceLostError, RunError: as the driver says.
        """
        ...

    def mark(self) -> Any:
        """A point in the stream of which the device keeps the time."""
        ...

    def host_time(self, mark: Any) -> int:
        """When a mark was reached, in nanoseconds of `time.perf_counter_ns`.

        Asked only once the work before the mark is over. Differences have to be right, and the
        start may be off by what it takes to ask.
        """
        ...

    def when_passed(self, action: Any) -> bool:
        """Have `action()` done on the host once the work submitted so far is known to be over.

        Actions run in order, on whichever thread finds out. Returns False, and does nothing, if the
        stream is closed.
        """
        ...


class DeviceKernel(Protocol):
    """A built kernel. Launched from any thread."""

    def launch(
        self,
        stream: DeviceStream,
        size: tuple[int, ...],
        group: tuple[int, ...] | None,
        arguments: Sequence[Any],
    ) -> None:
        """Put the kernel behind the work of a stream and return.

        Buffers among the arguments stay the caller's; the caller may release them on the same
        stream at once. Arrays among them are taken by value: the caller may change them at once.

        Args:
            stream: one of the device's own, or one that `rehearses`, on which nothing is done.
            size: work-items by dimension, one to three, the fastest first; nothing is done where
                one is 0. Kernels read it: it must not be rounded up to whole groups where `group`
                is None. Dimensions may be larger than 65535.
            group: work-items of a group by dimension, which divide `size`; None for the device's
                choice.
            arguments: in the kernel's order: handles of buffers, numpy scalars, which are passed as
                they are, and numpy arrays, whose bytes are one argument (`vectors.long8`).

        Raises:
            AllocationError, DeviceLostError, RunError: as the driver says.
        """
        ...


class KernelDevice(Protocol):
    """An open device.

    Attributes:
        is_cpu: work-items run on the host's processor, each on one core, so that registers and
            caches decide over tiles. False has products go through memory shared by groups.
        has_double: kernels may use 64-bit floats.
        vector_width: 32-bit floats in the widest register that a work-item should use; 4 where
            work-items are the lanes of a vector themselves.
        tiles: chooses tiles of products; asked only where `is_cpu`.
    """

    @property
    def is_cpu(self) -> bool: ...

    @property
    def has_double(self) -> bool: ...

    @property
    def vector_width(self) -> int: ...

    @property
    def tiles(self) -> TileChooser: ...

    def kernel(
        self,
        file: str,
        name: str,
        defines: Mapping[str, object] | None = None,
        *,
        head: str = "",
        body: str = "",
        keep: bool = True,
    ) -> DeviceKernel:
        """Return a kernel that is ready to launch. Called for each launch: built at most once.

        `sources.program_text` makes the text of the program from the same arguments.

        Args:
            file: source in the folder `cl`.
            name: of the kernel in it.
            defines: macros set before the file.
            head: text before the file, after `common.cl`.
            body: text after the file.
            keep: compiled code may be kept in the user's cache folder.

        Raises:
            CompileError: the compiler refuses the source.
        """
        ...


class DeviceMemory(Allocator, Protocol):
    """The device's memory. Safe on many threads."""

    def allocate(
        self, shape: tuple[int, ...], dtype: DataType, stream: Stream | None = None
    ) -> DeviceBuffer:
        """As in `ep_core.contracts.Allocator`.

        Raises:
            AllocationError: the device is full.
            NotSupportedError: an element type that isn't in `elements.ELEMENTS`.
        """
        ...

    def imagine(self, shape: tuple[int, ...], dtype: DataType) -> DeviceBuffer:
        """A buffer without memory, for a rehearsal: its handle may be anything.

        Raises:
            NotSupportedError: an element type that isn't in `elements.ELEMENTS`.
        """
        ...


class KernelHost(Protocol):
    """What kernels ask of their provider; `provider.DeviceProvider` asks the same.

    Attributes:
        opened: the device.
        allocator: of its memory.
        data_transfer: copies between it and the host. It calls `values.note_values` for each copy,
            so that small tensors stay known on the host.
    """

    @property
    def opened(self) -> KernelDevice: ...

    @property
    def allocator(self) -> DeviceMemory: ...

    @property
    def data_transfer(self) -> DataTransfer: ...

    def create_stream(self) -> DeviceStream:
        """A new in-order queue; the caller closes it."""
        ...

    def keep_constant(self, values: HostArray) -> DeviceBuffer:
        """A tensor on the device for the kernel that is being made; freed with its partition."""
        ...
