"""Kernels of standard operators as parts of others.

An activation that is fused into an operator, or the same operation under another name or in
another layout. They come from the one table, so a faster row there serves here too. No row
belongs in this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ep_core.errors import NotSupportedError
from ep_cpu.kernels.support import Array
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode
from ep_sdk.lookup import find_row

__all__ = [
    "activation_kernel",
    "activation_problem",
    "channels_first",
    "channels_last",
    "standard_kernel",
]

# Activations that are fused into other operators, the version whose parameters are all attributes,
# and those attributes in the order in which a list of parameters gives them.
_ACTIVATIONS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "Celu": (28, ("alpha",)),
    "Clip": (6, ("min", "max")),
    "Elu": (28, ("alpha",)),
    "HardSigmoid": (28, ("alpha", "beta")),
    "HardSwish": (28, ()),
    "LeakyRelu": (28, ("alpha",)),
    "Relu": (28, ()),
    "Selu": (28, ("alpha", "gamma")),
    "Sigmoid": (28, ()),
    "Softplus": (28, ()),
    "Softsign": (28, ()),
    "Tanh": (28, ()),
    "ThresholdedRelu": (28, ("alpha",)),
}
_NAMED = frozenset({"alpha", "beta", "gamma"})


def standard_kernel(
    node: KernelNode,
    op_type: str,
    *,
    inputs: Sequence[int] = (0,),
    attributes: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Kernel:
    """The kernel of an operator of ai.onnx, made for some of a node's inputs.

    Args:
        node: the node that the operator is a part of.
        op_type: the operator.
        inputs: positions of the node's inputs that it gets, for their types and constants.
        attributes: its attributes; None takes the node's.
        version: since_version to make it for; None for the newest.

    Raises:
        NotSupportedError: no row of the table takes it.
    """
    given = node.node.inputs
    present = [i if i < len(given) else None for i in inputs]
    inner = KernelNode(
        node=node.node.replace(
            op_type=op_type,
            domain="",
            since_version=TABLE.newest[""] if version is None else version,
            inputs=tuple("" if i is None else given[i] for i in present),
            outputs=node.node.outputs[:1],
            attributes=node.node.attributes if attributes is None else attributes,
        ),
        input_types=tuple(None if i is None else node.input_types[i] for i in present),
        output_types=(None,),
        constants=tuple(None if i is None else node.constants[i] for i in present),
        options=node.options,
        provider=node.provider,
    )
    row = find_row(TABLE, inner, accept_unknown_types=True)
    if isinstance(row, str):
        raise NotSupportedError(f"{op_type} as a part of {node.node.key}: {row}")
    return row.make(inner)


def activation_problem(name: str, parameters: Sequence[float] | None = None) -> str | None:
    """Why an activation can't be fused, None if it can.

    Args:
        name: the operator's name; empty for none at all.
        parameters: its parameters, where they come as a list and must be complete; None where
            they come as attributes called alpha, beta and gamma.
    """
    if not name:
        return None
    if name not in _ACTIVATIONS:
        return f"activation {name!r} isn't implemented; known are {', '.join(_ACTIVATIONS)}"
    names = _ACTIVATIONS[name][1]
    if parameters is None and not _NAMED.issuperset(names):
        return f"activation {name} has no parameters called {', '.join(names)} here"
    if parameters is not None and len(parameters) != len(names):
        return f"activation {name} needs {len(names)} parameters, not {len(parameters)}"
    return None


def activation_kernel(
    node: KernelNode, name: str, parameters: Sequence[float] | Mapping[str, float]
) -> Kernel:
    """A kernel that applies an activation to one array; the identity for an empty name.

    Args:
        node: the node that the activation is fused into.
        name: the operator's name.
        parameters: all of them in order, or some by name.
    """
    if not name:
        return lambda x: x
    version, names = _ACTIVATIONS[name]
    if not isinstance(parameters, Mapping):
        parameters = dict(zip(names, parameters, strict=True))
    known = {key: float(value) for key, value in parameters.items() if key in names}
    return standard_kernel(node, name, inputs=(), attributes=known, version=version)


def channels_first(x: Array) -> Array:
    """[N, D1, ..., C] as [N, C, D1, ...], contiguous."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(x: Array) -> Array:
    """[N, C, D1, ...] as [N, D1, ..., C], contiguous."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))
