"""The report of kernels on NVIDIA's chips: read as it was written, and worse is told as worse."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
report = pytest.importorskip("nvrtc_report", reason="needs ep-cuda", exc_type=ImportError)

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'move' for 'sm_90'
ptxas info    : Function properties for move
ptxas         .     320 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 38 registers, used 0 barriers, 320 bytes cumulative stack size
ptxas info    : Compiling entry function 'fill' for 'sm_90'
ptxas info    : Function properties for fill
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, used 0 barriers
"""


def of(registers, spilled):
    return {("moving.cl", "move"): {"sm_90": report.Use(registers, spilled)}}


def test_what_the_assembler_says_is_understood():
    found = dict(report._uses(LOG))
    assert found == {"move": report.Use(38, 12), "fill": report.Use(9, 0)}


def test_a_report_is_read_as_it_was_written():
    written = {
        ("moving.cl", "fill"): {"sm_75": report.Use(9, 0), "sm_90": report.Use(10, 0)},
        ("moving.cl", "move"): {"sm_75": report.Use(40, 16), "sm_90": report.Use(38, 12)},
    }
    head = report.HEADER.format(more=8, version="13.0", programs=2, chips="sm_75, sm_90")
    assert report._read(head + report._table(written, ["sm_75", "sm_90"])) == written


@pytest.mark.parametrize(
    ("registers", "spilled", "is_worse"),
    [(38, 12, False), (46, 0, False), (47, 12, True), (30, 13, True)],
)
def test_worse_is_told(registers, spilled, is_worse):
    told = list(report._worse(of(38, 12), of(registers, spilled)))
    assert bool(told) == is_worse
    assert all("moving.cl move on sm_90" in line for line in told)


def test_a_kernel_that_is_not_in_the_report_is_told():
    assert list(report._worse({}, of(38, 12)))
