"""Sessions with a cache folder: the second one imports, a changed model doesn't, nothing hurts."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ep_compliance.checks import check
from ep_compliance.checks.artifacts import opened, other_value, out_of_the_way
from ep_compliance.driving.bench import Bench
from ep_compliance.driving.cached_session import CachedSessions, Seen
from ep_compliance.driving.findings import Broken
from ep_compliance.driving.weighted import Weighted, find_weighted


@contextlib.contextmanager
def _ready(bench: Bench) -> Iterator[tuple[CachedSessions, Weighted, Path]]:
    """Sessions, a model that the provider claims, and a folder that doesn't exist yet."""
    with opened(bench) as provider:
        model = find_weighted(provider)
    with tempfile.TemporaryDirectory(prefix="ep-compliance-") as folder:
        yield CachedSessions(bench), model, Path(folder) / "cache"


def _expect_hit(sessions: CachedSessions, found: Seen, right: Seen, what: str) -> None:
    if not found.hit:
        raise Broken(f"{what} compiles instead of importing ({found.log})")
    if not sessions.same(found, right):
        raise Broken(f"{what} imports, and gives other values")


def _expect_miss(sessions: CachedSessions, found: Seen, right: Seen, what: str) -> None:
    if found.hit:
        raise Broken(f"{what} takes the artifact of another")
    if not sessions.same(found, right):
        raise Broken(f"{what} gives other values than without a cache")


@check("artifacts/session-hits")
def hits(bench: Bench) -> None:
    """The second session imports what the first compiled; a third in another process does too."""
    with _ready(bench) as (sessions, model, folder):
        right = sessions.see(None, model)
        _expect_miss(sessions, sessions.see(folder, model), right, "the first session")
        _expect_hit(sessions, sessions.see(folder, model), right, "the second session")
        elsewhere = sessions.see_elsewhere(folder, model)
        _expect_hit(sessions, elsewhere, right, "a session in another process")


@check("artifacts/session-misses")
def misses(bench: Bench) -> None:
    """Other weights, other shapes and other options compile; the first model still hits."""
    with _ready(bench) as (sessions, model, folder):
        right = sessions.see(folder, model)
        for other, what in (
            (replace(model, weights=2), "a model with other weights"),
            (replace(model, side=5), "a model with other shapes"),
        ):
            alone = sessions.see(None, other)
            _expect_miss(sessions, sessions.see(folder, other), alone, what)
        for name, spec in bench.factory.info.options.items():
            word = other_value(spec) if spec.artifacts and name not in bench.options else None
            if word is None:
                continue
            with out_of_the_way():
                try:
                    alone = sessions.see(None, model, **{name: word})
                except Broken:
                    continue  # The value is no good for running.
                what = f"a session with {name}={word}"
                _expect_miss(sessions, sessions.see(folder, model, **{name: word}), alone, what)
        _expect_hit(sessions, sessions.see(folder, model), right, "the first model, tried again")


@check("artifacts/session-folders")
def folders(bench: Bench) -> None:
    """Folders that can't be written to, and damaged files, cost no more than compiling."""
    with _ready(bench) as (sessions, model, folder):
        right = sessions.see(None, model)
        blocked = folder.parent / "blocked"
        blocked.write_bytes(b"a file")
        for path in (blocked, blocked / "below"):
            _expect_miss(sessions, sessions.see(path, model), right, "a session without a folder")
        folder.mkdir()
        folder.chmod(0o500)
        try:
            # The superuser may write there all the same.
            _expect_miss(sessions, sessions.see(folder, model), right, "a read-only folder")
        finally:
            folder.chmod(0o700)
        sessions.see(folder, model)
        for damage in (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"GIF8"):
            for path in folder.iterdir():
                path.write_bytes(damage(path.read_bytes()))
            _expect_miss(sessions, sessions.see(folder, model), right, "a damaged file")
            _expect_hit(sessions, sessions.see(folder, model), right, "a replaced file")
