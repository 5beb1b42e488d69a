"""Memory that others know of: addresses, tensors of other libraries, and what partitions take.

Exports are in `memory.py`. What a provider doesn't declare isn't asked for.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ep_compliance.checks import check
from ep_compliance.checks.memory import SHAPES, filled, holds, lane_on, numbered, some_type
from ep_compliance.driving.bench import Bench, Probe, claimed_chain
from ep_compliance.driving.capsules import (
    Altered,
    Exported,
    askew,
    elsewhere,
    nowhere,
    of_other_type,
    transposed,
)
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import DeviceLane, open_lane
from ep_compliance.driving.values import same_bits
from ep_compliance.driving.weighted import find_weighted
from ep_core.contracts import Buffer, PartitionMemory
from ep_core.types import HOST_MEMORY, DataType, TensorType

_TYPES = (DataType.UINT8, DataType.FLOAT16, DataType.FLOAT, DataType.INT64)

Array = np.ndarray[Any, Any]


@check("memory/addresses")
def addresses(bench: Bench) -> None:
    """Every buffer has an address of its own that stays, fit for its elements; or BufferError."""
    with lane_on(bench) as lane:
        wanted = [(shape, dtype) for dtype in _TYPES if holds(lane, dtype) for shape in SHAPES]
        buffers = [lane.allocator.allocate(shape, dtype, lane.stream) for shape, dtype in wanted]
        found = [_address(buffer) for buffer in buffers]
        if found != [_address(buffer) for buffer in buffers]:
            raise Broken("data_ptr gives another address when it is asked again")
        told = [address is not None for address in found]
        if any(told) and not all(told):
            raise Broken("data_ptr gives an address for some buffers and BufferError for others")
        ranges = []
        for buffer, address in zip(buffers, found, strict=True):
            if address is None or not buffer.nbytes:
                continue
            size = buffer.dtype.numpy.itemsize
            if address <= 0 or address % size:
                got = f"{address:#x} for {buffer.dtype.text}"
                raise Broken(f"data_ptr gives {got}, expected a multiple of {size} above 0")
            ranges.append((address, address + buffer.nbytes))
        ranges.sort()
        for (_, end), (begin, _) in itertools.pairwise(ranges):
            if begin < end:
                raise Broken("by data_ptr two buffers that are in use overlap")
        lane.release(buffers)
        if not any(told):
            raise NotClaimed("buffers have no addresses")


def _address(buffer: Buffer) -> int | None:
    """What `data_ptr` gives, None where there are no addresses."""
    try:
        address = buffer.data_ptr()
    except BufferError:
        return None
    except Exception as error:
        raise Broken(f"data_ptr raises {text_of(error)}, expected BufferError") from error
    if isinstance(address, bool) or not isinstance(address, int):
        raise Broken(f"data_ptr gives {address!r}, expected an int")
    return address


@check("memory/dlpack-import")
def dlpack_import(bench: Bench) -> None:
    """A tensor on the device is taken without a copy, kept, and given back; others are refused."""
    with lane_on(bench) as lane:
        if not lane.provider.features.imports_dlpack:
            raise NotClaimed("doesn't take tensors of other libraries")
        dtype = some_type(lane)
        array = filled((6, 4), dtype, 11)
        (origin,) = lane.feed([array])
        told = lane.provider.device.dlpack_device
        if told != origin.__dlpack_device__():
            expected = f"{origin.__dlpack_device__()} as its buffers say"
            raise Broken(f"the device has dlpack_device {told}, expected {expected}")
        tensor = Exported(origin)
        start = lane.stats().in_use_bytes
        taken = _take(lane, tensor)
        _check_taken(lane, taken, array)
        lane.overwrite(origin, array[::-1].copy())
        if not same_bits(array[::-1], lane.fetch([taken])[0]):
            raise Broken("import_dlpack copies: a change of the tensor isn't seen")
        lane.release([origin])
        lane.wait()
        _scribble(lane, array)
        if not same_bits(array[::-1], lane.fetch([taken])[0]):
            raise Broken("a tensor that was taken is reused after its own library let go of it")
        lane.release([taken])
        lane.wait()
        if lane.stats().in_use_bytes > start - array.nbytes:
            raise Broken("a tensor that was taken is never given back to its library")
        _check_refusals(lane, array)


def _take(lane: DeviceLane, tensor: Exported) -> Buffer:
    try:
        return lane.provider.import_dlpack(tensor)
    except BufferError as error:
        raise Broken(f"import_dlpack refuses its own tensor: {text_of(error)}") from error


def _check_taken(lane: DeviceLane, taken: Buffer, array: Array) -> None:
    if not isinstance(taken, Buffer) or taken.memory != lane.provider.memory:
        raise Broken(f"import_dlpack gives {taken!r}, expected a buffer in {lane.provider.memory}")
    dtype = DataType.from_numpy(array.dtype)
    if (taken.dtype, tuple(taken.shape), taken.nbytes) != (dtype, array.shape, array.nbytes):
        got = f"{taken.dtype.text}{list(taken.shape)} of {taken.nbytes} bytes"
        raise Broken(f"import_dlpack makes {got} of {dtype.text}{list(array.shape)}")
    if not same_bits(array, lane.fetch([taken])[0]):
        raise Broken("a tensor that was taken has other bits")


def _scribble(lane: DeviceLane, like: Array) -> None:
    """Allocate and fill what was just freed."""
    dtype = DataType.from_numpy(like.dtype)
    buffers = lane.feed([numbered(200, like.size, dtype) for _ in range(8)])
    lane.release(buffers)
    lane.wait()


def _check_refusals(lane: DeviceLane, array: Array) -> None:
    (origin,) = lane.feed([array])
    on_host = np.arange(4, dtype=np.float32)
    refused: dict[str, Any] = {}
    if lane.provider.device.dlpack_device != on_host.__dlpack_device__():
        refused["a tensor on the host"] = on_host
    refused |= {
        "a tensor on another device of its type": Altered(origin, elsewhere),
        "a tensor of elements that ONNX hasn't": Altered(origin, of_other_type),
        "a tensor that isn't contiguous": Altered(origin, transposed),
        "a tensor that has no address": Altered(origin, nowhere),
    }
    if array.itemsize > 1:
        refused["a tensor that isn't aligned for its elements"] = Altered(origin, askew)
    for what, tensor in refused.items():
        try:
            lane.provider.import_dlpack(tensor)
        except BufferError:
            continue
        except Exception as error:
            text = f"import_dlpack of {what} raises {text_of(error)}, expected BufferError"
            raise Broken(text) from error
        raise Broken(f"import_dlpack takes {what}, expected BufferError")
    lane.release([origin])


@check("memory/partition")
def partition(bench: Bench) -> None:
    """What a partition says that it takes is at least what its allocator counts."""
    with bench.open() as provider:
        if not provider.features.tells_memory:
            raise NotClaimed("doesn't tell what a partition takes")
        model = find_weighted(provider).probe()
        lane = open_lane(provider)
        empty = lane.stats().in_use_bytes
        part = provider.compile(model.subgraph)
        told = provider.get_partition_memory(part)
        _check_told(told)
        held = lane.stats().in_use_bytes - empty
        if provider.memory != HOST_MEMORY and held > told.constant_bytes:
            raise Broken(f"{told.constant_bytes} bytes of constants are told, and {held} are held")
        for give in (False, True):
            _run_counted(lane, part, told, model.inputs, give=give)
        part.close()
        lane.close()


@check("memory/stages")
def stages(bench: Bench) -> None:
    """What a partition tells of its stages is enough, whichever outputs it is given memory for."""
    given: tuple[int, ...]
    for given in ((), (0,), (1,), (0, 1)):
        # Each time anew, since a peak of before would hide this one.
        with bench.open() as provider:
            if not provider.features.tells_memory:
                raise NotClaimed("doesn't tell what a partition takes")
            model = claimed_chain(provider)
            lane = open_lane(provider)
            part = provider.compile(model.subgraph)
            told = provider.get_partition_memory(part)
            _check_told(told)
            _check_stages(told, len(part.accepts_outputs))
            if not told.stages:
                raise NotClaimed("tells no stages")
            if isinstance(lane, DeviceLane) and all(part.accepts_outputs[at] for at in given):
                _run_in_stages(lane, part, told, model, given)
            part.close()
            lane.close()


def _check_stages(told: PartitionMemory, outputs: int) -> None:
    """Each stage is a number from 0 up, and different positions of outputs."""
    for stage in told.stages:
        if isinstance(stage, tuple) and len(stage) == 2 and isinstance(stage[1], tuple):
            own, there = stage
            fits = all(type(at) is int and 0 <= at < outputs for at in there)
            if type(own) is int and own >= 0 and fits and len(set(there)) == len(there):
                continue
        raise Broken(
            f"get_partition_memory tells a stage {stage!r}, expected bytes from 0 up and"
            f" different positions of {outputs} outputs"
        )


def _run_in_stages(
    lane: DeviceLane, part: Any, told: PartitionMemory, model: Probe, given: tuple[int, ...]
) -> None:
    """Run once, with memory for some outputs."""
    graph = model.subgraph.graph
    kinds = [graph.type_of(name) for name in model.subgraph.outputs]
    fed = lane.feed(model.inputs)
    outputs: list[Any] = [None] * len(kinds)
    for at in given:
        kind = kinds[at]
        assert isinstance(kind, TensorType)
        assert kind.static_shape is not None
        outputs[at] = lane.allocator.allocate(kind.static_shape, kind.dtype, lane.stream)
    lane.wait()
    before = lane.stats()
    lane.run(part, fed, outputs)
    after = lane.stats()
    made = {at: buffer.nbytes for at, buffer in enumerate(outputs) if at not in given}
    most = max(own + sum(made.get(at, 0) for at in there) for own, there in told.stages)
    taken = after.peak_bytes - before.in_use_bytes
    if after.peak_bytes > before.peak_bytes and taken > most:
        raise Broken(
            f"stages tell {most} bytes for a run with memory for outputs {list(given)} of"
            f" {len(kinds)}, and it takes {taken}"
        )
    lane.release(outputs)
    lane.release(fed)


def _check_told(told: PartitionMemory) -> None:
    if not isinstance(told, PartitionMemory):
        raise Broken(f"get_partition_memory gives {told!r}, expected a PartitionMemory")
    numbers = (told.constant_bytes, told.workspace_bytes, told.output_bytes, told.together_bytes)
    known = [number for number in numbers if number is not None]
    if told.constant_bytes is None or not all(type(n) is int and n >= 0 for n in known):
        raise Broken(f"get_partition_memory gives {told}, expected numbers from 0 up")


def _run_counted(
    lane: Any, part: Any, told: PartitionMemory, inputs: tuple[Any, ...], *, give: bool
) -> None:
    """Run a few times; with memory for the outputs that can be given some, or with none."""
    if not isinstance(lane, DeviceLane):
        return
    fed = lane.feed(inputs)
    most = _most(told, give=give)
    for _ in range(3):
        outputs: list[Any] = [None] * len(part.accepts_outputs)
        if give and all(part.accepts_outputs):
            outputs = [lane.allocator.allocate(b.shape, b.dtype, lane.stream) for b in fed[:1]]
        lane.wait()
        before = lane.stats()
        lane.run(part, fed, outputs)
        after = lane.stats()
        # A peak that was there before tells nothing of this run.
        taken = after.peak_bytes - before.in_use_bytes
        if most is not None and after.peak_bytes > before.peak_bytes and taken > most:
            raise Broken(f"{most} bytes are told for a run, and it takes {taken}")
        lane.release(outputs)
    lane.release(fed)


def _most(told: PartitionMemory, *, give: bool) -> int | None:
    """What a run takes at most by what was told, None where that isn't known."""
    if give:
        return told.workspace_bytes
    if told.together_bytes is not None:
        return told.together_bytes
    parts = (told.workspace_bytes, told.output_bytes)
    return None if None in parts else sum(part or 0 for part in parts)
