"""The provider as the core sees it: who it is, its device, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
from cpu_harness import PROVIDER, run_op

from ep_core.contracts import API_VERSION
from ep_core.types import HOST_MEMORY
from ep_cpu import ep_provider_factory


def test_identity():
    info = ep_provider_factory().info
    assert info.name == "cpu"
    assert info.aliases == ("CPUExecutionProvider",)
    assert info.auto
    assert info.priority == 0
    assert info.api_version == API_VERSION
    assert info.version.count(".") >= 1


def test_one_device_with_an_honest_fingerprint():
    factory = ep_provider_factory()
    (device,) = factory.devices()
    assert (device.provider, device.id, device.kind) == ("cpu", "0", "cpu")
    assert device.name
    assert device.fingerprint.endswith("; numpy " + np.__version__.partition(".")[0])
    assert device.properties["numpy"] == np.__version__
    assert factory.why_unavailable() is None


def test_features_and_memory():
    assert PROVIDER.memory == HOST_MEMORY
    assert PROVIDER.features.concurrent_runs
    assert PROVIDER.features.non_tensor_values
    assert not PROVIDER.features.control_flow
    assert PROVIDER.create_stream() is None


def test_entry_point_names_the_package():
    (found,) = entry_points(group="ep_core.providers", name="cpu")
    assert found.value == "ep_cpu"


def test_import_loads_no_kernel():
    code = "import sys, ep_cpu; ep_cpu.ep_provider_factory().info; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "ep_cpu" in loaded
    assert not [name for name in loaded if name.startswith(("ep_cpu.kernels", "ep_cpu.table"))]


@pytest.mark.filterwarnings("error")
def test_no_numpy_warning_leaks():
    x = np.array([-1.0, 0.0, np.inf], np.float32)
    assert np.isnan(run_op("Log", [x], 13)[0][0])
    assert np.isnan(run_op("Sqrt", [x], 13)[0][0])
    assert run_op("Div", [np.array([7, 0], np.int32), np.array([0, 0], np.int32)], 14)[0].shape == (
        2,
    )
