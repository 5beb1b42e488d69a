"""A real host provider for the core's own tests, computed by `onnx.reference`.

It claims the operators it is told to (all by default), so that tests can split a model between
several of them, and can be told to fail in each phase of its life.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from ep_core.contracts import (
    API_VERSION,
    Capability,
    OptionSpec,
    ProviderFeatures,
    ProviderInfo,
    Support,
)
from ep_core.hookspecs import hookimpl
from ep_core.types import HOST_MEMORY, DeviceInfo


class ReferencePartition:
    def __init__(self, provider, subgraph):
        self.provider = provider
        self.subgraph = subgraph
        self.evaluator = ReferenceEvaluator(subgraph.to_model())
        self.closed = 0
        self.seen_outputs: list[Any] = []

    @property
    def accepts_outputs(self):
        return [self.provider.accepts_outputs] * len(self.subgraph.outputs)

    def run(self, inputs, outputs, stream):
        assert stream is None
        if self.provider.fail_run is not None:
            raise self.provider.fail_run
        feeds = dict(zip(self.subgraph.inputs, inputs, strict=True))
        results = self.evaluator.run(None, feeds)
        self.seen_outputs = list(outputs)
        for i, value in enumerate(results):
            if outputs[i] is not None:
                np.copyto(outputs[i], value)
            else:
                outputs[i] = value.copy() if isinstance(value, np.ndarray) else value

    def close(self):
        self.closed += 1


class ReferenceProvider:
    allocator = None
    data_transfer = None
    memory = HOST_MEMORY

    def __init__(self, factory, device, options):
        self.info = factory.info
        self.device = device
        self.options = options
        self.operators = factory.operators
        self.features = factory.features
        self.fail_compile = factory.fail_compile
        self.fail_run = factory.fail_run
        self.accepts_outputs = factory.accepts_outputs
        self.partitions: list[ReferencePartition] = []
        self.closed = 0
        factory.made.append(self)

    def create_stream(self):
        return None

    def get_capability(self, graph):
        return Capability(tuple(self._support(node) for node in graph.nodes))

    def _support(self, node):
        if node.bodies:
            return Support(False, "no control flow")
        if self.operators is not None and node.op_type not in self.operators:
            return Support(False, f"operator {node.op_type} isn't among {sorted(self.operators)}")
        return Support(True)

    def compile(self, subgraph):
        if any(node.op_type in self.fail_compile for node in subgraph.nodes):
            raise ValueError("told to fail")
        self.partitions.append(ReferencePartition(self, subgraph))
        return self.partitions[-1]

    def close(self):
        self.closed += 1


class ReferenceFactory:
    """Also serves as the plugin object: `registry().register(factory, name=...)`."""

    def __init__(
        self,
        name: str = "cpu",
        operators: Collection[str] | None = None,
        *,
        fail_compile: Collection[str] = (),
        fail_run: BaseException | None = None,
        accepts_outputs: bool = False,
        auto: bool = True,
    ):
        self.info = ProviderInfo(
            name=name,
            version="1.0",
            api_version=API_VERSION,
            aliases=(f"{name.upper()}ExecutionProvider",),
            auto=auto,
            priority=0 if name == "cpu" else 100,
            options={
                "verbose": OptionSpec(False, "a bool"),
                "intra_op_num_threads": OptionSpec(0, "threads", int),
            },
        )
        self.operators = operators
        self.features = ProviderFeatures(non_tensor_values=True)
        self.fail_compile = frozenset(fail_compile)
        self.fail_run = fail_run
        self.accepts_outputs = accepts_outputs
        self.made: list[ReferenceProvider] = []

    @hookimpl
    def ep_provider_factory(self):
        return self

    def devices(self):
        return [DeviceInfo(self.info.name, "0", "cpu", name="reference")]

    def why_unavailable(self):
        return None

    def create(self, device, options):
        return ReferenceProvider(self, device, options)
