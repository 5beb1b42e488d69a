"""The declared speed follows from facts, the same each time, and isn't part of the identity."""

from __future__ import annotations

import dataclasses

import pytest

from ep_cpu import speed as room
from ep_cpu.factory import make_factory
from ep_cpu.speed import declared_speed, nominal_hertz


@pytest.fixture(autouse=True)
def quiet_system(monkeypatch, tmp_path):
    """No frequency in the system's files, and one core."""
    monkeypatch.setattr(room, "_BASE_FREQUENCY", tmp_path / "base_frequency")
    monkeypatch.setattr(room, "usable_cores", lambda: 1)
    return tmp_path / "base_frequency"


AVX512 = ["sse4_2", "avx", "avx2", "fma", "avx512f"]


@pytest.mark.parametrize(
    ("flags", "per_cycle"),
    [
        (AVX512, 64),
        (["avx", "avx2", "fma"], 32),
        (["avx", "avx2"], 16),
        (["avx"], 16),
        (["fp", "asimd"], 16),
        (["sse2"], 16),
        ([], 16),
    ],
)
def test_instructions_count(flags, per_cycle):
    speed = declared_speed(flags, "Some CPU @ 2.00GHz", None)
    assert speed.flops_per_second == pytest.approx(2e9 * per_cycle * 0.24)


def test_what_it_was_measured_on():
    """One core of a Zen 4 at 2.6 GHz: 40 GFLOP/s."""
    assert declared_speed(AVX512, "@ 2.6GHz", None).flops_per_second == pytest.approx(
        4e10, rel=0.01
    )


@pytest.mark.parametrize(
    ("level", "per_cycle"), [("avx512", 64), ("avx2", 32), ("portable", 16), ("unheard of", 64)]
)
def test_native_code_is_as_wide_as_its_instructions(level, per_cycle):
    speed = declared_speed(AVX512, "Some CPU @ 2.00GHz", level)
    assert speed.flops_per_second == pytest.approx(2e9 * per_cycle * 0.6)


def test_native_code_shares_its_work_among_cores(monkeypatch):
    one = declared_speed(AVX512, "", "avx512").flops_per_second
    monkeypatch.setattr(room, "usable_cores", lambda: 2)
    assert declared_speed(AVX512, "", "avx512").flops_per_second / one == pytest.approx(2 / 1.05)


@pytest.mark.parametrize(("cores", "gain"), [(1, 1.0), (2, 4 / 3), (4, 1.6), (10**6, 2.0)])
def test_more_cores_help_a_part_of_the_work(monkeypatch, cores, gain):
    one = declared_speed(AVX512, "", None).flops_per_second
    monkeypatch.setattr(room, "usable_cores", lambda: cores)
    assert declared_speed(AVX512, "", None).flops_per_second / one == pytest.approx(gain, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "model", "hertz"),
    [
        (None, "Intel(R) Xeon(R) CPU @ 2.20GHz", 2.2e9),
        (None, "Intel(R) Core(TM) i7 @3GHz", 3e9),
        (None, "AMD EPYC", 2.5e9),
        (None, "", 2.5e9),
        ("3100000\n", "Xeon @ 2.20GHz", 3.1e9),
        ("", "Xeon @ 2.20GHz", 2.2e9),
        ("many\n", "AMD", 2.5e9),
        ("0\n", "AMD", 2.5e9),
        ("nan\n", "AMD", 2.5e9),
        ("-5\n", "AMD", 2.5e9),
        ("1e300\n", "AMD", 2.5e9),
        (None, "Odd @ 99999999.0GHz", 2.5e9),
    ],
)
def test_the_nominal_clock(quiet_system, text, model, hertz):
    if text is not None:
        quiet_system.write_text(text, encoding="ascii")
    assert nominal_hertz(model) == pytest.approx(hertz)


def test_the_device_declares_it_and_says_the_same_each_time():
    (device,) = make_factory().devices()
    (again,) = make_factory().devices()
    assert device.speed is not None
    assert device.speed == again.speed
    assert 0 < device.speed.operator_seconds < 1e-4


def test_the_speed_is_no_part_of_the_identity():
    (device,) = make_factory().devices()
    other = dataclasses.replace(device, speed=None)
    assert (device == other, device.fingerprint == other.fingerprint) == (True, True)
