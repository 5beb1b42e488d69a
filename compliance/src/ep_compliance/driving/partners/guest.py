"""A provider as it takes part in a session of the kit: claims narrowed, copies counted.

Everything else is passed on as it is. A narrower claim is one that the provider might have been
left with anyway, by preference, pins or certificates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ep_compliance.driving.drive import ask
from ep_compliance.driving.findings import Broken, text_of
from ep_core.contracts import (
    Buffer,
    Capability,
    DataTransfer,
    ExecutionProvider,
    HostArray,
    ProviderFeatures,
    ProviderInfo,
    Stream,
    Support,
)
from ep_core.forwarding import ForwardingProvider
from ep_core.graph import Graph
from ep_core.types import HOST_MEMORY, MemoryInfo

__all__ = ["Copied", "Guest"]

_PATIENCE_SECONDS = 1.0


class Copied(NamedTuple):
    """One copy that a provider's data transfer was asked for."""

    source: str
    target: str
    nbytes: int


class Guest(ForwardingProvider):
    """Meets `ep_core.contracts.ExecutionProvider` around another one.

    Args:
        prefix: how names of nodes begin that it may claim.
        rivals: it claims nothing that one of these claims, so that there is one choice only.

    Attributes:
        copies: what its data transfer is asked for is noted here; None to note nothing.
        refused: why it doesn't claim what is meant for it, by node.
        problem: what was wrong with its claims or when it was closed, or nothing.
    """

    def __init__(
        self,
        provider: ExecutionProvider,
        info: ProviderInfo,
        prefix: str,
        rivals: Sequence[Guest] = (),
    ) -> None:
        super().__init__(provider)
        self._info = info
        self._prefix = prefix
        self._rivals = rivals
        self._closed = False
        self._start = self.in_use_bytes()
        self.copies: list[Copied] | None = None
        self.refused: dict[str, str] = {}
        self.problem = ""
        transfer = provider.data_transfer
        self._transfer = None if transfer is None else _Counting(transfer, self)

    @property
    def info(self) -> ProviderInfo:
        """Who it is in the session."""
        return self._info

    @property
    def features(self) -> ProviderFeatures:
        """What the provider declares; artifacts aren't asked of a guest."""
        return replace(self.inner.features, artifacts=False)

    @property
    def data_transfer(self) -> DataTransfer | None:
        """The provider's data transfer, counted."""
        return self._transfer

    def get_capability(self, graph: Graph) -> Capability:
        """The provider's answer, with a no where the node isn't meant for it.

        Raises:
            Broken: the provider breaks its contract, which is noted as the problem too.
        """
        try:
            answer = ask(self.inner, graph)
            if answer != ask(self.inner, graph):
                raise Broken(f"get_capability is impure: asked twice about {graph.name!r}")
        except Broken as finding:
            self.problem = str(finding)
            raise
        answers = [rival.get_capability(graph) for rival in self._rivals]
        taken = {at for answer in answers for at, s in enumerate(answer.nodes) if s.supported}
        return Capability(
            tuple(
                self._support(node.name, support, at in taken)
                for at, (node, support) in enumerate(zip(graph.nodes, answer.nodes, strict=True))
            )
        )

    def in_use_bytes(self) -> int:
        """Device memory in use, 0 for a provider in host memory."""
        allocator = self.inner.allocator
        return 0 if allocator is None else allocator.stats().in_use_bytes

    def settled_bytes(self, start: int) -> int:
        """Device memory in use above `start`, once streams have had time to get to releases."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (left := self.in_use_bytes()) > start and time.monotonic() < deadline:
            time.sleep(0.001)
        return left - start

    def close(self) -> None:
        """Close the provider; the core has closed its partitions and streams before."""
        if not self._closed and (left := self.settled_bytes(self._start)) > 0:
            self.problem = f"{left} bytes of device memory stay in use when all else is closed"
        self._closed = True
        try:
            self.inner.close()
        except Exception as error:
            # The core closes on; here it counts.
            self.problem = self.problem or f"close of the provider raises {text_of(error)}"
            raise

    def _support(self, node: str, support: Support, taken: bool) -> Support:
        if taken or not node.startswith(self._prefix):
            return Support(False, "meant for another")
        if not support.supported:
            self.refused[node] = support.reason
        return support


class _Counting:
    """Meets `ep_core.contracts.DataTransfer`, and notes every copy."""

    def __init__(self, transfer: DataTransfer, guest: Guest) -> None:
        self._transfer = transfer
        self._guest = guest

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """What the provider says."""
        return self._transfer.can_copy(source, target)

    def copy(
        self, source: Buffer | HostArray, target: Buffer | HostArray, stream: Stream | None
    ) -> None:
        """Note the copy, then let the provider do it."""
        if self._guest.copies is not None:
            self._guest.copies.append(Copied(_where(source), _where(target), source.nbytes))
        self._transfer.copy(source, target, stream)


def _where(side: Buffer | HostArray) -> str:
    return str(HOST_MEMORY if isinstance(side, np.ndarray) else side.memory)
