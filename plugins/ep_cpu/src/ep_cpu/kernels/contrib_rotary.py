"""com.microsoft.RotaryEmbedding, and the lookup of rotary angles that other operators share."""

from __future__ import annotations

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.attention import rotate
from ep_cpu.kernels.gather import check_indices
from ep_cpu.kernels.support import FLOATS, Array, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

__all__ = ["rotated"]

_TYPES = FLOATS - {DataType.DOUBLE}


def rotated(x: Array, cos: Array, sin: Array, places: Array, interleaved: bool) -> Array:
    """Rotate x by the angles of its places.

    Args:
        x: [batch, length, heads, size].
        cos: [longest, pairs] with 2 * pairs <= size; what lies beyond isn't rotated.
        sin: the same shape.
        places: [batch or 1, length], rows of the caches.
        interleaved: whether pairs are neighbours rather than half of the rotated part apart.

    Raises:
        RunError: wrong shapes, or a place outside the caches.
    """
    if cos.ndim != 2 or sin.shape != cos.shape or not 0 < 2 * cos.shape[1] <= x.shape[3]:
        raise RunError(
            "wrong shape of the rotary caches",
            expected=f"[longest, at most {x.shape[3] // 2}], both alike",
            got=(cos.shape, sin.shape),
        )
    if places.size and int(places.min()) < 0:
        raise RunError("a position is negative", got=int(places.min()))
    rows = check_indices(places, cos.shape[0])
    turned = rotate(widen(x), widen(cos)[rows], widen(sin)[rows], 2 * cos.shape[1], interleaved)
    return turned.astype(x.dtype, copy=False)


def _problem(node: KernelNode) -> str | None:
    if float(node.attr("scale", 1.0)) != 1.0:
        return "a scale other than 1 isn't implemented"
    if node.attr("rotary_embedding_dim", 0) and not node.attr("num_heads", 0):
        return "rotary_embedding_dim needs num_heads"
    return None


@TABLE.kernel("RotaryEmbedding", domain="com.microsoft", types={0: _TYPES}, predicate=_problem)
def _rotary_embedding(node: KernelNode) -> Kernel:
    heads = int(node.attr("num_heads", 0))
    partial = int(node.attr("rotary_embedding_dim", 0))
    interleaved = bool(node.attr("interleaved", 0))

    def run(x: Array, positions: Array, cos: Array, sin: Array) -> Array:
        pairs = cos.shape[1] if cos.ndim == 2 else 0
        values = _by_heads(x, heads, 2 * pairs)
        if 2 * pairs != (partial or values.shape[3]):
            raise RunError(
                "the rotary caches don't fit the size of a head, or rotary_embedding_dim",
                expected=f"last axis {(partial or values.shape[3]) // 2}",
                got=cos.shape,
            )
        batch, length = values.shape[:2]
        if positions.shape == (1,):
            places = np.asarray(positions[0] + np.arange(length))[None]
        elif positions.shape == (batch, length):
            places = positions
        else:
            raise RunError(
                "wrong shape of the positions",
                expected=f"[1] or {(batch, length)}",
                got=positions.shape,
            )
        result = rotated(values, cos, sin, places, interleaved)
        return result.transpose(0, 2, 1, 3) if x.ndim == 4 else result.reshape(x.shape)

    return run


def _by_heads(x: Array, heads: int, size: int) -> Array:
    """View x as [batch, length, heads, size]; the heads give the size or the other way."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    if x.ndim != 3:
        raise RunError("RotaryEmbedding needs 3 or 4 axes", got=x.shape)
    if heads:
        size, rest = divmod(x.shape[2], heads)
    else:
        rest = x.shape[2] % size if size else 1
    if rest or not size:
        raise RunError("the last axis doesn't divide into heads", got=(x.shape, heads, size))
    return x.reshape(*x.shape[:2], -1, size)
