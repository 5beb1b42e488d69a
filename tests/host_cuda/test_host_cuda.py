"""The host stand-ins for CUDA do what they promise: faults show, work is in order and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from host_cuda import HostCudaError, build, environment, find_headers, missing

TRIALS = Path(__file__).with_name("host_cuda_trials.py")
REASON = missing()
needs_tools = pytest.mark.skipif(REASON is not None, reason=f"needs g++ and cuda.h: {REASON}")

pytestmark = needs_tools


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("host_cuda")


def run(cache, name, **settings):
    done = subprocess.run(
        [sys.executable, str(TRIALS), name],
        env=environment(cache, **settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_barriers_hold_in_any_order_and_a_missing_one_shows(cache, order):
    run(cache, "barriers_hold", order=order)
    run(cache, "a_missing_barrier_shows", order=order)


@pytest.mark.parametrize(
    "name",
    [
        "arguments_arrive",
        "new_memory_is_no_number",
        "copies_stay_inside",
        "code_for_another_chip_is_refused",
        "the_compiler_says_where_it_fails",
    ],
)
def test_trial(cache, name):
    run(cache, name)


@pytest.mark.parametrize(
    "name",
    [
        "who_does_not_wait_sees_what_was_there",
        "events_order_streams",
        "streams_without_events_are_not_ordered",
    ],
)
def test_order(cache, name):
    run(cache, name, delay=20_000)


def test_faults_name_the_kernel(cache):
    said = run(cache, "writing_beside_memory_is_a_fault")
    assert "beside wrote beside the memory it was given" in said
    said = run(cache, "a_barrier_that_some_pass_by_is_a_fault")
    assert "stuck waits at a barrier for ever" in said


def test_the_address_sanitizer_names_the_line(cache):
    done = subprocess.run(
        [sys.executable, str(TRIALS), "writing_beside_memory_is_a_fault"],
        env=environment(cache, sanitize=True),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "in beside" in done.stderr
    assert "kernel.cu:1" in done.stderr


def test_libraries_are_built_once(cache):
    assert build(cache) == build(cache)


def test_without_headers_it_says_which_package(cache, monkeypatch):
    monkeypatch.setattr("host_cuda.find_headers", lambda: None)
    with pytest.raises(HostCudaError, match="nvidia-cuda-runtime"):
        build(cache)
    assert find_headers() is not None
