"""The worker process: opens the provider once and does one job after the other.

Started by `keeper.py` with a command line of its own, never through the user's `__main__`. Jobs
come in on its standard input; answers go out as lines of JSON on what was its standard output.
Whatever the provider prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import struct
import sys
import time
import warnings
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from ep_compliance.cases.case import Case
from ep_compliance.checks import all_checks
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.findings import text_of
from ep_compliance.oracle.overrides import Override
from ep_compliance.running.footprint import peak_bytes
from ep_compliance.running.judging import Judgement, declared_numerics, judge_case
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_core.contracts import ExecutionProvider
from ep_core.discovery.options import parse_options, select_device
from ep_core.discovery.registry import registry

__all__ = ["main", "read_frame", "write_frame"]

_LENGTH = struct.Struct("<Q")


Frame = tuple[Case | str, Override | None]
"""A case, with its override if it has one, or the id of a check."""


def write_frame(stream: IO[bytes], job: Case | str, override: Override | None = None) -> None:
    """Send a job."""
    data = pickle.dumps((job, override), protocol=5)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Receive what `write_frame` sent; None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    frame: Frame = pickle.loads(stream.read(_LENGTH.unpack(head)[0]))
    return frame


def main(request: Mapping[str, Any]) -> NoReturn:
    """Do jobs until there are none; ends the process without any clean-up."""
    _forbid_core_dumps()
    jobs = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    # The provider must neither eat our jobs nor write between our answers.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device, not a path of a file
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    _load_reference()
    worker = _Worker(request)
    problem = worker.open()
    print(
        json.dumps({"ready": not problem, "reason": problem, "numerics": worker.numerics}),
        file=answers,
    )
    while not problem and (frame := read_frame(jobs)) is not None:
        print(json.dumps(worker.do(*frame)), file=answers)
    os._exit(0)


class _Worker:
    """The provider under test and what is done with it.

    Attributes:
        numerics: what it declares about its arithmetic, as JSON data.
    """

    numerics: Mapping[str, bool]

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._provider: ExecutionProvider | None = None
        self.numerics = {}

    def open(self) -> str:
        """Find and open the provider; returns why that can't be done, or nothing."""
        try:
            name = self._request["provider"]
            # As in a session: providers that nobody needs to name are there, with their schemas.
            registry().automatic()
            factory = registry().factory(name)
            wanted = {"device_id": self._request["device"]} if self._request["device"] else {}
            device, _ = select_device(factory.info, registry().status(name).devices, wanted)
            self._bench = Bench(factory, device, dict(self._request["options"]))
            self.numerics = dataclasses.asdict(declared_numerics(self._reopen()))
        except Exception as error:  # noqa: BLE001 - told to the runner
            return text_of(error)
        return ""

    def do(self, job: Case | str, override: Override | None) -> dict[str, Any]:
        """Do one job; afterwards a fresh provider is ready for the next one."""
        began = time.perf_counter()
        if isinstance(job, str):
            judgement = Judgement(*all_checks()[job].judge(self._bench))
        else:
            assert self._provider is not None
            judgement = _judged(job, self._provider, override)
        verdict = _verdict(job, judgement, time.perf_counter() - began)
        fit = True
        if judgement.outcome is Outcome.FAIL:
            # What broke this case must not break the next one.
            try:
                self._reopen()
            except Exception:  # noqa: BLE001 - the runner starts another worker
                fit = False
        return {"verdict": verdict.record, "fit": fit}

    def _reopen(self) -> ExecutionProvider:
        if self._provider is not None:
            with contextlib.suppress(Exception):
                self._provider.close()
        bench = self._bench
        parsed = parse_options(bench.factory.info, bench.options)
        self._provider = bench.factory.create(bench.device, parsed)
        return self._provider


def _judged(case: Case, provider: ExecutionProvider, override: Override | None) -> Judgement:
    try:
        return judge_case(case, provider, override)
    except Exception as error:  # noqa: BLE001 - one case must not end the run
        return Judgement(Outcome.QUARANTINED, f"the kit fails on this case: {text_of(error)}")


def _verdict(job: Case | str, judgement: Judgement, seconds: float) -> Verdict:
    return Verdict(
        job if isinstance(job, str) else job.id,
        judgement.outcome,
        judgement.reason,
        round(seconds, 6),
        judgement.overridden,
        _to_nanoseconds(judgement.run_seconds),
        _to_nanoseconds(judgement.predicted_seconds),
        peak_bytes(),
    )


def _to_nanoseconds(seconds: float | None) -> float | None:
    """Rounded, as further digits mean nothing and cost room."""
    return None if seconds is None else round(seconds, 9)


def _load_reference() -> None:
    """Let onnx's reference evaluator build its table of operators.

    It can't once a provider has registered a schema whose name exists in another domain.
    """
    from onnx.reference.ops import load_op

    load_op("", "Relu")


def _forbid_core_dumps() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
