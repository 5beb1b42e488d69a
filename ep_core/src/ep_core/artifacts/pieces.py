"""A digest of much data, worked out by several processors."""

from __future__ import annotations

import hashlib

from ep_core.cores import map_in_threads

__all__ = ["digest_of"]

_PIECE_BYTES = 2**22


def digest_of(data: bytes | memoryview) -> bytes:
    """The SHA-256 over the SHA-256 of every 4 MiB, 32 bytes."""
    view = memoryview(data)
    pieces = [view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES)]
    return hashlib.sha256(b"".join(map_in_threads(_sha256, pieces))).digest()


def _sha256(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()
