"""Taking partitions from the cache, and putting them there, on behalf of one session."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import cast

from ep_core.artifacts.binding import provider_binding
from ep_core.artifacts.content import Digest, add_subgraph
from ep_core.artifacts.folder import FORMAT, ArtifactFolder
from ep_core.contracts import CompiledPartition
from ep_core.discovery.registry import registry
from ep_core.errors import CompileError, ContractError
from ep_core.graph import Subgraph
from ep_core.partition import Candidate

__all__ = ["ArtifactCache", "make_partition"]

_LOG = logging.getLogger("ep_core")


def make_partition(
    candidate: Candidate, subgraph: Subgraph, cache: ArtifactCache | None
) -> tuple[CompiledPartition, bool]:
    """Import a partition from the cache, or compile it; True if it came from the cache.

    Raises:
        ContractError: what was compiled doesn't fit the subgraph.
        whatever `compile` of the provider raises, and nothing else.
    """
    provider = candidate.provider
    slot = cache.slot(candidate, subgraph) if cache and provider.features.artifacts else None
    kept = slot.take() if slot is not None else None
    if kept is not None:
        return kept, True
    part = _checked(provider.compile(subgraph), subgraph)
    if slot is not None:
        slot.put(part)
    return part, False


class ArtifactCache:
    """The artifacts of one folder, as one session sees them.

    Args:
        folder: where the files are; made when the first one is written.
        max_bytes: the most that they may take together.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = ArtifactFolder(Path(folder), max_bytes)
        self._bindings: dict[str, list[str] | None] = {}

    def slot(self, candidate: Candidate, subgraph: Subgraph) -> _Slot | None:
        """The place of one artifact, or None where it can't be told from others."""
        if candidate.name not in self._bindings:
            self._bindings[candidate.name] = _binding(candidate)
        binding = self._bindings[candidate.name]
        if binding is None:
            return None
        try:
            digest = Digest()
            digest.add_text(f"ep-core artifact {FORMAT}", str(len(binding)), *binding)
            add_subgraph(digest, subgraph)
        except Exception as error:  # noqa: BLE001 - compiling will tell if it matters
            _LOG.info("an artifact of %r can't be looked up: %s", candidate.name, error)
            return None
        return _Slot(self._folder, digest.result(), candidate, subgraph)


class _Slot:
    """The place of one artifact. Whatever fails here costs no more than a compilation."""

    def __init__(
        self, folder: ArtifactFolder, key: bytes, candidate: Candidate, subgraph: Subgraph
    ) -> None:
        self._folder = folder
        self._key = key
        self._name = candidate.name
        self._provider = candidate.provider
        self._subgraph = subgraph

    def take(self) -> CompiledPartition | None:
        """Import the artifact, None if there is none that can be imported."""
        mapped = self._provider.features.maps_artifacts
        artifact = self._folder.read(self._key, mapped=mapped)
        if artifact is None:
            return None
        try:
            # Who declares `maps_artifacts` takes a view as well.
            part = self._provider.import_partition(self._subgraph, cast("bytes", artifact))
            return _checked(part, self._subgraph)
        except Exception as error:  # noqa: BLE001 - then it is compiled
            text = f"{type(error).__name__}: {error}"
            _LOG.warning("%r can't import an artifact and compiles: %s", self._name, text)
            return None

    def put(self, part: CompiledPartition) -> None:
        """Export a partition and keep the artifact."""
        try:
            artifact = self._provider.export_partition(part)
            if not isinstance(artifact, bytes):
                raise ContractError("an artifact", expected="bytes", got=type(artifact).__name__)
        except Exception as error:  # noqa: BLE001 - the partition itself is good
            # That a partition can't be exported is something a provider may say.
            level = logging.INFO if isinstance(error, CompileError) else logging.WARNING
            text = f"{type(error).__name__}: {error}"
            _LOG.log(level, "%r exports no artifact: %s", self._name, text)
            return
        self._folder.write(self._key, artifact)


def _checked(part: CompiledPartition, subgraph: Subgraph) -> CompiledPartition:
    """The partition itself if it fits the subgraph; otherwise it is closed."""
    try:
        accepts = len(part.accepts_outputs)
        if accepts != len(subgraph.outputs):
            raise ContractError(
                "accepts_outputs of the compiled partition",
                expected=f"{len(subgraph.outputs)} entries, one per output",
                got=accepts,
            )
    except BaseException:
        with contextlib.suppress(Exception):
            part.close()
        raise
    return part


def _binding(candidate: Candidate) -> list[str] | None:
    try:
        distribution = registry().distribution(candidate.info.name)
        return provider_binding(candidate.provider, distribution, candidate.options)
    except Exception as error:  # noqa: BLE001 - metadata and options are foreign
        _LOG.info("artifacts of %r aren't kept: %s", candidate.name, error)
        return None
