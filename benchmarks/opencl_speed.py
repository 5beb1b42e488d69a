"""How fast the OpenCL provider is on its first device, as ratios measured in one run.

    python benchmarks/opencl_speed.py

Products are compared with numpy's BLAS on the same machine, which only says something where the
device is a processor; elementwise chains with the device's own copy of as many bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pyopencl as cl

from ep_core.discovery.registry import registry
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_core.types import DataType

ROUNDS = 15
SIZE = 1024
ELEMENTS = 1 << 24

MATRIX = f"float[{SIZE},{SIZE}]"
PRODUCT = f"""<ir_version: 9, opset_import: ["" : 20]>
g ({MATRIX} a, {MATRIX} b) => ({MATRIX} y) {{ y = MatMul (a, b) }}
"""

CHAIN = f"""<ir_version: 9, opset_import: ["" : 20]>
g (float[{ELEMENTS}] x) => (float[{ELEMENTS}] y) {{
    a = Mul (x, x)
    b = Add (a, x)
    c = Relu (b)
    y = Sub (c, x)
}}
"""


def best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of some runs."""
    work()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def on_device(provider: Any, text: str, shapes: list[tuple[int, ...]]) -> float:
    """Seconds of one run of a model whose inputs lie on the device."""
    graph = load_model(onnx.parser.parse_model(text).SerializeToString()).graph
    program = provider.compile(Subgraph.cut(graph, range(len(graph.nodes))))
    stream = provider.create_stream()
    inputs = [provider.allocator.allocate(shape, DataType.FLOAT) for shape in shapes]
    for buffer in inputs:
        values = np.ones(buffer.shape, np.float32)
        provider.data_transfer.copy(values, buffer, None)

    def run() -> None:
        outputs: list[Any] = [None]
        program.run(inputs, outputs, stream)
        stream.synchronize()
        provider.allocator.release(outputs[0], stream)

    seconds = best(run)
    for buffer in inputs:
        provider.allocator.release(buffer)
    return seconds


def copy_seconds(provider: Any) -> float:
    """Seconds of the device's own copy of `ELEMENTS` floats."""
    stream = provider.create_stream()
    source, target = (
        cl.Buffer(provider.opened.context, cl.mem_flags.READ_WRITE, 4 * ELEMENTS) for _ in range(2)
    )
    cl.enqueue_fill_buffer(stream.queue, source, np.ones(1, np.float32), 0, 4 * ELEMENTS)

    def copy() -> None:
        cl.enqueue_copy(stream.queue, target, source)
        stream.synchronize()

    return best(copy)


def main() -> None:
    """Measure and print."""
    factory = registry().factory("opencl")
    device = factory.devices()[0]
    options = {name: spec.default for name, spec in factory.info.options.items()}
    provider = factory.create(device, options)
    print(device.fingerprint)
    operations = 2 * SIZE**3
    ours = on_device(provider, PRODUCT, [(SIZE, SIZE)] * 2)
    matrix = np.ones((SIZE, SIZE), np.float32)
    blas = best(lambda: matrix @ matrix)
    print(f"product of {SIZE} x {SIZE} floats, both on the device: {operations / ours / 1e9:.0f}")
    print(f"  numpy's BLAS, GFLOP/s: {operations / blas / 1e9:.0f}; ratio {blas / ours:.2f}")
    chain, copy = on_device(provider, CHAIN, [(ELEMENTS,)]), copy_seconds(provider)
    moved = 8 * ELEMENTS
    print(f"chain of four operators, GB/s read and written: {moved / chain / 1e9:.1f}")
    print(f"  copy of as many bytes: {moved / copy / 1e9:.1f}; ratio {copy / chain:.2f}")
    provider.close()


if __name__ == "__main__":
    main()
