"""Some operators against numpy; the compliance kit has them all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cuda_harness import floats, model_of, run_one, session

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import CompileError


def test_a_product_is_right(provider):
    a, b = floats(70, 33), floats(33, 65, seed=1)
    found = run_one(provider.device.id, "MatMul", [a, b])
    assert np.allclose(found, a @ b, rtol=1e-5, atol=1e-5)


def test_lengths_that_are_no_multiple_of_a_block(provider):
    for length in (1, 31, 257, 1000):
        x, y = floats(3, length), floats(3, length, seed=1)
        assert np.array_equal(run_one(provider.device.id, "Add", [x, y]), x + y)


def test_halves_are_rounded_once(provider):
    x, y = floats(200).astype(np.float16), floats(200, seed=1).astype(np.float16)
    expected = (x.astype(np.float32) * y.astype(np.float32)).astype(np.float16)
    assert np.array_equal(run_one(provider.device.id, "Mul", [x, y]), expected)


def test_rows_are_reduced(provider):
    x = floats(5, 1000)
    found = run_one(provider.device.id, "Softmax", [x], {"axis": -1})
    powers = np.exp(x - x.max(-1, keepdims=True))
    assert np.allclose(found, powers / powers.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_runs_are_equal_to_the_bit(provider):
    model, feeds = model_of("MatMul", [floats(64, 64), floats(64, 64, seed=1)])
    with session(model, provider.device.id) as running:
        first = running.run(None, feeds)[0]
        assert all(np.array_equal(running.run(None, feeds)[0], first) for _ in range(5))


def test_a_program_that_cant_be_compiled_is_told(provider):
    with pytest.raises(CompileError, match="generating"):
        provider.opened.kernel("generating.cl", "bad", {"T": "f32"}, body="nonsense", keep=False)


def test_compiled_code_is_kept_and_a_damaged_file_made_anew(provider, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    opened = provider.opened
    body = "// only for this test\n"

    def build():
        opened._programs._loaded.clear()
        opened._kernels.clear()
        return opened.kernel(
            "moving.cl", "fill", {"UNIT": "float", "RANK": 1, "MODE": 0}, body=body
        )

    build()
    (kept,) = tmp_path.rglob("*.bin")
    content = kept.read_bytes()
    build()
    assert kept.read_bytes() == content
    kept.write_bytes(content[:-1] + b"?")
    build()
    assert kept.read_bytes() == content


def test_nodes_are_timed_by_the_device(provider, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, feeds = model_of("MatMul", [floats(64, 64), floats(64, 64, seed=1)])
    options = SessionOptions()
    options.disable_cpu_fallback = True
    options.certificate_policy = "off"
    options.enable_profiling = True
    chosen = ("cuda", {"device_id": provider.device.id})
    with InferenceSession(model.SerializeToString(), options, providers=[chosen]) as running:
        running.run(None, feeds)
        path = Path(running.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    assert any("the_node" in json.dumps(event) for event in events)
