"""Host providers with one defect each, as `HOST[name] = (provider class, who catches it, how)`."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import ClassVar

import numpy as np
from zoo_base import NUMBERS, CorrectProvider, relu, table_with

from ep_core.contracts import Capability, Support
from ep_core.types import DataType
from ep_sdk import KernelTable

HOST = {}


def animal(name, caught_by, saying):
    def add(provider_class):
        HOST[name] = (provider_class, caught_by, saying)
        return provider_class

    return add


def with_kernels(name, caught_by, saying, **replaced):
    """An animal whose defect is in a kernel."""
    provider_class = type(name, (CorrectProvider,), {"table": table_with(**replaced)})
    HOST[name] = (provider_class, caught_by, saying)


# ---------------------------------------------------------------- wrong values


def _wrong_broadcast(a, b):
    return np.resize(a, np.broadcast_shapes(a.shape, b.shape)) + b


def _sloppy_nan(x):
    return np.where(x > 0, x, x.dtype.type(0))


def _imprecise(x):
    return (x.astype(np.float16) ** 0.5).astype(x.dtype)


def _ignores_strides(x):
    flat = (ctypes.c_byte * x.nbytes).from_address(x.ctypes.data)
    return relu(np.frombuffer(bytes(flat), x.dtype).reshape(x.shape))


def _noisy(a, b):
    return (a + b) * (1 + a.dtype.type(1e-6) * np.random.standard_normal(a.shape)).astype(a.dtype)


with_kernels("wrong broadcast", "zoo/add_broadcast", "values wrong", Add=_wrong_broadcast)
with_kernels("NaN swallowed", "zoo/relu_special", "NaN|nan", Relu=_sloppy_nan)
with_kernels("computes in half precision", "zoo/sqrt", "Sqrt", Sqrt=_imprecise)
with_kernels("ignores strides", "zoo/relu", "Relu", Relu=_ignores_strides)
with_kernels("declares determinism and has none", "zoo/add", "isn't bit-equal", Add=_noisy)


# ---------------------------------------------------------------- wrong types and shapes

with_kernels(
    "wrong dtype",
    "zoo/sqrt",
    "expected element type float, got float64",
    Sqrt=lambda x: np.sqrt(x.astype(np.float64)),
)
with_kernels("wrong shape", "zoo/matmul", r"expected shape \[2, 4\]", MatMul=lambda a, b: (a @ b).T)
with_kernels("flattens", "zoo/add", r"expected shape \[2, 3\]", Add=lambda a, b: (a + b).ravel())


def _by_name():
    table = KernelTable({"": 28})

    @table.kernel("Add")
    def add(node):
        return lambda a, b: np.add(a, b, dtype=np.float32)

    return table


@animal("claims by name only", "claims/kept", "expected element type")
class ByName(CorrectProvider):
    table = _by_name()


# ---------------------------------------------------------------- memory of others


def _in_place(x):
    if x.flags.writeable:
        np.maximum(x, x.dtype.type(0), out=x)
    return relu(x)


def _writing_out(function):
    """A table whose Add writes into given memory by `function(a, b, out)`."""
    table = KernelTable({"": 28})

    @table.kernel("Add", since=7, types={"T": NUMBERS}, writes_out=True)
    def make(node):
        def kernel(a, b, out=None):
            return a + b if out is None else function(a, b, out)

        return kernel

    return table


def _past_the_end(a, b, out):
    np.add(a, b, out=out)
    ctypes.memset(out.ctypes.data + out.nbytes, 0, 1)
    return out


with_kernels("mutates its input", "zoo/relu", "mistreats input 'x0': its contents", Relu=_in_place)
with_kernels("output is its input", "zoo/relu", "an input shares memory", Relu=lambda x: x)


@animal("writes past the end", "zoo/add", "bytes beside the memory of output")
class PastTheEnd(CorrectProvider):
    table = _writing_out(_past_the_end)


class Wrapped:
    """A compiled partition with something of its own around it."""

    def __init__(self, part, provider):
        self.part = part
        self.provider = provider

    @property
    def accepts_outputs(self):
        return self.part.accepts_outputs

    def run(self, inputs, outputs, stream):
        self.part.run(inputs, outputs, stream)

    def close(self):
        self.part.close()


class WrappingProvider(CorrectProvider):
    wrapper = Wrapped

    def compile(self, subgraph):
        return self.wrapper(super().compile(subgraph), self)


@animal("keeps its input", "zoo/relu", "still kept")
class KeepsInput(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            self.kept = list(inputs)


@animal("hands out its own buffer", "zoo/add", "an output of the first run shares memory")
class OwnBuffer(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        scratch = None

        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            if self.scratch is None:
                self.scratch = outputs[0]
            else:
                self.scratch[...] = outputs[0]
                outputs[0] = self.scratch


@animal("output is a constant", "zoo/identity_constant", "a constant shares memory")
class OutputIsConstant(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            if not inputs:
                outputs[0] = self.constant

    def compile(self, subgraph):
        part = super().compile(subgraph)
        part.constant = next((c.numpy() for c in subgraph.constants.values()), None)
        return part


@animal("accepts outputs and doesn't use them", "zoo/add", "isn't in the memory that it accepted")
class IgnoresOutputs(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        accepts_outputs = (True,)

        def run(self, inputs, outputs, stream):
            outputs[0] = None
            super().run(inputs, outputs, stream)


# ---------------------------------------------------------------- over time


@animal("caches by identity", "order/fresh-inputs", "earlier results")
class CachesByIdentity(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def __init__(self, part, provider):
            super().__init__(part, provider)
            self.cache = {}

        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            key = tuple(value.ctypes.data for value in inputs)
            cached = self.cache.setdefault(key, [np.array(value) for value in outputs])
            outputs[:] = [value.copy() for value in cached]


@animal("leaks memory", "order/thousand-cycles", "1000 runs leave .* bytes of memory")
class Leaks(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def __init__(self, part, provider):
            super().__init__(part, provider)
            self.kept = []

        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            self.kept.append(outputs[0].copy())


@animal("leaks file descriptors", "order/thousand-cycles", "compilations leave .* file descriptors")
class LeaksDescriptors(CorrectProvider):
    kept: ClassVar[list] = []

    def compile(self, subgraph):
        self.kept.append(os.dup(0))
        return super().compile(subgraph)


@animal("leaks threads", "order/thousand-cycles", "openings leave .* threads")
class LeaksThreads(CorrectProvider):
    stop = threading.Event()

    def __init__(self, *args):
        super().__init__(*args)
        threading.Thread(target=self.stop.wait, daemon=True).start()


@animal("mixes threads up", "order/threads", "mix their values up")
class SharedScratch(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            self.provider.inputs = inputs
            threading.Event().wait(0.0005)
            super().run(self.provider.inputs, outputs, stream)


# ---------------------------------------------------------------- claims


@animal("over-claims", "claims/unknown-operators", "which nobody knows")
class OverClaims(CorrectProvider):
    def get_capability(self, graph):
        return Capability(tuple(Support(True) for _ in graph.nodes))


@animal("claims what it can't compile", "zoo/softmax", "claimed, but compile fails")
class CantCompile(CorrectProvider):
    def get_capability(self, graph):
        known = ("Softmax",)
        claims = super().get_capability(graph).nodes
        return Capability(
            tuple(
                Support(True) if node.op_type in known else claim
                for node, claim in zip(graph.nodes, claims, strict=True)
            )
        )


@animal("impure capability", "zoo/add", "impure: asked twice")
class Impure(CorrectProvider):
    asked = 0

    def get_capability(self, graph):
        self.asked += 1
        if self.asked % 2:
            return super().get_capability(graph)
        return Capability(tuple(Support(False, "not now") for _ in graph.nodes))


@animal("capability changes after a run", "claims/pure", "after a run")
class Learns(WrappingProvider):
    learnt = False

    def compile(self, subgraph):
        self.learnt = True
        return super().compile(subgraph)

    def get_capability(self, graph):
        if not self.learnt:
            return super().get_capability(graph)
        return Capability(tuple(Support(False, "seen it") for _ in graph.nodes))


@animal("raising capability", "claims/unknown-types", "get_capability raises AttributeError")
class Raises(CorrectProvider):
    def get_capability(self, graph):
        for node in graph.nodes:
            for name in node.inputs:
                assert graph.type_of(name).dtype is not DataType.UINT2
        return super().get_capability(graph)


@animal("says no without a reason", "claims/unknown-operators", "without a reason")
class NoReason(CorrectProvider):
    def get_capability(self, graph):
        claims = super().get_capability(graph).nodes
        return Capability(tuple(Support(claim.supported) for claim in claims))


# ---------------------------------------------------------------- errors and closing


def _swallows(a, b):
    try:
        return a + b
    except ValueError:
        return np.zeros_like(a)


with_kernels("swallows errors", "faults/wrong-shapes", "raises nothing", Add=_swallows)


@animal("closes once only", "faults/close-twice", "closing the partition .* raises KeyError")
class ClosesOnce(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def __init__(self, part, provider):
            super().__init__(part, provider)
            self.handles = {"memory": 1}

        def close(self):
            super().close()
            del self.handles["memory"]


@animal("runs after it was closed", "faults/use-after-close", "running a closed partition raises")
class Immortal(WrappingProvider):
    class wrapper(Wrapped):  # noqa: N801
        def close(self):
            pass


def clean_up():
    """Give back what leaky animals have kept, for the tests that follow."""
    LeaksThreads.stop.set()
    while LeaksDescriptors.kept:
        os.close(LeaksDescriptors.kept.pop())
