"""OpenVINO's errors in the project's words."""

from __future__ import annotations

import pytest

from ep_core.errors import AllocationError, CompileError, DeviceLostError, EpError, RunError
from ep_openvino.library import message_of, release_of, translated

REPORT = """Exception from src/inference/src/cpp/core.cpp:105:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted.
Summary:
-- No conversion rule found for operations: Det-11
To facilitate the conversion of unsupported operations, refer to a page.
"""


def test_what_matters_of_a_report_is_one_line() -> None:
    told = message_of(RuntimeError(REPORT))
    assert told == "-- No conversion rule found for operations: Det-11"


def test_a_report_of_noise_alone_is_told_whole() -> None:
    assert "Check 'false' failed" in message_of(RuntimeError("Check 'false' failed at a.cpp:1"))


def test_long_messages_are_cut() -> None:
    assert len(message_of(RuntimeError("word " * 1000))) < 500


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("clFinish, error code: -2 CL_DEVICE_NOT_AVAILABLE"), DeviceLostError),
        (RuntimeError("ZE_RESULT_ERROR_DEVICE_LOST"), DeviceLostError),
        (RuntimeError("[GPU] Exceeded max size of memory object allocation"), AllocationError),
        (RuntimeError("std::bad_alloc"), AllocationError),
        (MemoryError(), AllocationError),
        (RuntimeError("something else"), CompileError),
    ],
)
def test_errors_are_told_apart(error: Exception, expected: type[EpError]) -> None:
    found = translated(error, "OpenVINO can't compile 'x'", CompileError)
    assert type(found) is expected
    assert "OpenVINO can't compile 'x'" in str(found)


def test_errors_of_the_project_stay_as_they_are() -> None:
    error = RunError("no such input")
    assert translated(error, "a run failed", CompileError) is error


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2026.4.0-22959-99c81491cc3-releases/2026/4", (2026, 4)),
        ("2026.10.1", (2026, 10)),
        ("", (0, 0)),
        ("custom", (0, 0)),
    ],
)
def test_releases(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release
