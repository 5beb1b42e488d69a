"""How fast the OpenCL provider is on its first device, as ratios measured in one run.

    python benchmarks/run.py opencl --threads 2

Products are compared with numpy's BLAS on the same machine, which only says something where the
device is a processor; elementwise chains with the device's own copy of as many bytes; whole
networks with the device's roofline: for each step the longer of its multiplications at the speed of
the product, and its bytes, read and written once, at the speed of the copy; products of bytes with
products of floats. Both sides of a ratio are measured in turns, and the best of each counts. For
chains the median of the rounds' ratios is told too: in a round both sides meet the same neighbours.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx.parser
import pyopencl as cl

from ep_core.discovery.registry import registry
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DataType, TensorType
from ep_sdk.device_kernels.epilogue import TakesEpilogue
from ep_sdk.footprint import bytes_of
from networks import bert_base, resnet50

ROUNDS = 15
SIZE = 1024
ELEMENTS = 1 << 24

MATRIX = f"float[{SIZE},{SIZE}]"
PRODUCT = f"""<ir_version: 9, opset_import: ["" : 20]>
g ({MATRIX} a, {MATRIX} b) => ({MATRIX} y) {{ y = MatMul (a, b) }}
"""

BYTES = f"""<ir_version: 9, opset_import: ["" : 20]>
g (uint8[{SIZE},{SIZE}] a, int8[{SIZE},{SIZE}] b) => (int32[{SIZE},{SIZE}] y) {{
    y = MatMulInteger (a, b)
}}
"""

CHAIN = f"""<ir_version: 9, opset_import: ["" : 20]>
g (float[{ELEMENTS}] x) => (float[{ELEMENTS}] y) {{
    a = Mul (x, x)
    b = Add (a, x)
    c = Relu (b)
    y = Sub (c, x)
}}
"""


def rounds_of(*works: Callable[[], Any]) -> list[list[float]]:
    """Seconds of each work in each round; they are done in turns."""
    for work in works:
        work()
    rounds = []
    for _ in range(ROUNDS):
        times = []
        for work in works:
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        rounds.append(times)
    return rounds


def best_in_turns(*works: Callable[[], Any]) -> list[float]:
    """Seconds of the fastest run of each, taken in turns."""
    return [min(times) for times in zip(*rounds_of(*works), strict=True)]


class OnDevice:
    """A model whose inputs lie on the device, and whose outputs stay there; calling it runs it."""

    def __init__(self, provider: Any, model: bytes, feeds: Sequence[np.ndarray[Any, Any]]) -> None:
        graph = load_model(model).graph
        self._provider = provider
        self._stream = provider.create_stream()
        self.program = provider.compile(Subgraph.cut(graph, range(len(graph.nodes))))
        self._inputs = []
        for feed in feeds:
            buffer = provider.allocator.allocate(feed.shape, DataType.from_numpy(feed.dtype))
            provider.data_transfer.copy(feed, buffer, None)
            self._inputs.append(buffer)

    def __call__(self) -> None:
        """Run, and wait."""
        outputs: list[Any] = [None] * len(self.program.accepts_outputs)
        self.program.run(self._inputs, outputs, self._stream)
        self._stream.synchronize()
        for buffer in outputs:
            self._provider.allocator.release(buffer, self._stream)

    def roofline(self, operations: float, moved: float) -> float:
        """Seconds that it takes at least, at so many operations and bytes a second."""
        lowered = self.program.footprint.lowered
        seconds = 0.0
        for step in lowered.steps:
            if step.aliases:
                continue
            touched = {slot for slot in (*step.inputs, *step.outputs) if slot > 0}
            nbytes = sum(bytes_of(lowered.types[slot]) or 0 for slot in touched)
            work = self._operations(step)
            seconds += max(work / operations, nbytes / moved)
        return seconds

    def _operations(self, step: Any) -> int:
        """Multiplications and additions of a product; the rest is memory."""
        lowered = self.program.footprint.lowered
        kinds = [lowered.types[slot] for slot in (*step.inputs[:2], step.outputs[0])]
        shapes = [kind.static_shape for kind in kinds if isinstance(kind, TensorType)]
        if not isinstance(step.kernel, TakesEpilogue) or len(shapes) < len(kinds):
            return 0
        x, weight, result = (shape or () for shape in shapes)
        depth = math.prod(weight[1:]) if step.kernel.axis == 1 else math.prod(x[-1:])
        return 2 * math.prod(result) * depth


def copier(provider: Any) -> Callable[[], None]:
    """The device's own copy of `ELEMENTS` floats."""
    stream = provider.create_stream()
    source, target = (
        cl.Buffer(provider.opened.context, cl.mem_flags.READ_WRITE, 4 * ELEMENTS) for _ in range(2)
    )
    cl.enqueue_fill_buffer(stream.queue, source, np.ones(1, np.float32), 0, 4 * ELEMENTS)

    def copy() -> None:
        cl.enqueue_copy(stream.queue, target, source)
        stream.synchronize()

    return copy


def main() -> None:
    """Measure and print."""
    factory = registry().factory("opencl")
    device = factory.devices()[0]
    options = {name: spec.default for name, spec in factory.info.options.items()}
    provider = factory.create(device, options)
    print(device.fingerprint)
    matrix = np.ones((SIZE, SIZE), np.float32)
    product = OnDevice(provider, parsed(PRODUCT), [matrix, matrix])
    ours, blas = best_in_turns(product, lambda: matrix @ matrix)
    peak = 2 * SIZE**3 / min(ours, blas)
    print(f"product of {SIZE} x {SIZE} floats, GFLOP/s: {2 * SIZE**3 / ours / 1e9:.0f}")
    print(f"  numpy's BLAS: {2 * SIZE**3 / blas / 1e9:.0f}; ratio {blas / ours:.2f}")
    whole = [np.full((SIZE, SIZE), 200, np.uint8), np.full((SIZE, SIZE), -100, np.int8)]
    of_bytes, of_floats = best_in_turns(OnDevice(provider, parsed(BYTES), whole), product)
    print(f"product of bytes, GOP/s: {2 * SIZE**3 / of_bytes / 1e9:.0f}")
    print(f"  of floats: {2 * SIZE**3 / of_floats / 1e9:.0f}; ratio {of_floats / of_bytes:.2f}")
    values = np.ones(ELEMENTS, np.float32)
    rounds = rounds_of(OnDevice(provider, parsed(CHAIN), [values]), copier(provider))
    chain, copy = (min(times) for times in zip(*rounds, strict=True))
    middle = statistics.median(other / own for own, other in rounds)
    bandwidth = 8 * ELEMENTS / copy
    print(f"chain of four operators, GB/s read and written: {8 * ELEMENTS / chain / 1e9:.1f}")
    print(f"  copy of as many bytes: {bandwidth / 1e9:.1f}; ratio {copy / chain:.2f}")
    print(f"  median of the ratios of {ROUNDS} rounds: {middle:.2f}")
    for name, network in (("ResNet-50", resnet50), ("BERT-base, 128 words", bert_base)):
        model, feeds = network()
        running = OnDevice(provider, model, list(feeds.values()))
        seconds, again, copy = best_in_turns(running, product, copier(provider))
        peak = max(peak, 2 * SIZE**3 / again)
        bandwidth = max(bandwidth, 8 * ELEMENTS / copy)
        bound = running.roofline(peak, bandwidth)
        launches = len(running.program.footprint.lowered.steps)
        print(f"{name}, ms: {seconds * 1e3:.0f}, in {launches} steps")
        print(f"  roofline: {bound * 1e3:.0f}; ratio {bound / seconds:.2f}")
    provider.close()


def parsed(text: str) -> bytes:
    """A model from its text."""
    return bytes(onnx.parser.parse_model(text).SerializeToString())
