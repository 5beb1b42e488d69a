"""An engine on a GPU: memory, bindings by name, one run at a time. Pycuda is imported here only.

The primary context of the device is used, which other libraries of the process share. It is current
on a thread only while this module calls the driver there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pycuda.driver as drv

from ep_core.contracts import HostArray
from ep_core.errors import AllocationError, CompileError, EpError, RunError
from ep_core.graph import Subgraph
from ep_core.types import TensorType
from ep_tensorrt.library import Library, said

__all__ = ["GpuRunner"]


class GpuRunner:
    """Meets `ep_tensorrt.partition.Runner`.

    Args:
        library: that the engine is of.
        number: of the GPU, in the driver's order.
        engine: serialized, and checked to be one of this library's.
        subgraph: for names and types.

    Raises:
        CompileError: the library doesn't take the engine.
        AllocationError: the GPU is full.
    """

    def __init__(self, library: Library, number: int, engine: bytes, subgraph: Subgraph) -> None:
        self._library = library
        self._subgraph = subgraph
        self._context = drv.Device(number).retain_primary_context()
        # Pycuda's destructor would give it back with a function that isn't for primary contexts.
        # One reference too many keeps it for as long as the process lives.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._context))
        self._memory: dict[str, drv.DeviceAllocation] = {}
        self._sizes: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._outputs = _make_allocator(library.trt, self._reserve, self._shapes)
        with self._current("load an engine"), library.listening() as told:
            self._runtime = library.trt.Runtime(library.log)
            self._engine = self._runtime.deserialize_cuda_engine(engine)
            if self._engine is None:
                raise CompileError(f"{library.name} can't load an engine: {said(told)}")
            self._execution = self._engine.create_execution_context()
            if self._execution is None:
                raise AllocationError(f"{library.name} can't prepare an engine: {said(told)}")
            self._stream = drv.Stream()

    def run(self, inputs: Sequence[HostArray]) -> Sequence[HostArray]:
        """Compute the outputs; see `Runner.run`.

        Raises:
            RunError, AllocationError: with the library's words.
        """
        execution, stream = self._execution, self._stream
        with self._current("run an engine"), self._library.listening() as told:
            # Arrays must live until the stream is empty.
            kept = [np.ascontiguousarray(value) for value in inputs]
            for name, value in zip(self._subgraph.inputs, kept, strict=True):
                address = self._reserve(name, value.nbytes)
                if value.nbytes:
                    drv.memcpy_htod_async(address, value.reshape(-1).view(np.uint8), stream)
                taken = execution.set_input_shape(name, value.shape)
                if not taken or not execution.set_tensor_address(name, address):
                    raise RunError(f"{self._library.name} refuses input {name!r}: {said(told)}")
            for name in self._subgraph.outputs:
                execution.set_output_allocator(name, self._outputs)
            done = execution.execute_async_v3(stream.handle)
            stream.synchronize()
            if not done:
                raise RunError(f"{self._library.name} failed: {said(told)}")
            return [self._fetch(name) for name in self._subgraph.outputs]

    def close(self) -> None:
        """Unload the engine and free its memory."""
        with self._current("unload an engine"):
            self._stream.synchronize()
            del self._execution, self._engine, self._runtime
            for allocation in self._memory.values():
                allocation.free()
            self._memory.clear()

    def _fetch(self, name: str) -> HostArray:
        kind = self._subgraph.graph.type_of(name)
        assert isinstance(kind, TensorType)
        result = np.empty(self._shapes[name], kind.dtype.numpy)
        if result.nbytes:
            drv.memcpy_dtoh(result.reshape(-1).view(np.uint8), int(self._memory[name]))
        return result

    def _reserve(self, name: str, nbytes: int) -> int:
        """The address of memory for a value, at least as large; contents are undefined."""
        if name not in self._memory or self._sizes[name] < nbytes:
            old = self._memory.pop(name, None)
            if old is not None:
                self._stream.synchronize()
                old.free()
            # A tensor without elements has an address all the same.
            self._memory[name] = drv.mem_alloc(max(nbytes, 1))
            self._sizes[name] = nbytes
        return int(self._memory[name])

    @contextmanager
    def _current(self, doing: str) -> Iterator[None]:
        self._context.push()
        try:
            yield
        except EpError:
            raise
        except drv.MemoryError as error:
            raise AllocationError(f"the GPU has no memory left to {doing}: {error}") from error
        except drv.Error as error:
            raise RunError(f"CUDA can't {doing}: {error}") from error
        finally:
            drv.Context.pop()


def _make_allocator(trt: Any, reserve: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    """What TensorRT asks for the memory of outputs, whose shapes may depend on data."""

    class Outputs(trt.IOutputAllocator):  # type: ignore[misc]
        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return int(reserve(name, size))

        def notify_shape(self, name: str, shape: Any) -> None:
            shapes[name] = tuple(shape)

    return Outputs()
