"""A zoo of broken provider packages, installed all at once beside good ones.

Each is listed with its reason, none disturbs the others, and the process lives. The packages are in
`broken_plugins/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ep_core import InferenceSession
from ep_core.discovery.registry import ProviderState, Registry, registry
from ep_core.errors import ProviderError, ProviderUnavailableError

ZOO = Path(__file__).parent / "broken_plugins"
PROBE_SECONDS = 3.0

BROKEN = {
    "zoo_import_error": "No module named 'zoo_vendor_library_that_is_missing'",
    "zoo_old_api": r"another version of the provider API.* got 0\.9.* Update the plugin's package",
    "zoo_new_api": r"another version of the provider API.* Update ep-core",
    "zoo_wrong_name": r"`info\.name` differs from the entry point; .*; got 'cpu'",
    "zoo_no_hook": "no hook ep_provider_factory",
    "zoo_none": r"ep_provider_factory\(\); expected a ProviderFactory",
    "zoo_exit_on_import": "raised SystemExit: usage: zoo",
    "zoo_os_exit_on_import": "ended the process with exit code 3 while being imported",
    "zoo_abort_on_import": "SIGABRT while being imported.*assertion failed: device != nullptr",
    "zoo_segfault_on_import": "SIGSEGV while being imported",
    "zoo_raising_devices": r"devices\(\) raised OSError: /dev/zoo: permission denied",
    "zoo_garbage_devices": "expected DeviceInfo objects; got a str",
    "zoo_segfault_in_devices": r"SIGSEGV in devices\(\)",
    "zoo_abort_in_devices": r"SIGABRT in devices\(\)",
    "zoo_hang_in_devices": r"did not answer in devices\(\) within 3 s",
    "zoo_twin": r"ambiguous, it is offered by zoo-twin-1 1\.0 and by zoo-twin-2 1\.0",
}
CRASHING = [name for name in BROKEN if re.search("_abort|_segfault|_hang|_os_exit", name)]


def install(site, distribution, name):
    """Write what pip would: the module and the metadata of a distribution that brings it."""
    shutil.copy(ZOO / f"{name}.py", site)
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ep_core.providers]\n{name} = {name}\n")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Every plugin of the zoo on sys.path, none of them ever probed."""
    folder = tmp_path_factory.mktemp("zoo")
    site = folder / "site"
    site.mkdir()
    shutil.copy(ZOO / "zoo_common.py", site)
    for path in sorted(ZOO.glob("zoo_*.py")):
        if path.stem not in ("zoo_common", "zoo_twin"):
            install(site, path.stem.replace("_", "-"), path.stem)
    for number in (1, 2):
        install(site, f"zoo-twin-{number}", "zoo_twin")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("EP_CACHE_DIR", str(folder / "cache"))
        patch.setenv("EP_PROBE_TIMEOUT", str(PROBE_SECONDS))
        patch.delenv("EP_PLUGIN_AUTOLOAD", raising=False)
        registry().recheck()
        yield site
    registry().recheck()
    for name in [name for name in sys.modules if name.startswith("zoo_")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def listed(zoo):
    """What the first listing gives, in well-bounded time."""
    started = time.monotonic()
    providers = registry().providers()
    # Children start side by side; the hanging one takes its whole limit.
    assert time.monotonic() - started < 60
    return {status.name: status for status in providers}


def identity_model():
    kind = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [kind], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run_identity(providers):
    value = np.array([1.5, -2.0], np.float32)
    with InferenceSession(identity_model().SerializeToString(), providers=providers) as session:
        (result,) = session.run(None, {"x": value})
    np.testing.assert_array_equal(result, value)
    return session


def test_every_plugin_of_the_zoo_is_listed(listed):
    modules = {path.stem for path in ZOO.glob("zoo_*.py")} - {"zoo_common"}
    assert modules <= set(listed)
    assert set(BROKEN) == {n for n in modules if listed[n].state is ProviderState.BROKEN}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_has_its_reason_and_its_package(listed, name):
    status = listed[name]
    assert re.search(BROKEN[name], status.reason)
    assert status.distribution.startswith(name.replace("_", "-"))
    assert status.reason.startswith(f"{status.distribution} 1.0: ")
    assert status.devices == ()


@pytest.mark.parametrize("name", BROKEN)
def test_naming_a_broken_provider_says_why(zoo, name):
    with pytest.raises(ProviderUnavailableError, match=BROKEN[name]):
        InferenceSession(identity_model().SerializeToString(), providers=[name])


def test_good_plugins_work_in_the_same_process(listed):
    for name in ("zoo_good", "zoo_chatty"):
        assert listed[name].state is ProviderState.AVAILABLE
        assert run_identity([name]).get_providers()[0] == name


def test_missing_hardware_is_no_defect(listed):
    assert listed["zoo_no_hardware"].state is ProviderState.UNAVAILABLE
    assert listed["zoo_no_hardware"].reason == "no zoo accelerator is plugged in"


def test_without_named_providers_the_broken_ones_are_passed_over(listed):
    session = run_identity(None)
    used = set(session.get_providers())
    assert {"zoo_good", "zoo_chatty"} <= used
    assert not used & set(BROKEN)


def test_a_device_that_cant_be_opened_is_an_error_only_for_who_names_it(listed):
    assert listed["zoo_cant_open"].state is ProviderState.AVAILABLE
    with pytest.raises(ProviderError, match="the device is in use"):
        run_identity(["zoo_cant_open"])
    assert "zoo_cant_open" not in run_identity(None).get_providers()


def test_the_installed_providers_are_as_available_as_without_the_zoo(listed):
    assert listed["cpu"].state is ProviderState.AVAILABLE
    assert listed["simulator"].state is ProviderState.AVAILABLE


def test_what_crashed_is_never_imported_here(listed):
    assert not set(CRASHING) & set(sys.modules)


def test_a_crash_is_remembered_by_the_next_process(listed):
    code = (
        "import sys; from ep_core.discovery import probe, registry\n"
        "def refuse(entries, limit):\n"
        "    assert not entries, entries\n"
        "    return []\n"
        "registry.probe = refuse\n"
        "for name in sys.argv[1:]:\n"
        "    print(registry.registry().status(name).reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *CRASHING, "zoo_good"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(listed[name].reason for name in CRASHING), ""]


def test_a_second_registry_agrees(listed):
    again = {status.name: status.state for status in Registry().providers()}
    assert again == {name: status.state for name, status in listed.items()}


def test_the_model_used_here_is_valid():
    onnx.checker.check_model(identity_model())
