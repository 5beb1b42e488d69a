"""Options that every provider of these kernels has. None of them changes a result."""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.contracts import OptionSpec
from ep_sdk.options import as_bool

__all__ = ["OPTIONS"]

OPTIONS: Mapping[str, OptionSpec] = {
    "program_cache": OptionSpec(
        True, "keep compiled kernels in the user's cache folder", as_bool, artifacts=False
    ),
    "fuse": OptionSpec(
        True,
        "compute chains of elementwise operators in one kernel, also behind a product",
        as_bool,
        artifacts=False,
    ),
    "tune": OptionSpec(
        True,
        "time several shapes of tiles on the first products of a size, and remember the best",
        as_bool,
        artifacts=False,
    ),
}
