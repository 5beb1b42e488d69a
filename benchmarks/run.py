"""Runs every benchmark and prints its table: `make bench`, or one of them by name.

    python benchmarks/run.py [import] [run] [models] [native] [placement] [overlap]

Nothing in here decides whether a number is good: a benchmark prints, and people judge. Each one
takes turns between the two sides, so that a machine that gets slower does so for both.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

BENCHMARKS = {
    "import": "import_cost",
    "run": "run_cost",
    "models": "real_models",
    "native": "native_speed",
    "placement": "placement_cost",
    "overlap": "overlapping_copies",
}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    """Print what is being measured, then the tables that were asked for."""
    parser = argparse.ArgumentParser(description="Measure ep-core beside ONNX Runtime.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=" or ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")

    # Both take effect only before numpy is loaded, which is why the benchmarks come in later.
    os.environ.update(ONE_THREAD)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    packages = ", ".join(f"{name} {version(name)}" for name in ("ep-core", "onnxruntime", "numpy"))
    print(f"{packages}; Python {platform.python_version()}, {platform.machine()}, one thread")
    for name in names:
        print()
        importlib.import_module(BENCHMARKS[name]).main()


if __name__ == "__main__":
    main()
