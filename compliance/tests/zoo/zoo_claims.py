"""Host providers that stumble over claims, cuts and their own life.

They join the table of hosts.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from zoo_base import CorrectProvider
from zoo_host import Wrapped, WrappingProvider
from zoo_host import animal as host_animal

from ep_core.contracts import FusedGroup
from ep_core.errors import RunError

# ---------------------------------------------------------------- claims


@host_animal("raises for captured values", "claims/bodies", "get_capability raises KeyError: 'z'")
class NoCaptures(CorrectProvider):
    def get_capability(self, graph):
        known = {*graph.input_names, *graph.initializers, *graph.producers}
        table = {name: graph.type_of(name) for name in known}
        for node in graph.nodes:
            for name in node.reads:
                table[name]
        return super().get_capability(graph)


@host_animal("raises for no nodes", "claims/empty-graphs", "get_capability raises IndexError")
class NeedsNodes(CorrectProvider):
    def get_capability(self, graph):
        assert graph.nodes[0].name
        return super().get_capability(graph)


@host_animal("raises for no inputs", "claims/malformed-nodes", "get_capability raises IndexError")
class NeedsInputs(CorrectProvider):
    def get_capability(self, graph):
        assert all(node.inputs[0] is not None for node in graph.nodes)
        return super().get_capability(graph)


class _Fusing(CorrectProvider):
    """Fuses the positions that `chosen` picks of those that it claims."""

    def get_capability(self, graph):
        answer = super().get_capability(graph)
        able = [index for index, support in enumerate(answer.nodes) if support.supported]
        groups = self.chosen(able, len(graph.nodes))
        return replace(answer, groups=tuple(FusedGroup(tuple(group)) for group in groups))

    def chosen(self, able, count):
        raise NotImplementedError


@host_animal("fuses around another's node", "claims/groups", "isn't convex: .* leads through node")
class FusesAround(_Fusing):
    def chosen(self, able, count):
        return [able] if 1 < len(able) < count else []


@host_animal("fuses what doesn't touch", "claims/groups", "isn't connected")
class FusesApart(_Fusing):
    def chosen(self, able, count):
        return [[0, 1]] if count == 4 and len(able) > 1 and able[:2] == [0, 1] else []


@host_animal("fuses what it refused", "claims/groups", "which was said no to")
class FusesRefused(_Fusing):
    def chosen(self, able, count):
        return [range(count)] if 1 < len(able) < count else []


@host_animal("fuses a node twice", "claims/groups", r"shares node 1 with \(0, 1\)")
class FusesTwice(_Fusing):
    def chosen(self, able, count):
        return [able[:2], able[1:3]] if able[:3] == [0, 1, 2] else []


@host_animal("is wrong when cut", "claims/parts", "other values than as a whole")
class WrongWhenCut(WrappingProvider):
    def compile(self, subgraph):
        part = super().compile(subgraph)
        part.cut = len(subgraph.indices) < len(subgraph.graph.nodes)
        return part

    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            if self.cut:
                outputs[:] = [value + value for value in outputs]


# ---------------------------------------------------------------- opening and closing


@host_animal("is somebody else", "life/identity", "`info` of the open provider differs")
class SomebodyElse(CorrectProvider):
    @property
    def info(self):
        return replace(super().info, version="2.0")


@host_animal("outlives its provider", "faults/provider-first", "closed provider raises nothing")
class Outlives(CorrectProvider):
    def close(self):
        pass


@host_animal("differs when opened again", "faults/reopen", "opened again gives other results")
class DiffersAgain(WrappingProvider):
    opened = 0

    def __init__(self, *args):
        super().__init__(*args)
        DiffersAgain.opened += 1
        self.number = DiffersAgain.opened

    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            super().run(inputs, outputs, stream)
            outputs[:] = [value + value.dtype.type(self.provider.number) for value in outputs]


@host_animal("opens once at a time", "order/open-and-close", "opening the device fails")
class OnceAtATime(CorrectProvider):
    lock = threading.Lock()

    def __init__(self, *args):
        super().__init__(*args)
        if not self.lock.acquire(blocking=False):
            raise RunError("the device is busy")
        time.sleep(0.002)

    def close(self):
        if not self.closed:
            self.lock.release()
        super().close()


@host_animal("partitions share a handle", "order/create-and-destroy", "the handle is gone")
class SharesHandle(WrappingProvider):
    handle = False

    def compile(self, subgraph):
        self.handle = True
        return super().compile(subgraph)

    class wrapper(Wrapped):  # noqa: N801
        def run(self, inputs, outputs, stream):
            time.sleep(0.0005)
            if not self.provider.handle:
                raise RunError("the handle is gone")
            super().run(inputs, outputs, stream)

        def close(self):
            super().close()
            self.provider.handle = False
