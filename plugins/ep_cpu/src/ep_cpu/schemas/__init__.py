"""Schemas of com.microsoft for onnx: arity, attributes, element types, and type inference.

With them a model is checked when it is loaded, and the values behind these operators have known
types, so that other providers can take the nodes that follow. No kernel looks in here.

Operators that share their name with a standard one, such as Attention, are left out: onnx keeps
one table for the process, and `onnx.reference` can't be imported any more once a name stands in
two domains of it.
"""

from __future__ import annotations

import atexit
import functools
from typing import Any

__all__ = ["microsoft_schemas"]


@functools.cache
def microsoft_schemas() -> tuple[Any, ...]:
    """The `onnx.defs.OpSchema` objects, for somebody to register."""
    from ep_cpu.schemas import attention, layers, quantized, tensors

    atexit.register(_withdraw)
    return tuple(
        declaration.schema()
        for module in (attention, layers, quantized, tensors)
        for declaration in module.DECLARATIONS
    )


def _withdraw() -> None:
    """Take the schemas out of onnx's table while Python still lives.

    onnx before 1.23 lets go of the functions that infer types after that, and crashes.
    """
    from onnx import defs

    for schema in microsoft_schemas():
        if defs.has(schema.name, domain=schema.domain):
            defs.deregister_schema(schema.name, schema.since_version, schema.domain)
