"""ep-core: run ONNX models on mixed hardware, with placement you can see.

This module is what application developers import; provider authors start at `ep_sdk`.
"""

from __future__ import annotations

from ep_core.certificate import CertificatePolicy
from ep_core.contracts import API_VERSION
from ep_core.errors import EpError
from ep_core.hookspecs import hookimpl
from ep_core.load import LoadLimits, ModelMetadata
from ep_core.options import RunOptions, SessionOptions
from ep_core.passes.levels import GraphOptimizationLevel
from ep_core.report import PlacementReport
from ep_core.session import InferenceSession, get_available_providers
from ep_core.signature import NodeArg

__all__ = [
    "API_VERSION",
    "CertificatePolicy",
    "EpError",
    "GraphOptimizationLevel",
    "InferenceSession",
    "LoadLimits",
    "ModelMetadata",
    "NodeArg",
    "PlacementReport",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "hookimpl",
]
