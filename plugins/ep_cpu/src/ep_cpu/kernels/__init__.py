"""Kernels by family. Importing this package costs nothing; `load_table` imports the families."""

from __future__ import annotations

import importlib

from ep_sdk.kernels import KernelTable

__all__ = ["FAMILIES", "load_table"]

FAMILIES = (
    "unary",
    "activations",
    "binary",
    "shape",
    "slicing",
    "gather",
    "scatter",
    "sorting",
    "reduce",
    "softmax",
    "normalization",
    "matmul",
    "conv",
    "conv_transpose",
    "pool",
    "recurrent",
    "cast",
    "quantize",
    "qlinear",
    "qlinear_float8",
    "dynamic_lstm",
    "resize",
    "generate",
    "attention",
    "sequence",
    "strings",
    "detection",
    "sampling",
    "signal",
    "loss",
    "training",
    "image",
    "ml_trees",
    "ml_linear",
    "ml_svm",
    "ml_scaling",
    "ml_encoders",
    "ml_maps",
    "contrib_elementwise",
    "contrib_fused",
    "contrib_normalization",
    "contrib_embedding",
    "contrib_attention",
    "contrib_rotary",
    "contrib_grouped_attention",
    "contrib_packed_weights",
    "contrib_qlinear",
    "contrib_qmatmul",
    "contrib_tensors",
)
"""Modules whose import adds rows to the table, in order of precedence."""


def load_table() -> KernelTable:
    """Import every family and return the one table."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
    from ep_cpu.table import TABLE

    return TABLE
