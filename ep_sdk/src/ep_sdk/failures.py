"""Errors of kernels as errors of the project: which node, which operator, which inputs.

Nothing here decides what happens after the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ep_core.contracts import Value
from ep_core.errors import AllocationError, EpError, RunError
from ep_core.graph import Node
from ep_core.types import DataType

__all__ = ["describe_value", "node_error"]


def node_error(error: Exception, node: Node, inputs: Sequence[Value]) -> EpError:
    """Return the error to raise in place of `error`, which a node's kernel raised.

    Errors of the project keep their type and get the node's name in front; MemoryError becomes
    AllocationError, anything else RunError. The caller raises it `from` the original one.
    """
    where = f"node {node.name!r} ({node.key})"
    if isinstance(error, EpError):
        text = str(error)
        if not text.startswith(where):
            error.args = (f"{where}: {text}",)
        return error
    given = ", ".join(describe_value(value) for value in inputs) or "none"
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return AllocationError(f"{where} ran out of memory: {what}; its inputs: {given}")
    return RunError(f"{where} failed: {what}; its inputs: {given}")


def describe_value(value: Value) -> str:
    """Element type and shape, such as `float[2,3]`, or the kind of value that it is."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    return f"{_dtype_text(value.dtype)}[{','.join(str(length) for length in value.shape)}]"


def _dtype_text(dtype: DataType | np.dtype[Any]) -> str:
    if isinstance(dtype, DataType):
        return dtype.text
    try:
        return DataType.from_numpy(dtype).text
    except EpError:
        return str(dtype)
