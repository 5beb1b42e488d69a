"""What `import ep_core` costs beyond numpy and onnx, which every user of ONNX models loads anyway.

Fresh processes in turns, files warm; the clock runs inside the process, around the imports only.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from table import print_table

__all__ = ["main"]

PROCESSES = 15
PROGRAM = """
import time
begin = time.perf_counter()
import {modules}
print(time.perf_counter() - begin)
"""
BASE = "numpy, onnx"
OURS = "numpy, onnx, ep_core"
OTHER = "numpy, onnx, onnxruntime"


def import_seconds(modules: str) -> float:
    """Import modules in a fresh process and return the seconds it took."""
    command = [sys.executable, "-c", PROGRAM.format(modules=modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Measure and print."""
    measured: dict[str, list[float]] = {BASE: [], OURS: [], OTHER: []}
    for modules in measured:
        import_seconds(modules)
    for _ in range(PROCESSES):
        for modules, seconds in measured.items():
            seconds.append(import_seconds(modules))
    median = {modules: statistics.median(seconds) for modules, seconds in measured.items()}
    print_table(
        f"Import, median of {PROCESSES} fresh processes",
        ("import", "ms", "ms more"),
        [
            (modules, f"{seconds * 1e3:.1f}", f"{(seconds - median[BASE]) * 1e3:+.1f}")
            for modules, seconds in median.items()
        ],
    )
