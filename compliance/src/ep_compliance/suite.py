"""What a provider's own tests import, in one line of a test module.

The line: `from ep_compliance.suite import test_compliance  # noqa: F401`. Without a module,
`pytest --pyargs ep_compliance.suite --provider NAME` does the same. In either case the plugin puts
every case and check in the place of the function below. Nothing else belongs here.
"""

from __future__ import annotations

__all__ = ["test_compliance"]


def test_compliance() -> None:
    """Stand for every case and check until the pytest plugin replaces it."""
    raise RuntimeError(
        "the pytest plugin of ep-compliance isn't loaded, so nothing is tried; "
        "plugins aren't loaded by themselves here: add -p ep_compliance"
    )
