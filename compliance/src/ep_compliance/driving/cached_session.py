"""Sessions of the provider under test alone, with a cache folder, here or in another process.

The core keeps artifacts of installed providers only, so these sessions find the provider through
the registry, as an application does. Judging stays with the checks.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ep_compliance.driving.bench import Bench
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.values import same_bits
from ep_compliance.driving.weighted import Weighted
from ep_core.certificates.grants import CertificatePolicy
from ep_core.contracts import Value
from ep_core.discovery.registry import registry
from ep_core.errors import EpError
from ep_core.levels import GraphOptimizationLevel
from ep_core.options import SessionOptions
from ep_core.session import InferenceSession
from ep_core.types import DataType

__all__ = ["CachedSessions", "Seen", "other_process"]

_LIMIT_SECONDS = 120
_BOOT = (
    "import json, sys; request = json.loads(sys.argv[1]); sys.path[:] = request['path'];"
    "from ep_compliance.driving.cached_session import other_process; other_process(request)"
)


@dataclass(frozen=True)
class Seen:
    """What came of one session and one run.

    Attributes:
        hit: every partition came from the cache; False if none did.
        outputs: of the run.
        log: what the core said meanwhile, on one line.
    """

    hit: bool
    outputs: list[Value]
    log: str


class CachedSessions:
    """Opens sessions on the provider under test.

    Raises:
        NotClaimed: it isn't what is installed under its name.
    """

    def __init__(self, bench: Bench) -> None:
        name = bench.factory.info.name
        if not _is_installed(bench):
            raise NotClaimed(f"{name!r} isn't installed, and the core keeps no artifacts then")
        options = dict(bench.options)
        if "device_id" not in bench.factory.info.options:
            options["device_id"] = bench.device.id
        self._name = name
        self._options = options
        self._deterministic = True
        with bench.open() as provider:
            self._deterministic = provider.features.deterministic

    def see(self, folder: Path | None, model: Weighted, **options: Any) -> Seen:
        """Open a session and run it once.

        Raises:
            Broken: it can't be opened or run, or some partitions hit and others don't.
        """
        request = self._request(folder, model, options)
        try:
            return _see(request, model)
        except EpError as error:
            raise Broken(f"a session with a cache folder fails: {text_of(error)}") from error

    def see_elsewhere(self, folder: Path, model: Weighted) -> Seen:
        """The same in a process of its own; its log stays there."""
        request = {**self._request(folder, model, {}), "path": sys.path}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _BOOT, json.dumps(request)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Broken(f"a second process hangs for {_LIMIT_SECONDS} s") from None
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()[-500:]
            raise Broken(f"a second process ends with {done.returncode}: {words}")
        answer = Path(request["answer"])
        with np.load(answer) as found:
            return Seen(bool(found["hit"]), [found["y"]], "")

    def same(self, a: Seen, b: Seen) -> bool:
        """True if two runs agree: bit by bit if the provider is deterministic, else nearly."""
        if self._deterministic:
            return all(map(same_bits, a.outputs, b.outputs))
        pairs = zip(a.outputs, b.outputs, strict=True)
        return all(np.allclose(x, y, rtol=1e-2, atol=1e-3) for x, y in pairs)

    def _request(
        self, folder: Path | None, model: Weighted, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "provider": self._name,
            "options": {**self._options, **changes},
            "folder": None if folder is None else str(folder),
            "model": [model.operator, model.dtype.value, model.weights, model.side],
            "answer": "" if folder is None else str(folder.parent / "answer.npz"),
        }


def other_process(request: Mapping[str, Any]) -> None:
    """What the other process does: open, run, and leave the answer in a file."""
    operator, dtype, weights, side = request["model"]
    seen = _see(request, Weighted(operator, DataType(dtype), weights, side))
    np.savez(request["answer"], hit=np.array(seen.hit), y=seen.outputs[0])


def _see(request: Mapping[str, Any], model: Weighted) -> Seen:
    options = SessionOptions()
    options.certificate_policy = CertificatePolicy.OFF
    options.disable_cpu_fallback = True
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.cache_dir = request["folder"]
    providers = [(request["provider"], request["options"])]
    listener = _Listener()
    logger = logging.getLogger("ep_core")
    logger.addHandler(listener)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with InferenceSession(model.model(), options, providers) as session:
            hits = {part.from_cache for part in session.get_placement().partitions}
            outputs = session.run(None, {"x": model.probe().inputs[0]})
    finally:
        logger.setLevel(level)
        logger.removeHandler(listener)
    if len(hits) != 1:
        raise Broken("one model of two nodes is split, and only a part of it is kept")
    return Seen(hits.pop(), outputs, "; ".join(listener.lines))


class _Listener(logging.Handler):
    """Remembers what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remember one line."""
        self.lines.append(record.getMessage())


def _is_installed(bench: Bench) -> bool:
    name = bench.factory.info.name
    try:
        found = registry().factory(name) is bench.factory
    except EpError:
        return False
    return found and registry().distribution(name) is not None
