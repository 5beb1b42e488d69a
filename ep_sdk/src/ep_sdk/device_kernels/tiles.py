"""Tiles of the product kernels: how much of the result one work-item keeps in registers.

Which tile is fastest depends on registers, caches and the driver's compiler. So a few are timed,
once for a device and driver, and the fastest is remembered in the user's cache folder. Sums are
added up in the same order with every tile: the choice changes times and no bit of a result.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ep_core.discovery.verdicts import cache_folder, write_atomically
from ep_core.errors import EpError

__all__ = ["Tile", "TileChooser", "usual_tile"]

_LARGE = 64
"""Rows and columns from which a product is large enough for the tile to matter."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile.

    Attributes:
        rows: rows of the result.
        vectors: vectors side by side in a row.
        width: elements of a vector.
    """

    rows: int
    vectors: int
    width: int

    @property
    def panel(self) -> int:
        """Columns of the result."""
        return self.vectors * self.width


_WORTHWHILE = 0.95
"""Part of the usual tile's time below which another one is taken."""

_CANDIDATES = {
    16: ((8, 2), (6, 4), (8, 3), (4, 4)),
    8: ((4, 2), (6, 2), (4, 3), (8, 1)),
    4: ((4, 2), (8, 1), (4, 4)),
}
"""Rows and vectors by width: what fits into 32 registers of 16 floats, or 16 narrower ones."""


def usual_tile(width: int, rows: int, columns: int) -> Tile:
    """The tile for a product, without having timed any.

    With 32 registers 8 x 2 vectors keep the multiply-add units busy; with 16, which devices with
    vectors of 8 floats have, 4 x 2 fit. Fewer rows or columns than that are not worth computing
    in vain.
    """
    tall = 8 if width >= 16 else 4
    while tall > 1 and tall // 2 >= rows:
        tall //= 2
    return Tile(tall, 1 if columns <= width else 2, width)


class TileChooser:
    """Chooses tiles for one device. Safe on many threads.

    Args:
        fingerprint: device and driver.
        provider: name of the folder in the user's cache folder.
    """

    def __init__(self, fingerprint: str, provider: str) -> None:
        self._fingerprint = fingerprint
        self._provider = provider
        self._lock = threading.Lock()
        self._fastest: dict[int, Tile] = {}

    def choose(
        self, width: int, rows: int, columns: int, measure: Callable[[Tile], float] | None
    ) -> Tile:
        """The tile for a product.

        Args:
            width: elements of a vector.
            rows, columns: of the result.
            measure: seconds of a product of 32-bit floats with a tile; None to time nothing.
        """
        if measure is None or width not in _CANDIDATES or min(rows, columns) < _LARGE:
            return usual_tile(width, rows, columns)
        with self._lock:
            if width not in self._fastest:
                self._fastest[width] = self._remembered(width) or self._timed(width, measure)
            return self._fastest[width]

    def _timed(self, width: int, measure: Callable[[Tile], float]) -> Tile:
        tiles = [Tile(rows, vectors, width) for rows, vectors in _CANDIDATES[width]]
        try:
            fastest = _fastest(tiles, measure)
        except EpError:
            # A product that can't be timed will say why when it is run.
            return usual_tile(width, _LARGE, _LARGE)
        self._remember(fastest)
        return fastest

    def _path(self, width: int) -> Path | None:
        key = hashlib.sha256(f"{self._fingerprint}\0{width}\0{_CANDIDATES[width]}".encode())
        try:
            return cache_folder() / self._provider / "tiles" / f"{key.hexdigest()[:32]}.json"
        except RuntimeError:
            # No home folder, so nothing is kept.
            return None

    def _remembered(self, width: int) -> Tile | None:
        path = self._path(width)
        try:
            numbers = json.loads(path.read_text(encoding="utf-8")) if path is not None else None
            tile = Tile(*numbers) if isinstance(numbers, list) else None
        except (OSError, ValueError, TypeError):
            return None
        known = tile is not None and (tile.rows, tile.vectors) in _CANDIDATES[width]
        return tile if known else None

    def _remember(self, tile: Tile) -> None:
        path = self._path(tile.width)
        if path is None:
            return
        try:
            write_atomically(path, json.dumps(astuple(tile)).encode())
        except OSError:
            # A cache that can't be written only costs time.
            return


def _fastest(tiles: Sequence[Tile], measure: Callable[[Tile], float]) -> Tile:
    """In turns, so that a busy moment of the machine doesn't hit one tile alone.

    The first is the usual one; another has to be faster by more than such moments explain.
    """
    best = dict.fromkeys(tiles, float("inf"))
    for _ in range(3):
        for tile in tiles:
            best[tile] = min(best[tile], measure(tile))
    fastest = min(tiles, key=lambda tile: best[tile])
    return fastest if best[fastest] < _WORTHWHILE * best[tiles[0]] else tiles[0]
