"""Failing cases on disk, one folder each, so that somebody else can look into them.

A folder is laid out as onnx's own backend tests are: `model.onnx` and `test_data_set_0` with
`input_0.pb`, `output_0.pb` and so on, which hold tensors of every type, sequences, maps and
optionals. `reason.txt` says what went wrong and how to see it again; `minimal` is a folder of the
same kind with a smaller case that fails in the same way, for the first few cases that have one.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ep_compliance.cases.case import Case
from ep_compliance.errors import ReportError
from ep_compliance.oracle.answers import answer
from ep_compliance.reports.protos import proto_of
from ep_compliance.running.jobs import Target, command_for
from ep_compliance.running.outcomes import Verdict
from ep_compliance.running.results import Results
from ep_compliance.running.shrink import Budget, Shrunk, manner, shrink, shrinks
from ep_compliance.running.trials import trials

__all__ = ["FOLDER", "MOST_FAILURES", "folder_name", "save_failures", "shrink_failures"]

FOLDER = "failures"
"""Name of the folder inside that of the reports."""

MOST_FAILURES = 50
"""More cases are not saved; they rarely tell more, and can be run again by their ids."""

_MOST_SHRUNK = 3
_TRY_SECONDS = 10.0
"""Time limit of a case while shrinking; what takes longer counts as a hang."""

_OWN_NAME = re.compile(r".+-[0-9a-f]{8}")
_TEXT = "reason.txt"


@dataclass(frozen=True, slots=True)
class _Failure:
    case: Case
    verdict: Verdict
    shrunk: Shrunk | None


def folder_name(case_id: str) -> str:
    """A name that every file system takes, different for different ids also without case."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", case_id)[:80].strip("._")
    return f"{readable}-{zlib.crc32(case_id.encode()):08x}"


def shrink_failures(results: Results, budget: Budget | None = None) -> Mapping[str, Shrunk]:
    """Make the first few failing graphs of several nodes smaller, one for each way to fail.

    Takes a minute for each of them at most, unless the budget says otherwise.

    Returns:
        what was found, by case id.
    """
    first: dict[str, tuple[Case, Verdict]] = {}
    for case, verdict in _failing(results):
        if shrinks(case):
            first.setdefault(manner(verdict), (case, verdict))
    found = {}
    for case, verdict in list(first.values())[:_MOST_SHRUNK]:
        with trials(results.target, _TRY_SECONDS) as judge:
            found[case.id] = shrink(case, verdict, judge, budget)
    return found


def save_failures(
    results: Results, folder: Path, shrunk: Mapping[str, Shrunk] | None = None
) -> dict[str, list[str]]:
    """Write the failing cases of a run into a folder, in place of those of an earlier run.

    Args:
        folder: where the reports are.
        shrunk: smaller cases by case id, see `shrink_failures`.

    Returns:
        The files of each case by its id, relative to `folder`, with slashes.

    Raises:
        ReportError: the folder can't be written to.
    """
    shrunk = shrunk or {}
    base = folder / FOLDER
    try:
        _forget(base)
        saved = {}
        for case, verdict in _failing(results)[:MOST_FAILURES]:
            failure = _Failure(case, verdict, shrunk.get(case.id))
            path = base / folder_name(case.id)
            _save(failure, results.target, path)
            files = sorted(file for file in path.rglob("*") if file.is_file())
            saved[case.id] = [file.relative_to(folder).as_posix() for file in files]
    except OSError as error:
        raise ReportError(
            f"failing cases can't be written into {base}",
            got=str(error),
            fix="Name another folder with --out.",
        ) from error
    return saved


def _failing(results: Results) -> list[tuple[Case, Verdict]]:
    return [(job, verdict) for job, verdict in results.failures if isinstance(job, Case)]


def _forget(base: Path) -> None:
    """Remove what an earlier run has left; nothing that isn't ours."""
    for path in sorted(base.glob("*")) if base.is_dir() else ():
        if _OWN_NAME.fullmatch(path.name) and (path / _TEXT).is_file():
            shutil.rmtree(path)
    if base.is_dir() and not any(base.iterdir()):
        base.rmdir()


def _save(failure: _Failure, target: Target, path: Path) -> None:
    """Write one folder, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as draft:
        whole = Path(draft) / path.name
        source = _write_case(failure.case, whole)
        if _is_smaller(failure):
            assert failure.shrunk is not None
            _write_case(failure.shrunk.case, whole / "minimal")
        text = _text(failure, target, source)
        (whole / _TEXT).write_text(text, encoding="utf-8")
        os.replace(whole, path)  # noqa: PTH105 - Path.replace says nothing of folders


def _is_smaller(failure: _Failure) -> bool:
    shrunk = failure.shrunk
    return shrunk is not None and shrunk.case is not failure.case


def _write_case(case: Case, path: Path) -> str:
    """Write model and data; returns who says what is right."""
    data = path / "test_data_set_0"
    data.mkdir(parents=True)
    (path / "model.onnx").write_bytes(case.model.SerializeToString(deterministic=True))
    names = [info.name for info in case.model.graph.input if info.name in case.inputs]
    right = answer(case, cross_check=False)
    _write_values(data, "input", names, [case.inputs[name] for name in names])
    outputs = [info.name for info in case.model.graph.output]
    _write_values(data, "output", outputs[: len(right.expected)], right.expected)
    return right.quarantine_reason or right.source


def _write_values(folder: Path, kind: str, names: Sequence[str], values: Sequence[Any]) -> None:
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        data = proto_of(value, name).SerializeToString(deterministic=True)
        (folder / f"{kind}_{place}.pb").write_bytes(data)


def _text(failure: _Failure, target: Target, source: str) -> str:
    case, verdict = failure.case, failure.verdict
    lines = [
        f"{verdict.outcome.name} {case.id}",
        "",
        verdict.reason,
        "",
        f"provider:  {target.provider}{f', device {target.device}' if target.device else ''}",
        *(f"option:    {key}={value}" for key, value in target.options.items()),
        f"expected:  by {source}",
        f"to repeat: {command_for(target, case)}",
    ]
    if _is_smaller(failure):
        assert failure.shrunk is not None
        count = len(failure.shrunk.case.model.graph.node)
        before = len(case.model.graph.node)
        lines += ["", f"minimal fails in the same way with {count} of {before} nodes:"]
        lines += ["", failure.shrunk.verdict.reason]
    elif failure.shrunk is not None and not failure.shrunk.repeated:
        lines += ["", "Judged a second time by itself it did not fail in the same way."]
    return "\n".join(lines) + "\n"
