"""What `import ep_core` costs beyond numpy and onnx, which every user of ONNX models loads anyway.

Fresh processes in turns, files warm; the clock runs inside the process, around the imports only.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from table import print_table

__all__ = ["main"]

PROCESSES = 15
PROGRAM = """
import time
begin, begin_cpu = time.perf_counter(), time.process_time()
import {modules}
print(time.perf_counter() - begin, time.process_time() - begin_cpu)
"""
BASE = "numpy, onnx"
VARIANTS = (
    BASE,
    "numpy, onnx, ep_core",
    "numpy, onnx, ep_core.session",
    "numpy, onnx, onnxruntime",
)
"""`ep_core` loads its session only when somebody asks for it, so that both are worth a line."""


def import_seconds(modules: str) -> tuple[float, float]:
    """Import modules in a fresh process; return seconds by the clock and of the processor."""
    command = [sys.executable, "-c", PROGRAM.format(modules=modules)]
    # As after an installation: modules are compiled once, by the warm-up at the latest.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    clock, processor = map(float, done.stdout.split())
    return clock, processor


def main() -> None:
    """Measure and print."""
    measured: dict[str, list[tuple[float, float]]] = {modules: [] for modules in VARIANTS}
    for modules in measured:
        import_seconds(modules)
    for _ in range(PROCESSES):
        for modules, seconds in measured.items():
            seconds.append(import_seconds(modules))
    medians = {
        modules: [statistics.median(column) * 1e3 for column in zip(*seconds, strict=True)]
        for modules, seconds in measured.items()
    }
    base_clock, base_processor = medians[BASE]
    print_table(
        f"Import, median of {PROCESSES} fresh processes",
        ("import", "ms", "ms more", "processor ms", "more"),
        [
            (
                modules,
                f"{clock:.1f}",
                f"{clock - base_clock:+.1f}",
                f"{processor:.1f}",
                f"{processor - base_processor:+.1f}",
            )
            for modules, (clock, processor) in medians.items()
        ],
    )
