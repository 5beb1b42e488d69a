"""How the tests see certificates.

A certificate is bound to a provider's files, so it stops fitting as soon as a kernel is edited.
Tests that aren't about certificates would then find every node refused; they run with the policy
off while the working tree's own certificates don't fit. Where they fit, as they must before a
change is accepted (`scripts/check_certificates.py`), the cross-package tests run as a user does,
under the default policy. The packages' own tests bring providers of their own, which have no
certificates.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


@cache
def misfit() -> str:
    """Why the certificates of the providers that are installed don't fit, or nothing."""
    from ep_core.certificates.grants import CertificatePolicy, grants_for
    from ep_core.discovery.options import parse_options
    from ep_core.discovery.registry import registry

    # Other providers' certificates are for devices that not every machine has.
    for name in {"cpu", "simulator"}.intersection(registry().available()):
        (info, distribution) = (registry().factory(name).info, registry().distribution(name))
        device = registry().status(name).devices[0]
        options = parse_options(info, {})
        grants = grants_for(info, distribution, device, options, CertificatePolicy.ENFORCE)
        if grants.certificate is None:
            return grants.reason
    return ""


def pytest_configure() -> None:
    """Choose the policy of the whole run, unless the environment says otherwise."""
    if misfit():
        os.environ.setdefault("EP_CERTIFICATE_POLICY", "off")


@pytest.fixture(autouse=True)
def _certificate_policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy of a package's own tests."""
    if not request.path.is_relative_to(ROOT / "tests"):
        monkeypatch.setenv("EP_CERTIFICATE_POLICY", "off")


def pytest_report_header() -> str:
    """Say so where the cross-package tests don't run under the default policy."""
    return f"certificate policy: off, as {reason}" if (reason := misfit()) else ""
