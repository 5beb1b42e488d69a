"""The kit's cases and checks; run with `pytest plugins/ep_opencl/compliance`."""

from ep_compliance.suite import test_compliance  # noqa: F401
