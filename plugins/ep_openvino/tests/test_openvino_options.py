"""Options: what their parsers take, and what becomes of them on a device."""

from __future__ import annotations

from typing import Any

import pytest
from openvino_harness import StandInCore, open_provider

from ep_core.errors import OptionError, ProviderUnavailableError
from ep_openvino.configuration import configure
from ep_openvino.options import OPTIONS, as_properties, as_target

DEFAULTS = {name: spec.default for name, spec in OPTIONS.items()}
SETTABLE = dict.fromkeys(
    ("PERFORMANCE_HINT", "INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT", "NUM_STREAMS")
)
CPU = {
    **SETTABLE,
    "INFERENCE_NUM_THREADS": None,
    "ENABLE_CPU_PINNING": None,
    "PERF_COUNT": None,
    "OPTIMIZATION_CAPABILITIES": ["FP32", "BF16", "EXPORT_IMPORT"],
}
GPU = {**SETTABLE, "PERF_COUNT": None, "OPTIMIZATION_CAPABILITIES": ["FP32", "FP16"]}
NPU = {**SETTABLE, "OPTIMIZATION_CAPABILITIES": ["FP16", "INT8"]}
CORE = StandInCore(
    {
        "CPU": CPU,
        "GPU.0": GPU,
        "GPU.1": GPU,
        "NPU": NPU,
        "HETERO": {"PERFORMANCE_HINT": None},
        "AUTO": {"PERFORMANCE_HINT": None, "ENABLE_STARTUP_FALLBACK": None},
    }
)


def configured(device: str = "CPU", **options: Any) -> Any:
    return configure(CORE, device, {**DEFAULTS, **options})


def test_float_models_are_computed_in_32_bits_unless_told_otherwise() -> None:
    assert configured().properties == {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "EXECUTION_MODE_HINT": "ACCURACY",
    }
    faster = configured(precision="bf16").properties
    assert faster["INFERENCE_PRECISION_HINT"] == "bf16"
    assert faster["EXECUTION_MODE_HINT"] == "PERFORMANCE"


def test_threads_and_streams_reach_the_device_that_has_them() -> None:
    found = configured(num_streams=2, intra_op_num_threads=3).properties
    assert (found["NUM_STREAMS"], found["INFERENCE_NUM_THREADS"]) == (2, 3)
    assert "INFERENCE_NUM_THREADS" not in configured("GPU.0", intra_op_num_threads=3).properties


@pytest.mark.parametrize(
    ("device", "precision", "able"), [("CPU", "f16", "f32 or bf16"), ("NPU", "f32", "f16")]
)
def test_a_precision_that_the_device_lacks(device: str, precision: str, able: str) -> None:
    with pytest.raises(OptionError, match=f"'precision' as {able}"):
        configured(device, precision=precision)


def test_a_property_is_checked_against_the_devices_own_list() -> None:
    good = configured(properties=as_properties("enable_cpu_pinning=NO"))
    assert good.properties["ENABLE_CPU_PINNING"] == "NO"
    with pytest.raises(OptionError, match="Did you mean 'ENABLE_CPU_PINNING'"):
        configured(properties=as_properties("ENABLE_CPU_PINING=NO"))
    with pytest.raises(OptionError, match="no property 'OPTIMIZATION_CAPABILITIES' that can be"):
        configured(properties=as_properties("OPTIMIZATION_CAPABILITIES=FP32"))


def test_a_property_with_an_option_of_its_own_is_refused() -> None:
    with pytest.raises(OptionError, match="Use precision"):
        configured(properties=as_properties({"INFERENCE_PRECISION_HINT": "bf16"}))


def test_several_devices_each_get_the_properties_that_they_have() -> None:
    found = configured(target="HETERO:GPU.0,CPU", intra_op_num_threads=3)
    assert found.target == "HETERO:GPU.0,CPU"
    assert found.devices == ("GPU.0", "CPU")
    each = found.properties["DEVICE_PROPERTIES"]
    assert each["CPU"]["INFERENCE_NUM_THREADS"] == 3
    assert "INFERENCE_NUM_THREADS" not in each["GPU.0"]
    assert each["GPU.0"]["INFERENCE_PRECISION_HINT"] == "f32"
    assert not found.exports


def test_a_target_names_devices_that_are_there() -> None:
    with pytest.raises(ProviderUnavailableError, match=r"'GPU.7', which isn't there.*CPU, GPU.0"):
        configured(target="HETERO:GPU.7,CPU")


def test_dynamic_shapes_are_left_out_on_npus() -> None:
    assert configured().dynamic_shapes
    assert not configured("NPU", precision="f16").dynamic_shapes
    assert configured("NPU", precision="f16", dynamic_shapes="on").dynamic_shapes
    assert not configured(dynamic_shapes="off").dynamic_shapes


def test_what_a_device_can_be_asked_for_is_known() -> None:
    assert configured().exports
    assert not configured("GPU.0").exports
    assert configured("GPU.0").times_nodes
    assert not configured("NPU", precision="f16").times_nodes


@pytest.mark.parametrize("value", ["", "AUTO", "HETERO:GPU,CPU", "MULTI:GPU.0,GPU.1"])
def test_targets(value: str) -> None:
    assert as_target(value) == value
    assert as_target(value.lower().replace(",", " , ")) == value


@pytest.mark.parametrize("value", ["CPU", "HETERO:", "AUTOMATIC", "BATCH:CPU", None, 1, b"AUTO"])
def test_no_targets(value: Any) -> None:
    with pytest.raises(ValueError, match="expected AUTO, HETERO, MULTI"):
        as_target(value)


def test_properties_come_as_text_or_as_a_dict() -> None:
    expected = (("A", "1"), ("B", "YES"))
    assert as_properties(" b = YES , a=1,") == expected
    assert as_properties({"B": True, "A": 1}) == expected
    assert as_properties(expected) == expected
    assert as_properties("") == ()


@pytest.mark.parametrize("value", ["A", "=1", None, 3, [1], {1: 2}, (("A",),), "A=1,a=2"])
def test_no_properties(value: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a dict or KEY=VALUE|stands there twice"):
        as_properties(value)


def test_a_property_of_the_real_cpu() -> None:
    provider = open_provider(properties="CPU_DENORMALS_OPTIMIZATION=YES")
    assert provider.options["properties"] == (("CPU_DENORMALS_OPTIMIZATION", "YES"),)
    provider.close()
    with pytest.raises(OptionError, match="Did you mean 'CPU_DENORMALS_OPTIMIZATION'"):
        open_provider(properties="CPU_DENORMAL_OPTIMIZATION=YES")
