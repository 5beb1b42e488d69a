"""Devices, described by what OpenVINO says of them, and the reasons why there are none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from openvino_harness import StandInCore

from ep_core.errors import ProviderUnavailableError
from ep_openvino import devices, library
from ep_openvino.cpu_facts import cpu_speed, instruction_set
from ep_openvino.factory import make_factory

GPU = {
    "FULL_DEVICE_NAME": "Intel(R) Arc(TM) A770 Graphics (dGPU)",
    "DEVICE_ARCHITECTURE": "GPU: vendor=0x8086 arch=v12.55.8",
    "DEVICE_TYPE": "Type.DISCRETE",
    "DEVICE_GOPS": {"<Type: 'float32'>": 19660.8, "<Type: 'float16'>": 39321.6},
    "GPU_DEVICE_TOTAL_MEM_SIZE": 16 * 2**30,
    "OPTIMIZATION_CAPABILITIES": ["FP32", "FP16", "INT8", "EXPORT_IMPORT"],
}


def test_the_cpu_is_found_and_says_what_it_is() -> None:
    factory = make_factory()
    assert factory.why_unavailable() is None
    found = {device.id: device for device in factory.devices()}
    cpu = found["CPU"]
    assert (cpu.provider, cpu.kind, cpu.memory_bytes) == ("openvino", "cpu", 0)
    assert "openvino 2026." in cpu.fingerprint
    assert cpu.speed is not None
    assert cpu.speed.flops_per_second > 1e9
    assert not {"AUTO", "HETERO", "MULTI"} & set(found)


def test_a_gpu_is_bound_to_chip_and_runtime_and_has_its_own_speed() -> None:
    core = StandInCore({"GPU.1": GPU})
    device = devices.describe(core, "GPU.1", "2026.4.0")
    assert (device.id, device.kind, device.vendor) == ("GPU.1", "gpu", "Intel")
    assert device.fingerprint == "GPU; GPU: vendor=0x8086 arch=v12.55.8; openvino 2026.4"
    assert device.memory_bytes == 16 * 2**30
    assert device.speed is not None
    assert device.speed.flops_per_second == 19660.8e9


def test_a_device_that_tells_little_is_listed_all_the_same() -> None:
    device = devices.describe(StandInCore({"NPU": {}}), "NPU", "2026.4.0")
    assert (device.name, device.speed, device.memory_bytes) == ("NPU", None, 0)
    assert device.fingerprint == "NPU; NPU; openvino 2026.4"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("sse4_2 avx2 avx512f avx512_vnni amx_int8", "amx"),
        ("sse4_2 avx2 avx512f avx512_vnni", "avx512-vnni"),
        ("sse4_2 avx2 avx512f", "avx512"),
        ("sse4_2 avx2 avx_vnni", "avx2-vnni"),
        ("sse4_2 avx2", "avx2"),
        ("fp asimd", "neon"),
        ("", ""),
    ],
)
def test_instruction_sets(flags: str, expected: str) -> None:
    assert instruction_set(flags) == expected


def test_more_cores_are_faster() -> None:
    assert cpu_speed(4).flops_per_second == pytest.approx(4 * cpu_speed(1).flops_per_second)


@pytest.fixture
def _fresh_core() -> Iterator[None]:
    """Have the library looked for again, now and after the test."""
    library.open_core.cache_clear()
    yield
    library.open_core.cache_clear()


@pytest.mark.usefixtures("_fresh_core")
def test_a_missing_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    factory = make_factory()
    assert list(factory.devices()) == []
    assert "pip install openvino" in (factory.why_unavailable() or "")


@pytest.mark.usefixtures("_fresh_core")
def test_an_old_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino

    monkeypatch.setattr(openvino, "__version__", "2023.1.0-12185-abc")
    reason = make_factory().why_unavailable() or ""
    assert "2026.4 or newer" in reason
    assert "2023.1.0" in reason


def test_no_device_at_all_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "open_core", lambda: StandInCore({}))
    with pytest.raises(ProviderUnavailableError, match="found no device"):
        devices.list_devices()


def test_making_a_factory_imports_no_openvino() -> None:
    code = (
        "import sys; from ep_openvino import ep_provider_factory;"
        "ep_provider_factory().info; print('openvino' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
