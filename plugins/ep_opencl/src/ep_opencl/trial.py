"""Timing one product on the device, for the choice of tiles."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from ep_core.types import DataType
from ep_opencl.failures import explained
from ep_opencl.launch import Bench
from ep_opencl.product import Matrices, Packed, Product
from ep_opencl.stream import OpenCLStream
from ep_opencl.tiles import Tile

__all__ = ["time_product"]

_ROWS, _COLUMNS, _DEPTH = 192, 384, 256
"""Multiples of every tile; about a tenth of a millisecond on a fast processor."""


def time_product(bench: Bench, tile: Tile) -> float:
    """Seconds that a product of 32-bit floats takes with a tile, the better of two runs."""
    stream: OpenCLStream = bench.node.provider.create_stream()
    number = DataType.FLOAT
    product = Product(bench, number, number, number, number)
    panels = product.panel_shape(tile, _DEPTH, _COLUMNS, 1)
    try:
        with (
            bench.scratch(stream, (_ROWS, _DEPTH), number) as a,
            bench.scratch(stream, panels, number) as b,
            bench.scratch(stream, (_ROWS, _COLUMNS), number) as c,
        ):
            with explained("timing a product"):
                for buffer in (a, b):
                    one = np.ones(1, np.float32)
                    cl.enqueue_fill_buffer(stream.queue, buffer.cl_buffer, one, 0, buffer.nbytes)
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
