"""What RNN, GRU and LSTM differ in, their directions, and their activations as kernel C.

Launches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ep_core.types import DataType
from ep_sdk.device_kernels.expression import literal
from ep_sdk.device_kernels.launch import text_attribute
from ep_sdk.kernels import KernelNode

__all__ = ["DIRECTIONS", "FORMS", "Form", "activation_sources", "known_forms"]

DIRECTIONS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""For each direction whether it runs backwards."""

_FUNCTIONS: dict[str, tuple[str, float | None, float | None]] = {
    "relu": ("LARGER(v, ({real})0)", None, None),
    "tanh": ("tanh(v)", None, None),
    "sigmoid": ("sigmoid_{real}(v)", None, None),
    "softsign": ("(v / (1 + fabs(v)))", None, None),
    "softplus": ("softplus_{real}(v)", None, None),
    "leakyrelu": ("(v < 0 ? v * {alpha} : v)", 0.01, None),
    "thresholdedrelu": ("(v > {alpha} ? v : 0)", 1.0, None),
    "elu": ("(v < 0 ? {alpha} * expm1(v) : v)", 1.0, None),
    "affine": ("(v * {alpha} + {beta})", 1.0, 0.0),
    "scaledtanh": ("({alpha} * tanh(v * {beta}))", 1.0, 1.0),
    "hardsigmoid": (
        "SMALLER_OR_NAN(LARGER_OR_NAN(v * {alpha} + {beta}, 0), 1)",
        0.2,
        0.5,
    ),
}
"""Activations of `v` with the defaults of alpha and beta, None where they have none."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the three operators differ in.

    Attributes:
        gates: sums for each element of the state.
        activations: the functions where the node names none.
        states: outputs after the first.
    """

    gates: int
    activations: tuple[str, ...]
    states: int = 1


FORMS = {
    "RNN": Form(1, ("Tanh",)),
    "GRU": Form(3, ("Sigmoid", "Tanh")),
    "LSTM": Form(4, ("Sigmoid", "Tanh", "Tanh"), 2),
}


def _names(node: KernelNode) -> list[str]:
    """The activations of all directions, in lower case."""
    form = FORMS[node.node.op_type]
    directions = len(DIRECTIONS[text_attribute(node, "direction", "forward").lower()])
    given = node.attr("activations", form.activations)
    names = [item.decode() if isinstance(item, bytes) else str(item) for item in given]
    if len(names) == len(form.activations):
        names *= directions
    return [name.lower() for name in names]


def known_forms(node: KernelNode) -> str | None:
    """A predicate: directions and activations that the specification names."""
    direction = text_attribute(node, "direction", "forward").lower()
    if direction not in DIRECTIONS:
        return f"direction {direction}"
    names = _names(node)
    unknown = [name for name in names if name not in _FUNCTIONS]
    if unknown:
        return f"activation {unknown[0]}"
    wanted = len(FORMS[node.node.op_type].activations) * len(DIRECTIONS[direction])
    return None if len(names) == wanted else f"{len(names)} activations instead of {wanted}"


def activation_sources(node: KernelNode, wide: DataType) -> list[str]:
    """Source of the activations of each direction, and of the bound of what goes into them."""
    real = "double" if wide is DataType.DOUBLE else "float"
    alphas = iter(node.attr("activation_alpha", ()))
    betas = iter(node.attr("activation_beta", ()))
    texts = [_activation(name, alphas, betas, real, wide) for name in _names(node)]
    count = len(FORMS[node.node.op_type].activations)
    clip = node.attr("clip")
    bound = "v"
    if clip is not None:
        limit = literal(clip, wide)
        bound = f"SMALLER_OR_NAN(LARGER_OR_NAN(v, -{limit}), {limit})"
    found = []
    for first in range(0, len(texts), count):
        lines = [f"inline {real} bounded({real} v) {{ return {bound}; }}"]
        for number, text in enumerate(texts[first : first + count]):
            lines.append(f"inline {real} activation{number}({real} v) {{ return {text}; }}")
        found.append("\n".join(["", *lines, ""]))
    return found


def _activation(
    name: str, alphas: Iterator[float], betas: Iterator[float], real: str, wide: DataType
) -> str:
    text, alpha, beta = _FUNCTIONS[name]
    words = {"real": real}
    if alpha is not None:
        words["alpha"] = literal(float(next(alphas, alpha)), wide)
    if beta is not None:
        words["beta"] = literal(float(next(betas, beta)), wide)
    return text.format(**words)
