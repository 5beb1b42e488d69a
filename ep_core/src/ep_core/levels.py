"""How far the optimiser may go. Names and numbers are ONNX Runtime's."""

from __future__ import annotations

import enum

__all__ = ["GraphOptimizationLevel"]


class GraphOptimizationLevel(enum.IntEnum):
    """Each level includes the ones before it.

    Attributes:
        ORT_DISABLE_ALL: the graph runs as it was loaded.
        ORT_ENABLE_BASIC: only rewrites whose results are equal bit by bit.
        ORT_ENABLE_EXTENDED: fusions as well, which may round differently.
        ORT_ENABLE_LAYOUT: moves of transposes as well.
        ORT_ENABLE_ALL: everything there is.
    """

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99
