"""Kernel families, one file each; `load` imports them for the rows that they add to the table."""

from __future__ import annotations

from importlib import import_module

__all__ = ["FAMILIES", "load"]

FAMILIES = (
    "elementwise",
    "special",
    "views",
    "movement",
    "joining",
    "padding",
    "products",
    "einsum",
    "convolutions",
    "pools",
    "reductions",
    "normalizations",
    "gathering",
    "selecting",
    "scattering",
    "ordering",
    "resizing",
    "quantizing",
    "attention",
    "generating",
    "recurrent",
)
"""In the order in which rows are tried."""


def load() -> None:
    """Fill the table; the second time does nothing."""
    for family in FAMILIES:
        import_module(f"ep_sdk.device_kernels.kernels.{family}")
