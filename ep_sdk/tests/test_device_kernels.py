"""Device kernels through their contracts alone: no vendor's library is needed for them."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
from imagined_device import PRELUDE, Device, ImaginedProvider

from ep_core.contracts import API_VERSION, ProviderInfo
from ep_core.errors import CompileError
from ep_core.types import DeviceInfo
from ep_sdk.device_kernels.faults import fault_error
from ep_sdk.device_kernels.kernels import FAMILIES
from ep_sdk.device_kernels.options import OPTIONS
from ep_sdk.device_kernels.sources import program_text, read_source

DEFAULTS = {name: spec.default for name, spec in OPTIONS.items()}

CHAIN = "(float[8,16] x) => (float[8,16] y) { a = Sigmoid(x) b = Mul(x, a) y = Sqrt(b) }"
SHAPED = """(float[2,3,4] x) => (float[n,m] y) {
    s = Shape(x)
    t = Transpose<perm=[2,0,1]>(x)
    k = Constant<value_ints=[4,6]>()
    y = Reshape(t, k)
}"""
MANY = {
    "gemm": "(float[70,80] x, float[80,90] w) => (float[70,90] y) { y = MatMul(x, w) }",
    "rows": "(float[5,300] x) => (float[5,300] y) { y = Softmax(x) }",
    "conv": "(float[1,4,9,9] x, float[8,4,3,3] w) => (float[1,8,7,7] y) { y = Conv(x, w) }",
    "gather": "(float[9,4] x, int64[3] i) => (float[3,4] y) { y = Gather(x, i) }",
    "half": "(float16[9,4] x) => (float16[4,9] y) { y = Transpose(x) }",
    "lstm": """(float[3,2,4] x, float[1,20,4] w, float[1,20,5] r) => (float[3,1,2,5] y) {
        y = LSTM<hidden_size=5>(x, w, r)
    }""",
}


def provider_of(device, **options):
    info = ProviderInfo("imagined", "1", API_VERSION, options=dict(OPTIONS))
    return ImaginedProvider(
        info, DeviceInfo("imagined", "0", "gpu"), {**DEFAULTS, **options}, device
    )


@pytest.mark.parametrize("is_cpu", [False, True])
@pytest.mark.parametrize("name", MANY)
def test_a_compiled_model_is_rehearsed_and_run(
    graph_of, whole, name, is_cpu, tmp_path, monkeypatch
):
    monkeypatch.setenv("EP_CACHE_DIR", str(tmp_path))
    device = Device(is_cpu=is_cpu)
    provider = provider_of(device, tune=False)
    graph = graph_of(MANY[name])
    assert all(answer.supported for answer in provider.get_capability(graph).nodes)
    partition = provider.compile(whole(graph))
    assert device.rehearsed
    assert not device.launched
    inputs = []
    for value in graph.inputs:
        kind = value.type
        inputs.append(provider.allocator.allocate(kind.static_shape, kind.dtype))
    outputs = [None] * len(graph.outputs)
    partition.run(inputs, outputs, provider.create_stream())
    assert device.launched == device.rehearsed
    for buffer in (*inputs, *outputs):
        provider.allocator.release(buffer)
    partition.close()
    assert provider.allocator.in_use == 0


def test_a_chain_is_one_kernel_and_without_fusing_three(graph_of, whole):
    for fuse, count in ((True, 1), (False, 3)):
        device = Device()
        provider_of(device, fuse=fuse).compile(whole(graph_of(CHAIN))).close()
        assert len(device.rehearsed) == count


def test_views_start_nothing_but_the_transposition(graph_of, whole):
    device = Device()
    provider_of(device).compile(whole(graph_of(SHAPED))).close()
    assert device.rehearsed == ["move"]


def test_a_refusing_compiler_is_told_with_the_node_and_nothing_is_kept(graph_of, whole):
    provider = provider_of(Device(refused=("gather",)))
    with pytest.raises(CompileError, match=r"refuses gather"):
        provider.compile(whole(graph_of(MANY["gather"])))
    assert provider.allocator.in_use == 0


def test_a_device_without_doubles_says_so(graph_of):
    graph = graph_of("(double[2] x) => (double[2] y) { y = Exp(x) }")
    (with_doubles,) = provider_of(Device()).get_capability(graph).nodes
    (without,) = provider_of(Device(has_double=False)).get_capability(graph).nodes
    assert with_doubles.supported
    assert not without.supported
    assert "double" in without.reason


def test_a_program_has_its_parts_in_order():
    text = program_text(PRELUDE, "moving.cl", {"UNIT": "uint"}, "HEAD", "BODY")
    parts = ["#define UNIT uint", PRELUDE, read_source("common.cl"), "HEAD", "BODY"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.index("HEAD") < text.index(read_source("moving.cl")) < text.index("BODY")


def test_sources_leave_the_dialect_to_preludes():
    for source in files("ep_sdk.device_kernels").joinpath("cl").iterdir():
        if source.name.endswith(".cl"):
            text = source.read_text(encoding="utf-8")
            for word in ("#pragma", "__attribute__", "vload_half", "vstore_half", "(int3)("):
                assert word not in text, f"{source.name} says {word}"


def test_faults_have_words():
    assert "out of range" in str(fault_error(np.array([1], np.int32)))
    assert "77" in str(fault_error(np.array([77], np.int32)))


def test_every_family_has_a_file():
    folder = files("ep_sdk.device_kernels").joinpath("kernels")
    there = {
        item.name.removesuffix(".py") for item in folder.iterdir() if item.name.endswith(".py")
    }
    assert there - {"__init__"} == set(FAMILIES)


def test_the_sdk_does_not_load_them():
    script = "import sys, ep_sdk; print([m for m in sys.modules if 'device_kernels' in m])"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
