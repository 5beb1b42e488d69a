"""One session in which the provider under test and partners take part, and its right answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ep_compliance.driving.findings import Broken, NotClaimed, text_of
from ep_compliance.driving.partners.guest import Guest
from ep_compliance.driving.partners.sketches import SIDE
from ep_compliance.driving.values import describe
from ep_compliance.oracle.evaluate import Evaluator
from ep_core.contracts import Value
from ep_core.errors import EpError
from ep_core.options import RunOptions
from ep_core.report import PlacementReport
from ep_core.session import InferenceSession
from ep_core.types import DataType

__all__ = ["Mixed", "check_near", "numbers", "right_answer"]

_RELATIVE = 1e-2
"""Where values went astray they are wrong by far more; fusing may round differently."""


class Mixed:
    """An open session.

    Attributes:
        guests: who takes part, by name.
        tested: the provider under test.
    """

    def __init__(
        self,
        session: InferenceSession,
        model: onnx.ModelProto,
        guests: Mapping[str, Guest],
        tested: str,
    ) -> None:
        self.guests = guests
        self.tested = guests[tested]
        self._session = session
        self._model = model
        self._in_use = 0

    @property
    def placement(self) -> PlacementReport:
        """Where everything runs."""
        return self._session.get_placement()

    def close(self) -> None:
        """Close the session; twice without harm."""
        self._session.close()

    def run(self, feeds: Mapping[str, Value], options: RunOptions | None = None) -> list[Value]:
        """All outputs.

        Raises:
            whatever the session raises.
        """
        return self._session.run(None, feeds, options)

    def check(self, feeds: Mapping[str, Value], what: str) -> None:
        """Run, and compare with the right answer.

        Raises:
            Broken: the run fails or gives something else; says `what` was run.
        """
        self.check_against(feeds, right_answer(self._model, feeds), what)

    def check_against(
        self, feeds: Mapping[str, Value], expected: Sequence[Value], what: str
    ) -> None:
        """Run, and compare with a right answer that is known already; see `check`."""
        try:
            got = self.run(feeds)
        except Exception as error:
            raise Broken(f"{what}: the run fails: {text_of(error)}") from error
        check_near(expected, got, what)

    def check_ends(
        self,
        feeds: Mapping[str, Value],
        kind: type[EpError],
        what: str,
        options: RunOptions | None = None,
    ) -> None:
        """Raise Broken unless a run ends with an error of a kind; says `what` was run."""
        try:
            self.run(feeds, options)
        except kind:
            return
        except Exception as error:
            text = f"{what} raises {text_of(error)}, expected {kind.__name__}"
            raise Broken(text) from error
        raise Broken(f"{what} raises nothing, expected {kind.__name__}")

    def note_memory(self) -> None:
        """Take the device memory in use as what is in use between runs."""
        self._in_use = self.tested.in_use_bytes()

    def check_memory(self, what: str) -> None:
        """Raise Broken if more device memory is in use than was noted, also a moment later."""
        if (left := self.tested.settled_bytes(self._in_use)) > 0:
            raise Broken(f"{what} leaves {left} bytes of device memory in use")

    def check_claims(self) -> None:
        """Hold the provider under test to what is meant for it.

        Raises:
            NotClaimed: it doesn't claim all of that.
            Broken: it broke a contract when it was asked.
        """
        if self.tested.problem:
            raise Broken(self.tested.problem)
        if self.tested.refused:
            raise NotClaimed("; ".join(sorted(set(self.tested.refused.values()))))


def numbers(
    model: onnx.ModelProto, seed: int, side: int = SIDE, **fixed: Value
) -> dict[str, np.ndarray[Any, Any]]:
    """Small numbers for a model's inputs, so that long chains don't overflow.

    Args:
        side: length of symbolic dimensions.
        fixed: values by name for inputs that aren't free.
    """
    generator = np.random.default_rng(seed)
    feeds = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else side for dim in kind.shape.dim]
        dtype = DataType(kind.elem_type).numpy
        if info.name in fixed:
            feeds[info.name] = np.array(fixed[info.name], dtype)
        else:
            feeds[info.name] = np.array(generator.integers(1, 4, shape), dtype)
    return feeds


def right_answer(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[Value]:
    """The model's outputs, computed without a session and without any provider."""
    evaluator = Evaluator(model)
    return evaluator.rounded(evaluator.run(feeds, wide=False))


def check_near(expected: Sequence[Value], got: Sequence[Value], what: str) -> None:
    """Raise Broken unless outputs have the right types and nearly the right values."""
    for position, (right, value) in enumerate(zip(expected, got, strict=True)):
        if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (
            right.dtype,
            right.shape,
        ):
            text = f"expected {describe(right)}, got {describe(value)}"
            raise Broken(f"{what}: output {position}: {text}")
        if not _near(right, value):
            raise Broken(f"{what}: output {position} has other values than the model gives alone")


def _near(right: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> bool:
    if right.dtype.kind in "iub":
        return bool(np.array_equal(right, value))
    wide = (right.astype(np.float64), value.astype(np.float64))
    return bool(np.allclose(*wide, rtol=_RELATIVE, atol=0.0, equal_nan=True))
