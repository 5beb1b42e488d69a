"""Bound runs over several packages: the CPU provider without copies, two memories, and one script
that runs against ONNX Runtime and against us."""

from __future__ import annotations

import inspect
import random
import threading
import tracemalloc

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, parser

import ep_core
from ep_core import EpError, InferenceSession, IOBinding, OrtValue, SessionOptions

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
PAIR = HEAD + "g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) { y = Neg(x) z = Exp(y) }"
LARGE = HEAD + (
    "g (float[512, 512] x, float[512, 512] w) => (float[512, 512] y, float[512, 512] z)"
    " { a = MatMul(x, w) y = Relu(a) z = Add(a, x) }"
)
SPLIT = HEAD + (
    "g (float[8] x) => (float[8] a, float[8] e, float[8] s)"
    " { a = Neg(x) e = Erf(a) s = Add(e, x) }"  # the simulator has no Erf
)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
CPU = ["CPUExecutionProvider"]


def bytes_of(text: str) -> bytes:
    return parser.parse_model(text).SerializeToString()


# ---------------------------------------------------------------- beside ONNX Runtime


def script(runtime):
    """What a user of ONNX Runtime writes; returns everything that can be seen of it."""
    seen = []
    session = runtime.InferenceSession(bytes_of(PAIR), providers=CPU)
    value = runtime.OrtValue.ortvalue_from_numpy(X.copy())
    seen += [value.shape(), value.data_type(), value.element_type(), value.device_name()]
    seen += [value.has_value(), value.is_tensor(), value.is_tensor_sequence()]
    seen += [value.is_sparse_tensor(), value.tensor_size_in_bytes(), value.__dlpack_device__()]
    value.update_inplace(X * 2)
    seen.append(value.numpy())

    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("z")
    target = runtime.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("y", target)
    binding.synchronize_inputs()
    seen.append(session.run_with_iobinding(binding))
    binding.synchronize_outputs()
    seen += binding.copy_outputs_to_cpu()
    seen += [item.numpy() for item in binding.get_outputs()]
    seen.append(target.numpy())
    seen.append(binding.get_outputs()[1].data_ptr() == target.data_ptr())

    binding.clear_binding_outputs()
    raw = np.zeros((2, 3), np.float32)
    source = X * 3
    binding.bind_input("x", "cpu", 0, np.float32, source.shape, source.ctypes.data)
    binding.bind_output("z", "cpu", 0, TensorProto.FLOAT, raw.shape, raw.ctypes.data)
    session.run_with_iobinding(binding)
    seen.append(raw)

    z, y = session.run_with_ort_values(["z", "y"], {"x": value})
    seen += [z.numpy(), y.numpy(), z.device_name()]
    bits = np.uint16([0x3F80, 0x4000])
    brain = runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    seen += [brain.data_type(), brain.element_type()]
    seen.append(np.from_dlpack(runtime.OrtValue.from_dlpack(X)))
    seen.append(np.asarray(value, dtype=np.float64))

    there = threading.Semaphore(0)

    def callback(results, user_data, error):
        seen.extend([len(results), user_data, bool(error), *results])
        there.release()

    for feed in (X, X.astype(np.float64)):
        session.run_async(["z"], {"x": feed}, callback, "data")
        assert there.acquire(timeout=30)
    return seen


def test_one_script_two_runtimes():
    ours, theirs = script(ep_core), script(onnxruntime)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
            assert mine.dtype == other.dtype
        else:
            assert mine == other


@pytest.mark.parametrize(
    ("ours", "theirs", "names"),
    [
        (
            OrtValue,
            onnxruntime.OrtValue,
            "ortvalue_from_numpy ortvalue_from_numpy_with_onnx_type ortvalue_from_shape_and_type "
            "from_dlpack update_inplace numpy data_ptr device_name shape data_type element_type "
            "tensor_size_in_bytes has_value is_tensor is_sparse_tensor is_tensor_sequence",
        ),
        (
            IOBinding,
            onnxruntime.IOBinding,
            "bind_cpu_input bind_input bind_ortvalue_input synchronize_inputs bind_output "
            "bind_ortvalue_output synchronize_outputs get_outputs copy_outputs_to_cpu "
            "clear_binding_inputs clear_binding_outputs",
        ),
        (
            InferenceSession,
            onnxruntime.InferenceSession,
            "io_binding run_with_iobinding run_with_ort_values run_async",
        ),
    ],
)
def test_arguments_have_the_same_names_in_the_same_order(ours, theirs, names):
    """Theirs may have more at the end, ours more that goes by its name alone."""
    for name in names.split():
        own = inspect.signature(getattr(ours, name)).parameters
        mine = {key: p for key, p in own.items() if p.kind is not p.KEYWORD_ONLY}
        other = inspect.signature(getattr(theirs, name)).parameters
        assert list(mine) == list(other)[: len(mine)], name
        for key, parameter in mine.items():
            assert (parameter.default, parameter.kind) == (other[key].default, other[key].kind)


# ---------------------------------------------------------------- on the host, without copies


def test_the_cpu_provider_writes_into_the_caller_s_memory():
    """No step copies, and no memory of an output's size is taken on the way."""
    rng = np.random.default_rng(3)
    x, w = (rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
    y, z = np.zeros_like(x), np.zeros_like(x)
    with InferenceSession(bytes_of(LARGE), providers=["cpu"]) as session:
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("w", w)
        binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(y))
        binding.bind_ortvalue_output("z", OrtValue.ortvalue_from_numpy(z))
        assert binding.get_copies() == ()
        for _ in range(2):  # the first compares declared types with real ones
            session.run_with_iobinding(binding)
        y[:], z[:] = 0, 0
        tracemalloc.start()
        try:
            session.run_with_iobinding(binding)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < x.nbytes / 4
    np.testing.assert_allclose(y, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, x @ w + x, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- two memories


def split_session(**options) -> InferenceSession:
    return InferenceSession(bytes_of(SPLIT), SessionOptions(), [("simulator", options), "cpu"])


def transfers(session) -> int:
    """Copies that the session's simulator has begun."""
    return session._ports.providers[0].simulated._counts["copy"]


def test_a_model_in_two_memories_bound_in_every_way():
    """Answers are those of the CPU provider alone; predicted copies are those that happen."""
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    with InferenceSession(bytes_of(SPLIT), providers=["cpu"]) as alone:
        expected = alone.run(None, {"x": x})
    with split_session() as session:
        on_device = OrtValue.ortvalue_from_numpy(x, "simulator")
        for source in ("cpu", "simulator"):
            for places in np.ndindex(3, 3, 3):
                binding = session.io_binding()
                if source == "cpu":
                    binding.bind_cpu_input("x", x)
                else:
                    binding.bind_ortvalue_input("x", on_device)
                for name, place in zip("aes", places, strict=True):
                    if place == 2:
                        given = OrtValue.ortvalue_from_shape_and_type([8], np.float32, "simulator")
                        binding.bind_ortvalue_output(name, given)
                    else:
                        binding.bind_output(name, ("cpu", "simulator")[place])
                copies = binding.get_copies()
                before = transfers(session)
                session.run_with_iobinding(binding)
                assert transfers(session) - before == len(copies)
                assert sum(copy.nbytes for copy in copies) == 32 * len(copies)
                for value, place in zip(binding.get_outputs(), places, strict=True):
                    assert value.device_name() == ("cpu" if place == 0 else "simulator")
                np.testing.assert_allclose(binding.copy_outputs_to_cpu(), expected, rtol=1e-6)


def test_a_bound_run_takes_no_memory_after_the_first():
    with split_session() as session:
        binding = session.io_binding()
        x = OrtValue.ortvalue_from_numpy(np.ones(8, np.float32), "simulator", 1)
        binding.bind_ortvalue_input("x", x)
        binding.bind_output("s", "simulator")
        binding.bind_output("e")
        reserved = []
        for _ in range(10):
            session.run_with_iobinding(binding)
            (stats,) = session.get_memory().devices.values()
            reserved.append(stats.reserved_bytes)
        assert len(set(reserved)) == 1
        before = stats.in_use_bytes
        binding.clear_binding_outputs()
        (stats,) = session.get_memory().devices.values()
        assert stats.in_use_bytes == before - 32


# ---------------------------------------------------------------- whatever is said

ODD = [None, -1, 2.5, True, "x", "q", b"x", [], [4], [4, "N"], {}, {"x": 1}, np.float32, "float32"]
ODD += [1, 7, 8, 16, 22, 2**70, float("nan"), object(), np.float32(1), np.zeros(4, np.float32)]
ODD += [np.zeros(4), np.arange(3), np.array(["a"]), np.array("M"), np.zeros(4, ">f4")]
ODD += [np.zeros(8, np.float32)[::2], np.ma.masked_array([1.0]), np.zeros(4, "M8[s]")]
ODD += [np.zeros(3, [("a", "i4")]), np.zeros((0,), np.int64)]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_bound_it_works_or_is_an_ep_error(seed):
    """Names, types, devices and values in random places; no address that could be one."""
    rng = random.Random(seed)
    host = OrtValue.ortvalue_from_numpy
    values = [
        host(np.ones(8, np.float32), *where) for where in ((), ("simulator", 0), ("simulator", 1))
    ]
    odd = [*ODD, *values, host(np.arange(2)), host(np.array(["a"]))]
    worked = 0
    with split_session() as session:
        binding = session.io_binding()
        calls = [
            *(
                getattr(binding, name)
                for name in dir(IOBinding)
                if name[0] != "_" and name != "run"
            ),
            *(
                getattr(OrtValue, name)
                for name in dir(OrtValue)
                if name.startswith("ortvalue_from")
            ),
            OrtValue.from_dlpack,
            *(value.update_inplace for value in values),
            session.run_with_ort_values,
        ]
        for _ in range(3000):
            call = rng.choice([*calls, lambda: session.run_with_iobinding(binding)])
            parameters = inspect.signature(call).parameters
            names = [key for key, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
            pinned = {"pinned": True} if "pinned" in parameters and rng.random() < 0.3 else {}
            known = {
                "name": rng.choice(["x", "a", "e", "s", *ODD]),
                "device_type": rng.choice(["cpu", "simulator"]),
                "device_id": rng.choice([0, 1, "1"]),
                "buffer_ptr": rng.choice([None, 0, -8, 3, "here"]),
                "ortvalue": rng.choice(values),
            }
            arguments = [
                known[name] if name in known and rng.random() < 0.8 else rng.choice(odd)
                for name in names
            ]
            if "buffer_ptr" in names:
                arguments[-1] = known["buffer_ptr"]
            try:
                call(*arguments, **pinned)
                worked += 1
            except EpError:
                pass
    assert worked > 100
