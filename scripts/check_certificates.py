"""Holds the certificates in this repository fresh.

Each was made for the provider's files as they are, by a full run of the cases as they are.
Providers that run anywhere have at least one, which fits the device that is here as well.
`make certify` renews them.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution

from ep_compliance.cases.case import Level
from ep_compliance.running.collection import collect_jobs
from ep_compliance.running.jobs import jobs_hash
from ep_core.certificates.file import Certificate, read_certificate
from ep_core.certificates.lookup import misfit_of, shipped_certificates
from ep_core.discovery.registry import registry
from ep_core.types import DeviceInfo

ANYWHERE = ("cpu", "simulator")
ELSEWHERE = ("opencl", "openvino")
"""Providers of devices that needn't be here; what they compute may depend on the processor."""


def problems_of(provider: str, cases_hash: str) -> list[str]:
    """What isn't fresh about a provider's certificates."""
    distribution = registry().distribution(provider)
    if distribution is None:
        return ["its distribution isn't installed"]
    found = [
        (path.name, certificate)
        for path in shipped_certificates(distribution)
        if (certificate := read_certificate(path)).provider == provider
    ]
    told = [(name, problem_of(made, distribution, provider, cases_hash)) for name, made in found]
    problems = [f"{name}: {problem}" for name, problem in told if problem]
    if provider in ANYWHERE:
        here = registry().status(provider).devices[0].fingerprint
        if here not in [certificate.device_fingerprint for _, certificate in found]:
            problems.append(f"there is none for this machine ({here})")
    return problems


def problem_of(
    certificate: Certificate, distribution: Distribution, provider: str, cases_hash: str
) -> str:
    """Why a certificate isn't fresh, or nothing."""
    device = DeviceInfo(provider, "0", "any", fingerprint=certificate.device_fingerprint)
    misfit = misfit_of(certificate, distribution, device, certificate.options)
    if misfit:
        return misfit
    if certificate.level != Level.FULL.name.lower():
        return f"it was made by a run of level {certificate.level!r}, not 'full'"
    if certificate.cases_hash != cases_hash:
        return "the kit's cases have changed since it was made"
    return ""


def main() -> int:
    """Print what is stale; the exit code says whether anything is."""
    # Before any provider is loaded; see collect_jobs.
    cases_hash = jobs_hash(collect_jobs(Level.FULL))
    stale = False
    for provider in (*ANYWHERE, *ELSEWHERE):
        problems = problems_of(provider, cases_hash)
        stale |= bool(problems)
        sys.stdout.write(f"certificates of {provider}: {'; '.join(problems) or 'fresh'}\n")
    if stale:
        sys.stdout.write("`make certify` renews certificates\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
