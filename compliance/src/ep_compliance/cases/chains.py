"""Small chains that tempt fusions: what is fused must equal what isn't.

Many have a twin in which the fusion would be wrong: the intermediate result is an output too,
weights aren't constant, an axis isn't the one that the pattern expects.
"""

from __future__ import annotations

from collections.abc import Iterator

from ep_compliance.cases.case import Case, Level
from ep_compliance.cases.chaining import Chain, builders
from ep_core.types import DataType

__all__ = ["chain_cases"]

_FLOATS = (DataType.FLOAT, DataType.FLOAT16)


def chain_cases() -> Iterator[Case]:
    """Every chain in float and float16, ids `chain/<type>/<name>`; float is must-pass."""
    for dtype in _FLOATS:
        level = Level.MUSTPASS if dtype is DataType.FLOAT else Level.FULL
        for name, build in builders().items():
            chain = Chain(f"chain/{dtype.text}/{name}", dtype)
            build(chain)
            yield chain.case(level)
