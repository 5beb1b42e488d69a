"""The one kernel table of the CPU provider, and nothing else.

Every kernel file adds its rows here. Rows are tried in order, so a file of faster kernels that is
imported before another takes over the nodes that it can do.
"""

from __future__ import annotations

from ep_sdk.kernels import KernelTable

__all__ = ["TABLE"]

TABLE = KernelTable({"": 28, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "com.microsoft": 1})
