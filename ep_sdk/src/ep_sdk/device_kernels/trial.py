"""Timing one product on the device, for the choice of tiles."""

from __future__ import annotations

import math

import numpy as np

from ep_core.types import DataType
from ep_sdk.device_kernels.launch import Bench
from ep_sdk.device_kernels.product import Matrices, Packed, Product
from ep_sdk.device_kernels.tiles import Tile

__all__ = ["time_product"]

_ROWS, _COLUMNS, _DEPTH = 192, 384, 256
"""Multiples of every tile; about a tenth of a millisecond on a fast processor."""


def time_product(bench: Bench, tile: Tile) -> float:
    """Seconds that a product of 32-bit floats takes with a tile, the better of two runs."""
    stream = bench.host.create_stream()
    number = DataType.FLOAT
    product = Product(bench, number, number, number, number)
    panels = product.panel_shape(tile, _DEPTH, _COLUMNS, 1)
    try:
        with (
            bench.scratch(stream, (_ROWS, _DEPTH), number) as a,
            bench.scratch(stream, panels, number) as b,
            bench.scratch(stream, (_ROWS, _COLUMNS), number) as c,
        ):
            fill = bench.kernel("moving.cl", "fill", {"UNIT": "float", "RANK": 1, "MODE": 0})
            for buffer in (a, b):
                count = (math.prod(buffer.shape),)
                fill.launch(stream, count, None, [buffer.handle, np.float32(1)])
            found = []
            for _ in range(2):
                before = stream.mark()
                product.run(
                    stream,
                    Matrices(a, _DEPTH, 1),
                    Packed(b, tile),
                    c,
                    _ROWS,
                    _COLUMNS,
                    _DEPTH,
                )
                after = stream.mark()
                stream.synchronize()
                found.append(stream.host_time(after) - stream.host_time(before))
    finally:
        stream.close()
    return min(found) / 1e9
