"""Kernels are built when a partition is compiled, and its memory is counted."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from opencl_harness import chosen, floats, needs_device, open_provider, session

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import CompileError, PlacementError
from ep_core.graph import Subgraph
from ep_core.loading.load import load_model
from ep_opencl.device import OpenDevice, open_device

pytestmark = needs_device

MODEL = """<ir_version: 9, opset_import: ["" : 20]>
g (float[2,8,9,9] x, float[8,8,3,3] w) => (float[2,8,4,4] p, float[2,648] f) {
    k = Conv <pads = [1,1,1,1]> (x, w)
    p = AveragePool <kernel_shape = [2,2], strides = [2,2]> (k)
    s = Shape <start = 0, end = 1> (k)
    m = Constant <value_ints = [-1]> ()
    t = Concat <axis = 0> (s, m)
    r = Reshape (k, t)
    f = Softmax (r)
}"""


def compiled(text, **options):
    provider = open_provider(**options)
    graph = load_model(onnx.parser.parse_model(text).SerializeToString()).graph
    return provider, provider.compile(Subgraph.cut(graph, range(len(graph.nodes))))


def test_a_run_builds_nothing_that_compiling_did_not(monkeypatch):
    model = onnx.parser.parse_model(MODEL)
    with session(model) as running:
        before = set(open_device(chosen().id)._kernels)
        running.run(None, {"x": floats(2, 8, 9, 9), "w": floats(8, 8, 3, 3)})
        assert set(open_device(chosen().id)._kernels) == before


def refuse(monkeypatch, name):
    """Have the driver's compiler refuse one kernel."""
    real = OpenDevice.kernel

    def kernel(self, file, wanted, *rest, **settings):
        if wanted == name:
            raise CompileError(f"can't build {file}")
        return real(self, file, wanted, *rest, **settings)

    monkeypatch.setattr(OpenDevice, "kernel", kernel)


def test_a_kernel_that_does_not_build_is_told_with_its_node(monkeypatch):
    refuse(monkeypatch, "pool")
    with pytest.raises(CompileError, match=r"AveragePool.*can't build pools.cl"):
        compiled(MODEL)


def test_memory_is_told_and_enough():
    provider, program = compiled(MODEL)
    told = provider.get_partition_memory(program)
    stream = provider.create_stream()
    inputs = [provider.allocator.allocate(s, kind) for s, kind in inputs_of(program)]
    before = provider.allocator.stats().in_use_bytes
    outputs = [None, None]
    program.run(inputs, outputs, stream)
    stream.synchronize()
    taken = provider.allocator.stats().peak_bytes - before
    assert 0 < taken <= told.together_bytes < 3 * taken
    provider.close()


def inputs_of(program):
    lowered = program._lowered
    return [
        (lowered.types[slot].static_shape, lowered.types[slot].dtype) for slot in lowered.inputs
    ]


def test_packed_weights_count_as_constants():
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[16,64] x) => (float[16,64] y) <float[64,64] w = WEIGHTS> { y = MatMul (x, w) }
    """
    values = ", ".join(["0.5"] * 4096)
    # The tile that measuring finds to be best may take more columns than there are.
    provider, program = compiled(text.replace("WEIGHTS", f"{{{values}}}"), tune=False)
    assert provider.get_partition_memory(program).constant_bytes == 2 * 64 * 64 * 4
    provider.close()


def test_what_depends_on_values_is_left_to_the_run():
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[4] x, int64[1] n) => (float[m] y) { y = Expand (x, n) }
    """
    provider, program = compiled(text)
    assert provider.get_partition_memory(program).workspace_bytes is None
    provider.close()
    with session(onnx.parser.parse_model(text)) as running:
        (y,) = running.run(None, {"x": np.ones(4, np.float32), "n": np.array([4])})
    assert y.tolist() == [1, 1, 1, 1]


def test_other_nodes_stay_where_one_does_not_build(monkeypatch):
    refuse(monkeypatch, "pool")
    options = SessionOptions()
    options.certificate_policy = "off"
    options.placement_strategy = "greedy"
    options.disable_cpu_fallback = True
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    with pytest.raises(PlacementError, match="compile failed") as caught:
        InferenceSession(data, options, providers=["opencl"])
    text = str(caught.value)
    assert "AveragePool" in text
    assert "Conv" not in text.replace("pool", "")
