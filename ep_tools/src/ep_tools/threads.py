"""Threads inside one operator, for libraries that take their number from the environment.

Must not import numpy, not even indirectly: its libraries read the environment when it is loaded.
"""

from __future__ import annotations

import os
import sys

__all__ = ["THREAD_VARIABLES", "limit_threads"]

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(number: int) -> tuple[str, ...]:
    """Set the variables that aren't set; return a sentence for each reason why that won't do."""
    problems = [
        f"{name} is set to {os.environ[name]}, so matrix products of numpy may use that many "
        f"threads, not {number}"
        for name in THREAD_VARIABLES
        if os.environ.get(name, str(number)) != str(number)
    ]
    if "numpy" in sys.modules:
        problems.append("numpy is loaded already, so the number of its threads is what it was")
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(number))
    return tuple(problems)
