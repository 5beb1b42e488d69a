"""Artifacts: what a provider exports it takes back, and what isn't its own it refuses.

Bytes that were changed on the way aren't tried: the core keeps a digest of every artifact, so that
providers get theirs whole. Sessions with a cache are in `artifact_sessions.py`.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench, Probe, agree, run_once
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.lanes import open_lane
from ep_compliance.driving.runs import runs_of
from ep_compliance.driving.weighted import Weighted, find_weighted
from ep_core.contracts import CompiledPartition, ExecutionProvider, OptionSpec, Value
from ep_core.errors import CompileError
from ep_core.graph import Subgraph

__all__ = ["opened", "other_value", "out_of_the_way"]

_FOREIGN = (
    b"",
    b"\0",
    bytes(4096),
    b"\x7fELF\x02\x01\x01" + bytes(200),
    b'{"format": 1}',
    b"\xff" * 1000,
    b"PK\x03\x04 this is no artifact of anybody's",
)

_PATIENCE_SECONDS = 1.0
_WORDS = ("1", "0", "2", "true", "false", "on", "off")
"""What to try as another value of an option, before the words of its own texts."""


@contextlib.contextmanager
def opened(bench: Bench, **changes: Any) -> Iterator[ExecutionProvider]:
    """Open the provider, if it declares artifacts.

    Raises:
        NotClaimed: it doesn't.
    """
    with bench.open(**changes) as provider:
        if not provider.features.artifacts:
            raise NotClaimed("declares no artifacts")
        yield provider


def other_value(spec: OptionSpec) -> Any:
    """A value of an option other than its default, as a caller gives it; None if none is known."""
    try:
        spec.parse("no such value")
        said = ""
    except ValueError as error:
        said = str(error)
    for word in (*_WORDS, *re.findall(r"[\w.+-]+", f"{said} {spec.doc}")[:64]):
        try:
            if spec.parse(word) != spec.default:
                return word
        except ValueError:
            continue
    return None


@contextlib.contextmanager
def out_of_the_way() -> Iterator[None]:
    """Work in a folder that goes: a guessed word may be taken for a file to write."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        contextlib.chdir(folder),
    ):
        yield


# ---------------------------------------------------------------- out and in


@check("artifacts/round-trip")
def round_trip(bench: Bench) -> None:
    """Exports outlive their provider, and another one makes partitions of them that do the same."""
    with opened(bench) as provider:
        probe = find_weighted(provider).probe()
        with compiled(provider, probe.subgraph) as part:
            right = _run(provider, part, probe)
            artifacts = [_exported(provider, part), _exported(provider, part)]
            if not agree(provider, right, _run(provider, part, probe)):
                raise Broken("a partition gives other values after it was exported")
    for count, artifact in enumerate(artifacts, start=1):
        with (
            bench.open() as provider,
            _watched(provider, f"importing export {count}"),
            _imported(provider, probe.subgraph, artifact) as part,
        ):
            for values in _run_in_every_way(provider, part, probe):
                if not agree(provider, right, values):
                    raise Broken(f"a partition made of export {count} gives other values")


@check("artifacts/without-compiling")
def without_compiling(bench: Bench) -> None:
    """Importing does without the compiler: it works where that is told to fail."""
    with opened(bench) as provider:
        if not bench.declares("fail_compile"):
            raise NotClaimed("declares no option fail_compile")
        probe = find_weighted(provider).probe()
        right, artifact = _made(provider, probe)
    with (
        bench.open(fail_compile="always") as provider,
        _imported(provider, probe.subgraph, artifact) as part,
    ):
        if not agree(provider, right, _run(provider, part, probe)):
            raise Broken("a partition made of an artifact gives other values")


@check("artifacts/apart")
def apart(bench: Bench) -> None:
    """Artifacts of subgraphs that differ in weights or shapes alone keep to their own answers."""
    with opened(bench) as provider:
        first = find_weighted(provider)
        kinds = [
            first,
            replace(first, weights=2),
            replace(first, side=5),
            replace(first, weights=3),
        ]
        probes = [kind.probe() for kind in kinds]
        made = [_made(provider, probe) for probe in probes]
    for order in (range(len(kinds)), range(len(kinds) - 1, -1, -1)):
        with bench.open() as provider, contextlib.ExitStack() as stack:
            parts = {
                n: stack.enter_context(_imported(provider, probes[n].subgraph, made[n][1]))
                for n in order
            }
            for n, part in parts.items():
                if not agree(provider, made[n][0], _run(provider, part, probes[n])):
                    text = "an artifact gives the answers of another one of equal names"
                    raise Broken(f"{text}: {_difference(first, kinds[n])}")


def _difference(first: Weighted, other: Weighted) -> str:
    return "other shapes" if first.side != other.side else "other weights"


# ---------------------------------------------------------------- what isn't an artifact


@check("artifacts/refused")
def refused(bench: Bench) -> None:
    """What can't be an artifact raises CompileError, and costs nothing else."""
    with opened(bench) as provider:
        first = find_weighted(provider)
        probe = first.probe()
        right, artifact = _made(provider, probe)
        _, strange = _made(provider, replace(first, side=5).probe())
        with _watched(provider, "importing what is no artifact"):
            for data in _FOREIGN:
                if data != artifact and not _refuses(provider, probe, data, None):
                    raise Broken(f"takes {data[:20]!r} ({len(data)} bytes) for an artifact")
            for length in sorted({len(artifact) - 1, len(artifact) // 2, 16} - {-1}):
                if not _refuses(provider, probe, artifact[:length], right):
                    text = f"takes {length} of {len(artifact)} bytes for an artifact"
                    raise Broken(f"{text}, and gives other values")
            # The core never does this. Whatever comes of it, it is no other error.
            _refuses(provider, probe, strange, None)
        with _imported(provider, probe.subgraph, artifact) as part:
            if not agree(provider, right, _run(provider, part, probe)):
                raise Broken(
                    "after it was given what is no artifact, a good one gives other values"
                )
        with compiled(provider, probe.subgraph) as part:
            if not agree(provider, right, _run(provider, part, probe)):
                raise Broken("after it was given what is no artifact, compiling gives other values")


def _refuses(
    provider: ExecutionProvider, probe: Probe, data: bytes, right: Sequence[Value] | None
) -> bool:
    """True if importing raises CompileError, or gives `right` in spite of all."""
    try:
        part = provider.import_partition(probe.subgraph, data)
    except CompileError:
        return True
    except Exception as error:
        text = f"importing {len(data)} bytes that are no artifact raises {text_of(error)}"
        raise Broken(f"{text}, expected CompileError") from error
    with contextlib.closing(part):
        return right is not None and agree(provider, right, _run(provider, part, probe))


# ---------------------------------------------------------------- options


@check("artifacts/options")
def options(bench: Bench) -> None:
    """Artifacts don't depend on options that are declared so."""
    with opened(bench) as provider:
        probe = find_weighted(provider).probe()
        _, artifact = _made(provider, probe)
    tried = 0
    for name, spec in bench.factory.info.options.items():
        word = None if spec.artifacts or name in bench.options else other_value(spec)
        if word is None:
            continue
        tried += 1
        with out_of_the_way(), bench.open(**{name: word}) as provider:
            right = _answers(provider, probe, None)
            found = _answers(provider, probe, artifact)
            if right is not None and found is not None and not agree(provider, right, found):
                text = f"an artifact made without {name}={word} gives other values with it"
                raise Broken(f"{text}, though the option says that artifacts don't depend on it")
    if not tried:
        raise NotClaimed("every option counts for artifacts, or has no other value to be guessed")


def _answers(
    provider: ExecutionProvider, probe: Probe, artifact: bytes | None
) -> Sequence[Value] | None:
    """The answers of what is imported or compiled; None where an option makes that fail."""
    try:
        if artifact is None:
            part = provider.compile(probe.subgraph)
        else:
            part = provider.import_partition(probe.subgraph, artifact)
        with contextlib.closing(part):
            return _run(provider, part, probe)
    except Exception:  # noqa: BLE001 - other checks are about how it fails
        return None


# ---------------------------------------------------------------- one step at a time


def _made(provider: ExecutionProvider, probe: Probe) -> tuple[list[Value], bytes]:
    """The answers of a compiled subgraph, and its artifact."""
    with compiled(provider, probe.subgraph) as part:
        return _run(provider, part, probe), _exported(provider, part)


def _exported(provider: ExecutionProvider, part: CompiledPartition) -> bytes:
    with _watched(provider, "exporting a partition"):
        try:
            artifact = provider.export_partition(part)
        except Exception as error:
            raise Broken(f"export of a partition raises {text_of(error)}") from error
    if not isinstance(artifact, bytes):
        raise Broken(f"exports {type(artifact).__name__}, expected bytes")
    return artifact


@contextlib.contextmanager
def _imported(
    provider: ExecutionProvider, subgraph: Subgraph, artifact: bytes
) -> Iterator[CompiledPartition]:
    """Import an artifact of an equal subgraph as the core does; closed twice in the end."""
    given: Any = memoryview(artifact) if provider.features.maps_artifacts else artifact
    try:
        part = provider.import_partition(subgraph, given)
    except Exception as error:
        raise Broken(f"doesn't take back what it exported: {text_of(error)}") from error
    try:
        if len(part.accepts_outputs) != len(subgraph.outputs):
            raise Broken("accepts_outputs of an imported partition has the wrong length")
        yield part
    finally:
        part.close()
        part.close()


@contextlib.contextmanager
def _watched(provider: ExecutionProvider, doing: str) -> Iterator[None]:
    """Nothing that happens meanwhile may leave device memory in use."""
    before = _in_use(provider)
    yield
    # Memory may come back a little later, when a stream of the provider's own gets there.
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := _in_use(provider) - before) > 0:
        if time.monotonic() > deadline:
            raise Broken(f"{doing} leaves {left} bytes of device memory in use")
        time.sleep(0.01)


def _in_use(provider: ExecutionProvider) -> int:
    return 0 if provider.allocator is None else provider.allocator.stats().in_use_bytes


def _run(provider: ExecutionProvider, part: CompiledPartition, probe: Probe) -> list[Value]:
    return run_once(provider, part, probe.inputs, len(probe.subgraph.outputs))


def _run_in_every_way(
    provider: ExecutionProvider, part: CompiledPartition, probe: Probe
) -> list[list[Value]]:
    """The answers of runs that hold the partition to its contracts."""
    with contextlib.closing(open_lane(provider)) as lane:
        repeatable = provider.features.deterministic
        return runs_of(lane, part, probe.subgraph, probe.inputs, repeatable=repeatable).answers
