"""What is read about the host's processor, from texts as Linux writes them."""

from __future__ import annotations

import platform

import pytest

from ep_sdk import processor
from ep_sdk.processor import architecture, processor_facts, widest_level

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some Chip @ 2.0GHz
cpu MHz\t\t: 2000.123
flags\t\t: fpu sse4_2 avx2

processor\t: 1
vendor_id\t: Other
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\n"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Have the system tell a text."""

    def tell(text):
        path = tmp_path / "cpuinfo"
        path.write_text(text)
        monkeypatch.setattr(processor, "_CPUINFO", path)
        processor_facts.cache_clear()
        return processor_facts()

    yield tell
    processor_facts.cache_clear()


def test_the_first_core_counts(told):
    assert dict(told(X86)) == {
        "vendor": "GenuineIntel",
        "name": "Some Chip @ 2.0GHz",
        "megahertz": "2000.123",
        "flags": "fpu sse4_2 avx2",
    }


def test_features_are_flags(told):
    assert told(ARM)["flags"] == "fp asimd sve"
    assert told(ARM)["vendor"] == ""


def test_a_system_that_tells_nothing(tmp_path, monkeypatch, told):
    told("")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "missing")
    processor_facts.cache_clear()
    assert set(processor_facts().values()) == {""}


def test_nobody_changes_the_facts_of_others(told):
    with pytest.raises(TypeError):
        told(X86)["flags"] = "amx"


@pytest.mark.parametrize(
    ("machine", "name"), [("AMD64", "x86_64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_architectures_have_one_name(monkeypatch, machine, name):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture() == name


LEVELS = (("wide", ("a", "b")), ("narrow", ("a",)))


@pytest.mark.parametrize(
    ("flags", "level"), [("b a c", "wide"), ("a", "narrow"), ("b", ""), ("ab", ""), ("", "")]
)
def test_the_widest_level_needs_all_its_flags(flags, level):
    assert widest_level(flags, LEVELS) == level
