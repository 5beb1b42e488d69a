"""Fixtures: graphs from ONNX's text form, and host and simulated providers that clean up."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest

from ep_core.contracts import API_VERSION, ProviderFeatures, ProviderInfo
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DeviceInfo
from ep_sdk import KernelProvider
from ep_sdk.simulator import INFO, ep_provider_factory


@pytest.fixture
def graph_of():
    """`graph_of("(float[2] x) => (float[2] y) { y = Relu(x) }", opset=17)`."""

    def make(text, opset=17, **initializers):
        head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g '
        model = onnx.parser.parse_model(head + text)
        for name, array in initializers.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return load_model(model).graph

    return make


@pytest.fixture
def whole():
    """The subgraph that is all of a graph."""
    return lambda graph: Subgraph.cut(graph, range(len(graph.nodes)), "whole")


@pytest.fixture
def host_provider():
    """`host_provider(table, features=...)`: a host provider around a table."""
    opened = []

    def make(table, **attributes):
        attributes.setdefault("features", ProviderFeatures())
        cls = type("TestProvider", (KernelProvider,), {"table": table, **attributes})
        info = ProviderInfo("test", "1", API_VERSION)
        provider = cls(info, DeviceInfo("test", "0", "cpu"), {})
        opened.append(provider)
        return provider

    yield make
    for provider in opened:
        provider.close()


@pytest.fixture
def simulator():
    """`simulator(device="0", **options)`; afterwards no thread and no byte may be left."""
    factory = ep_provider_factory()
    opened = []

    def make(device="0", **options):
        known = {name: spec.default for name, spec in INFO.options.items()}
        assert set(options) <= set(known)
        (info,) = [found for found in factory.devices() if found.id == device]
        provider = factory.create(info, known | options)
        opened.append(provider)
        return provider

    before = threading.active_count()
    yield make
    for provider in opened:
        provider.close()
        stats = provider.allocator.stats()
        assert (stats.in_use_bytes, stats.reserved_bytes) == (0, 0)
        assert stats.allocations == stats.releases
    assert threading.active_count() == before


@pytest.fixture
def to_device():
    """`to_device(provider, stream, array)`: a buffer with the array's content."""

    def copy(provider, stream, array):
        from ep_core.types import DataType

        array = np.array(array, order="C")
        kind = DataType.from_numpy(array.dtype)
        buffer = provider.allocator.allocate(array.shape, kind, stream)
        provider.data_transfer.copy(array, buffer, stream)
        return buffer

    return copy


@pytest.fixture
def to_host():
    """`to_host(provider, stream, buffer)`: waits, and returns the content as an array."""

    def copy(provider, stream, buffer):
        array = np.empty(buffer.shape, buffer.dtype.numpy)
        provider.data_transfer.copy(buffer, array, stream)
        if stream is not None:
            stream.synchronize()
        return array

    return copy


@pytest.fixture
def run_on(whole, to_device, to_host):
    """`run_on(provider, graph, *arrays)`: compile all, run once, return host arrays, clean up."""

    def run(provider, graph, *arrays):
        partition = provider.compile(whole(graph))
        outputs = [None] * len(whole(graph).outputs)
        if provider.allocator is None:
            partition.run(arrays, outputs, None)
            partition.close()
            return outputs
        stream = provider.create_stream()
        inputs = [to_device(provider, stream, array) for array in arrays]
        partition.run(inputs, outputs, stream)
        found = [to_host(provider, stream, buffer) for buffer in outputs]
        for buffer in (*inputs, *outputs):
            provider.allocator.release(buffer, stream)
        stream.close()
        partition.close()
        return found

    return run
