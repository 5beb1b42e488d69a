"""Providers whose artifacts have one defect each; they join the tables of hosts and devices."""

from __future__ import annotations

import itertools
from weakref import WeakKeyDictionary

import numpy as np
from zoo_base import CorrectProvider, Plugin, factory_of
from zoo_device import animal as device_animal
from zoo_host import animal as host_animal

from ep_core.contracts import ProviderFeatures
from ep_core.errors import CompileError, EpError
from ep_core.graph import Initializer, Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DataType, DeviceInfo
from ep_sdk.simulator.provider import SimulatorProvider

MAGIC = b"zoo artifact\0"


class Storing(CorrectProvider):
    """The correct parent of the host providers: an artifact is a model, with its length."""

    features = ProviderFeatures(artifacts=True)

    def __init__(self, info, device, options):
        super().__init__(info, device, options)
        self.sources = WeakKeyDictionary()

    def compile(self, subgraph):
        part = super().compile(subgraph)
        self.sources[part] = subgraph
        return part

    def export_partition(self, partition):
        return packed(self.sources[partition])

    def import_partition(self, subgraph, artifact):
        return self.compile(unpacked(artifact, subgraph))


def packed(subgraph):
    model = subgraph.to_model().SerializeToString()
    return MAGIC + len(model).to_bytes(8, "little") + model


def unpacked(artifact, like):
    model = artifact[len(MAGIC) + 8 :]
    if artifact[: len(MAGIC) + 8] != MAGIC + len(model).to_bytes(8, "little"):
        raise CompileError("no artifact of the zoo's")
    return from_model(model, like)


def from_model(model, like):
    try:
        graph = load_model(model).graph
    except EpError as error:
        raise CompileError(f"no model: {error}") from error
    return Subgraph.cut(graph, range(len(graph.nodes)), like.name)


# ---------------------------------------------------------------- exporting


@host_animal("says it takes mapped artifacts and doesn't", "artifacts/round-trip", "take back")
class MapsNothing(Storing):
    features = ProviderFeatures(artifacts=True, maps_artifacts=True)

    def import_partition(self, subgraph, artifact):
        if not artifact.startswith(MAGIC):
            raise CompileError("no artifact of the zoo's")
        return super().import_partition(subgraph, artifact)


@host_animal("artifact is a handle into the provider", "artifacts/round-trip", "take back")
class Handle(Storing):
    def __init__(self, *args):
        super().__init__(*args)
        self.kept = {}

    def export_partition(self, partition):
        handle = str(id(partition)).encode()
        self.kept[handle] = self.sources[partition]
        return handle

    def import_partition(self, subgraph, artifact):
        if artifact not in self.kept:
            raise CompileError("no such handle")
        return self.compile(self.kept[artifact])


@host_animal("artifact loses the weights", "artifacts/round-trip", "gives other values")
class LosesWeights(Storing):
    def export_partition(self, partition):
        source = self.sources[partition]
        zeros = {
            name: Initializer.from_array(name, np.zeros(item.shape, item.dtype.numpy))
            for name, item in source.constants.items()
        }
        graph = source.graph.replace(initializers=zeros)
        return packed(Subgraph.cut(graph, source.indices, source.name))


@host_animal("export uses the partition up", "artifacts/round-trip", "the partition is closed")
class ExportCloses(Storing):
    def export_partition(self, partition):
        partition.close()
        return super().export_partition(partition)


@host_animal("second export is of something else", "artifacts/round-trip", "take back")
class OnceOnly(Storing):
    def __init__(self, *args):
        super().__init__(*args)
        self.count = itertools.count()

    def export_partition(self, partition):
        return super().export_partition(partition)[: None if not next(self.count) else 40]


@host_animal("exports no bytes", "artifacts/round-trip", "exports bytearray, expected bytes")
class NoBytes(Storing):
    def export_partition(self, partition):
        return bytearray(super().export_partition(partition))


@host_animal("exports nothing", "artifacts/round-trip", "export of a partition raises CompileError")
class ExportsNothing(Storing):
    def export_partition(self, partition):
        raise CompileError("not yet")


# ---------------------------------------------------------------- importing


@host_animal("keeps compiled models by name", "artifacts/apart", "of another one of equal names")
class ByName(Storing):
    def __init__(self, *args):
        super().__init__(*args)
        self.by_name = {}

    def import_partition(self, subgraph, artifact):
        mine = unpacked(artifact, subgraph)
        return self.compile(self.by_name.setdefault((subgraph.name, subgraph.inputs), mine))


@host_animal("takes anything for an artifact", "artifacts/refused", r"takes b'.* for an artifact")
class TakesAnything(Storing):
    def import_partition(self, subgraph, artifact):
        return self.compile(subgraph)


@host_animal("raises what its parser raises", "artifacts/refused", "IndexError.*expected CompileE")
class PlainErrors(Storing):
    def import_partition(self, subgraph, artifact):
        if artifact[0] != MAGIC[0]:
            raise CompileError("no artifact of the zoo's")
        return super().import_partition(subgraph, artifact)


@host_animal("makes do with half an artifact", "artifacts/refused", "bytes for an artifact, and")
class MakesDo(Storing):
    def import_partition(self, subgraph, artifact):
        if len(artifact) <= len(MAGIC) + 8 or not artifact.startswith(MAGIC):
            raise CompileError("no artifact of the zoo's")
        try:
            return super().import_partition(subgraph, artifact)
        except CompileError:
            zeros = {
                name: Initializer.from_array(name, np.zeros(item.shape, item.dtype.numpy))
                for name, item in subgraph.constants.items()
            }
            graph = subgraph.graph.replace(initializers=zeros)
            return self.compile(Subgraph.cut(graph, subgraph.indices, subgraph.name))


@host_animal("a bad artifact spoils the good ones", "artifacts/refused", "doesn't take back")
class Spoilt(Storing):
    spoilt = False

    def import_partition(self, subgraph, artifact):
        try:
            if not self.spoilt:
                return super().import_partition(subgraph, artifact)
        except CompileError:
            self.spoilt = True
        raise CompileError("in a bad state")


# ---------------------------------------------------------------- devices


@device_animal("imports by compiling", "artifacts/without-compiling", "failed as told")
class Recompiles(SimulatorProvider):
    def import_partition(self, subgraph, artifact):
        super().import_partition(subgraph, artifact).close()
        return self.compile(subgraph)


@device_animal("importing leaks", "artifacts/round-trip", "importing export 1 leaves 256 bytes")
class ImportLeaks(SimulatorProvider):
    def import_partition(self, subgraph, artifact):
        self.allocator.allocate((64,), DataType.FLOAT)
        return super().import_partition(subgraph, artifact)


@device_animal("a refused artifact leaks", "artifacts/refused", "is no artifact leaves .* bytes")
class RefusalLeaks(SimulatorProvider):
    def import_partition(self, subgraph, artifact):
        buffer = self.allocator.allocate((64,), DataType.FLOAT)
        part = super().import_partition(subgraph, artifact)
        self.allocator.release(buffer)
        return part


# ---------------------------------------------------------------- installed ones


class ProcessHandle(Storing):
    """Its artifacts are handles into the process: no other one can use them."""

    kept = {}  # noqa: RUF012 - of the process, on purpose

    def export_partition(self, partition):
        handle = MAGIC + str(len(self.kept)).encode()
        self.kept[handle] = self.sources[partition]
        return handle

    def import_partition(self, subgraph, artifact):
        if artifact not in self.kept:
            raise CompileError("no such handle")
        return self.compile(self.kept[artifact])


class Nameless(Plugin):
    """Its device can't be told from one with another driver, so the core keeps nothing of it."""

    def __init__(self, name):
        devices = [DeviceInfo(name, "0", "cpu")]
        self._factory = factory_of(Storing, name, list_devices=lambda: devices)


storing = Plugin(Storing, "storing")
process_handle = Plugin(ProcessHandle, "process_handle")
nameless = Nameless("nameless")
