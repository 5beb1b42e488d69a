"""What a run consists of: jobs, and the hash that tells one set of jobs from another."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ep_compliance.cases.case import Case, Level
from ep_compliance.checks import Check

__all__ = ["Job", "Target", "command_for", "is_must_pass", "jobs_hash"]

Job = Case | Check


@dataclass(frozen=True, slots=True)
class Target:
    """What is put to the test: an installed provider, one device, options as a caller has them."""

    provider: str
    device: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def is_must_pass(job: Job) -> bool:
    """True if no waiver may cover the job."""
    return job.must_pass if isinstance(job, Check) else job.level is Level.MUSTPASS


def command_for(target: Target, job: Job) -> str:
    """The command line that repeats a job."""
    words = ["ep", "certify", target.provider]
    words += ["--device", target.device] if target.device else []
    for key, value in target.options.items():
        words += ["--option", f"{key}={value}"]
    words += ["--level", "soak"] if job.level is Level.SOAK else []
    return shlex.join([*words, "--only", job.id])


def jobs_hash(jobs: Iterable[Job]) -> str:
    """Return `sha256:...` over ids, models, inputs and expected outputs, in order of ids.

    It is the same on every machine: of values that are computed when a case is collected only who
    computes them counts.
    """
    digest = hashlib.sha256()
    for job in sorted(jobs, key=lambda job: job.id):
        digest.update(f"{type(job).__name__} {job.id}\0".encode())
        if isinstance(job, Case):
            digest.update(job.model.SerializeToString(deterministic=True))
            for value in (*_values(job), job.draws, int(job.level)):
                _update(digest, value)
    return f"sha256:{digest.hexdigest()}"


def _values(case: Case) -> tuple[Any, ...]:
    if case.made_by:
        return (case.made_by,)
    recorded = case.recorded
    judged = () if recorded is None else (recorded.source, list(recorded.spreads))
    return (dict(case.inputs), case.expected, *judged)


def _update(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value):
            digest.update(f"{key}\0".encode())
            _update(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        text = value.dtype.hasobject
        digest.update(repr(value.tolist()).encode() if text else value.tobytes())
    else:
        digest.update(f"{value!r}\0".encode())
