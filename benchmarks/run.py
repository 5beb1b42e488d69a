"""Runs every benchmark and prints its table: `make bench`, or one of them by name.

    python benchmarks/run.py [import] [run] [models] [native] [placement] [overlap] [openvino]
                             [opencl]
    python benchmarks/run.py models --providers openvino,cpu:tune --only ocr-detect --threads 2

Nothing in here decides whether a number is good: a benchmark prints, and people judge. Each one
takes turns between the two sides, so that a machine that gets slower does so for both.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

BENCHMARKS = {
    "import": "import_cost",
    "run": "run_cost",
    "models": "real_models",
    "native": "native_speed",
    "placement": "placement_cost",
    "overlap": "overlapping_copies",
    "openvino": "openvino_cost",
    "opencl": "opencl_speed",
}
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Print what is being measured, then the tables that were asked for."""
    parser = argparse.ArgumentParser(description="Measure ep-core beside ONNX Runtime.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=" or ".join(BENCHMARKS))
    models = parser.add_argument_group("models")
    models.add_argument(
        "--providers",
        action="append",
        metavar="A,B[:HOW]",
        help="in order of preference; HOW nodes are placed is greedy, cost or tune; may be given"
        " several times; `every` is each mix of openvino, opencl and cpu (default: cpu)",
    )
    models.add_argument("--only", metavar="NAME,NAME", help="of the models (default: all)")
    models.add_argument(
        "--fixed", action="store_true", help="tell the lengths of inputs beforehand"
    )
    models.add_argument("--threads", type=int, default=1, metavar="N", help="and processors")
    models.add_argument("--cost-cache", default="", metavar="DIR", help="of what tune measures")
    given = parser.parse_args()
    names = given.names or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")

    # Both take effect only before numpy is loaded, which is why the benchmarks come in later.
    os.environ.update(dict.fromkeys(THREADS, str(given.threads)))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    packages = ", ".join(f"{name} {version(name)}" for name in ("ep-core", "onnxruntime", "numpy"))
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    print(f"{packages}; {machine}, threads: {given.threads}")
    for name in names:
        print()
        settings = settings_of_models(given) if name == "models" else {}
        importlib.import_module(BENCHMARKS[name]).main(**settings)


def settings_of_models(given: argparse.Namespace) -> dict[str, Any]:
    """What the command line says about the comparison of models."""
    from mixes import EVERY_MIX, parse_mix

    settings: dict[str, Any] = {
        "threads": given.threads,
        "fixed": given.fixed,
        "costs": given.cost_cache,
    }
    if given.providers:
        mixes = ((EVERY_MIX if text == "every" else [parse_mix(text)]) for text in given.providers)
        settings["mixes"] = list(dict.fromkeys(itertools.chain.from_iterable(mixes)))
    if given.only:
        settings["names"] = given.only.split(",")
    return settings


if __name__ == "__main__":
    main()
