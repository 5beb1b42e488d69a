"""The kit's cases and checks; run with `pytest plugins/ep_cuda/compliance`."""

from ep_compliance.suite import test_compliance  # noqa: F401
