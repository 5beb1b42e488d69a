"""What RNN, GRU and LSTM share: activations, directions, sequence lengths, layouts. No rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.compound import sigmoid, softplus
from ep_cpu.kernels.support import Array, int_list, text
from ep_sdk.kernels import KernelNode

__all__ = ["Activation", "Recurrence", "Setup", "sigmoid_array", "split_activations"]

Activation = Callable[[Array], Array]
"""Takes and returns pre-activations; may write into its argument."""


def sigmoid_array(x: Array) -> Array:
    """The logistic function into new memory."""
    result = np.empty_like(x)
    sigmoid(x, result)
    return result


def _softplus_array(x: Array) -> Array:
    result = np.empty_like(x)
    softplus(x, result)
    return result


def _leaky(x: Array, alpha: float) -> Array:
    return np.where(x < 0, x * x.dtype.type(alpha), x)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x < 0, np.expm1(x) * x.dtype.type(alpha), x)


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    kind = x.dtype.type
    result: Array = np.clip(x * kind(alpha) + kind(beta), 0, 1)
    return result


_PLAIN: dict[str, Activation] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": lambda x: np.asarray(np.tanh(x)),
    "sigmoid": sigmoid_array,
    "softsign": lambda x: np.asarray(x / (1 + np.abs(x))),
    "softplus": _softplus_array,
}
_WITH_ALPHA: dict[str, tuple[float, Callable[[Array, float], Array]]] = {
    "leakyrelu": (0.01, _leaky),
    "thresholdedrelu": (1.0, lambda x, alpha: np.where(x > alpha, x, 0).astype(x.dtype)),
    "elu": (1.0, _elu),
}
_WITH_BOTH: dict[str, tuple[float, float, Callable[[Array, float, float], Array]]] = {
    "affine": (1.0, 0.0, lambda x, a, b: x * x.dtype.type(a) + x.dtype.type(b)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: x.dtype.type(a) * np.tanh(x * x.dtype.type(b))),
    "hardsigmoid": (0.2, 0.5, _hard_sigmoid),
}


def split_activations(node: KernelNode, default: Sequence[str], directions: int) -> list[Any]:
    """One tuple of activations per direction.

    Alphas and betas are given out in order to the functions that take them.

    Raises:
        RunError: an unknown function, or the wrong number of them.
    """
    names = [text(name).lower() for name in node.attr("activations", default)]
    if len(names) != len(default) * directions:
        names = names * directions if len(names) == len(default) else names
    if len(names) != len(default) * directions:
        raise RunError(
            "wrong number of activations", expected=len(default) * directions, got=len(names)
        )
    alphas = iter(node.attr("activation_alpha", ()))
    betas = iter(node.attr("activation_beta", ()))
    found = [_activation(name, alphas, betas) for name in names]
    count = len(default)
    return [tuple(found[i * count : (i + 1) * count]) for i in range(directions)]


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _WITH_ALPHA:
        default, single = _WITH_ALPHA[name]
        alpha = float(next(alphas, default))
        return lambda x: single(x, alpha)
    if name in _WITH_BOTH:
        default_alpha, default_beta, double = _WITH_BOTH[name]
        first = float(next(alphas, default_alpha))
        second = float(next(betas, default_beta))
        return lambda x: double(x, first, second)
    raise RunError("unknown activation", expected="one of the ONNX specification", got=name)


@dataclass(frozen=True)
class Setup:
    """Attributes that all three operators have."""

    directions: tuple[bool, ...]
    """Per direction: does it run backwards?"""
    batch_first: bool
    clip: float | None

    @classmethod
    def of(cls, node: KernelNode) -> Setup:
        """Read them from the node.

        Raises:
            RunError: an unknown direction.
        """
        direction = text(node.attr("direction", "forward")).lower()
        known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if direction not in known:
            raise RunError("unknown direction", expected=", ".join(known), got=direction)
        clip = node.attr("clip")
        return cls(known[direction], bool(node.attr("layout", 0)), clip)

    def bounded(self, gates: Array) -> Array:
        """Pre-activations clipped to [-clip, clip], in place."""
        if self.clip is not None:
            np.clip(gates, -self.clip, self.clip, out=gates)
        return gates


class Recurrence:
    """Walks sequences of different lengths in either direction and collects the states.

    Args:
        setup: attributes of the node.
        x: input as [T, N, I].
        lengths: [N] or None, which means that all sequences are T long.
    """

    def __init__(self, setup: Setup, x: Array, lengths: Array | None) -> None:
        if x.ndim != 3:
            raise RunError("recurrent layers need three axes", got=f"shape {x.shape}")
        self._setup = setup
        self.x = x.transpose(1, 0, 2) if setup.batch_first else x
        self.steps, self.batch = self.x.shape[:2]
        counts = int_list(lengths)
        if lengths is not None and len(counts) != self.batch:
            raise RunError("wrong number of sequence lengths", expected=self.batch, got=len(counts))
        if any(not 0 <= count <= self.steps for count in counts):
            raise RunError(
                "sequence length out of range", expected=f"0 to {self.steps}", got=counts
            )
        ragged = any(count != self.steps for count in counts)
        self._lengths = np.array(counts) if ragged else None

    def initial(self, state: Array | None, direction: int, hidden: int) -> Array:
        """The state before the first step of one direction, [N, H], in memory of its own."""
        if state is None:
            return np.zeros((self.batch, hidden), self.x.dtype)
        first = state[:, direction] if self._setup.batch_first else state[direction]
        if first.shape != (self.batch, hidden):
            raise RunError(
                "wrong shape of an initial state", expected=(self.batch, hidden), got=first.shape
            )
        return first.astype(self.x.dtype)

    def ordered(self, values: Array, backwards: bool) -> Array:
        """[T, N, ...] in the order in which a direction sees it; its own inverse."""
        if not backwards:
            return values
        if self._lengths is None:
            return values[::-1]
        result = values.copy()
        for sample, length in enumerate(self._lengths):
            result[:length, sample] = values[:length, sample][::-1]
        return result

    def alive(self, step: int) -> Array | None:
        """Which sequences still run at `step`, as [N, 1]; None if all do."""
        if self._lengths is None or step < self._lengths.min():
            return None
        return (self._lengths > step)[:, None]

    def results(self, outputs: list[Array], last: list[list[Array]]) -> tuple[Array, ...]:
        """Join directions: Y from [T, N, H] each, and each final state from [N, H] each."""
        if self._setup.batch_first:
            y = np.stack([value.transpose(1, 0, 2) for value in outputs], axis=2)
            return (y, *(np.stack(values, axis=1) for values in last))
        y = np.stack(outputs, axis=1)
        return (y, *(np.stack(values, axis=0) for values in last))
