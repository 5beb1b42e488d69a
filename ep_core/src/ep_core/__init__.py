"""ep-core: run ONNX models on mixed hardware, with placement you can see.

This module is what application developers import; provider authors start at `ep_sdk`. Names are
loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ep_core.binding.io_binding import IOBinding
    from ep_core.certificates.grants import CertificatePolicy
    from ep_core.contracts import API_VERSION
    from ep_core.errors import EpError
    from ep_core.hookspecs import hookimpl
    from ep_core.levels import GraphOptimizationLevel
    from ep_core.loading.load import LoadLimits, ModelMetadata
    from ep_core.options import RunOptions, SessionOptions
    from ep_core.report import PlacementReport
    from ep_core.session import InferenceSession, get_available_providers
    from ep_core.signature import NodeArg
    from ep_core.values.value import OrtValue

__all__ = [
    "API_VERSION",
    "CertificatePolicy",
    "EpError",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoadLimits",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "PlacementReport",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "hookimpl",
]

_HOMES = {
    "API_VERSION": "contracts",
    "CertificatePolicy": "certificates.grants",
    "EpError": "errors",
    "GraphOptimizationLevel": "levels",
    "IOBinding": "binding.io_binding",
    "InferenceSession": "session",
    "LoadLimits": "loading.load",
    "ModelMetadata": "loading.load",
    "NodeArg": "signature",
    "OrtValue": "values.value",
    "PlacementReport": "report",
    "RunOptions": "options",
    "SessionOptions": "options",
    "get_available_providers": "session",
    "hookimpl": "hookspecs",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
