"""The compliance kit's cases and checks, as tests of this package."""

from ep_compliance.suite import test_compliance  # noqa: F401
