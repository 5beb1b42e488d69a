"""Holds the certificates in this repository fresh.

Each provider that runs on any machine has one that fits its files as they are, made by a full run
of the cases as they are. `make certify` renews them.
"""

from __future__ import annotations

import sys

from ep_compliance.cases.case import Level
from ep_compliance.running.collection import collect_jobs
from ep_compliance.running.jobs import jobs_hash
from ep_core.certificates.grants import CertificatePolicy, grants_for
from ep_core.discovery.options import parse_options
from ep_core.discovery.registry import registry

PROVIDERS = ("cpu", "simulator")


def problem_of(provider: str, cases_hash: str) -> str:
    """Why a provider's certificate isn't fresh, or nothing."""
    factory = registry().factory(provider)
    device = registry().status(provider).devices[0]
    distribution = registry().distribution(provider)
    options = parse_options(factory.info, {})
    grants = grants_for(factory.info, distribution, device, options, CertificatePolicy.ENFORCE)
    found = grants.certificate
    if found is None:
        return grants.reason
    if found.level != Level.FULL.name.lower():
        return f"it was made by a run of level {found.level!r}, not 'full'"
    if found.cases_hash != cases_hash:
        return "the kit's cases have changed since it was made"
    return ""


def main() -> int:
    """Print what is stale; the exit code says whether anything is."""
    # Before any provider is loaded; see collect_jobs.
    cases_hash = jobs_hash(collect_jobs(Level.FULL))
    problems = {name: problem_of(name, cases_hash) for name in PROVIDERS}
    for name, problem in problems.items():
        sys.stdout.write(f"certificate of {name}: {problem or 'fresh'}\n")
    stale = any(problems.values())
    if stale:
        sys.stdout.write("`make certify` renews certificates\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
