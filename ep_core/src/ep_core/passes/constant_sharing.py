"""Merges initializers that are equal bit by bit."""

from __future__ import annotations

import hashlib

from ep_core.graph import Initializer
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes._driver import Pass, PassContext
from ep_core.passes._editor import GraphEditor
from ep_core.types import DataType

__all__ = ["PASS"]

_LARGEST = 1 << 20
"""Bytes. Larger initializers may be memory-mapped files that nobody has read yet; reading them all
to find the rare equal pair costs more than it saves."""

_FIRST = 16
"""Elements that are looked at first."""


def _rewrite(editor: GraphEditor, context: PassContext) -> None:
    alike: dict[tuple[DataType, tuple[int, ...], bytes], list[Initializer]] = {}
    for initializer in editor.own_constants().values():
        if initializer.nbytes <= _LARGEST:
            key = (initializer.dtype, initializer.shape, _beginning(initializer))
            alike.setdefault(key, []).append(initializer)
    for group in alike.values():
        if len(group) > 1:
            _merge_equal(editor, group)


def _merge_equal(editor: GraphEditor, group: list[Initializer]) -> None:
    kept: dict[bytes, str] = {}
    # An output of the graph can't give up its name, so those come first.
    for initializer in sorted(group, key=lambda item: item.name not in editor.outputs):
        first = kept.setdefault(_digest(initializer), initializer.name)
        if first != initializer.name and initializer.name not in editor.outputs:
            editor.redirect(initializer.name, first)


def _beginning(initializer: Initializer) -> bytes:
    """What tells most initializers apart without reading all of them."""
    if initializer.dtype is DataType.STRING:
        return b""
    return initializer.numpy().reshape(-1)[:_FIRST].tobytes()


def _digest(initializer: Initializer) -> bytes:
    array = initializer.numpy()
    if initializer.dtype is DataType.STRING:
        data = "".join(f"{len(item)}:{item}" for item in array.reshape(-1).tolist()).encode()
    else:
        data = array.tobytes()
    return hashlib.sha256(data).digest()


PASS = Pass("ConstantSharing", GraphOptimizationLevel.ORT_ENABLE_BASIC, _rewrite)
