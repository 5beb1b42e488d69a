"""Lengths that OpenVINO doesn't check in a run, and reads or writes beyond memory if they misfit.

Where lengths are known only in a run, a convolution works out that of its result without looking
whether the kernel fits, a recurrent layer takes a state for as long as the batch, and Squeeze an
axis for one of length 1. OpenVINO's reshaping of a model does look, or tells by a rank. It is asked
once for each set of shapes, before the first run with them. Shapes that follow from the values of
inputs, as of a Reshape to lengths that are fed, aren't seen by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ep_core.contracts import Value
from ep_core.errors import RunError
from ep_core.graph import Graph, Subgraph
from ep_core.types import TensorType
from ep_openvino.convert import input_label
from ep_openvino.library import message_of

__all__ = ["LengthCheck", "needs_length_check"]

_UNCHECKED = frozenset(
    {"Conv", "ConvInteger", "FusedConv", "GRU", "LSTM", "QLinearConv", "RNN", "Squeeze"}
)
_MISFITS = ("larger than the data shape", "is not matched between inputs")
_MOST_SHAPES = 1024


def needs_length_check(subgraph: Subgraph) -> bool:
    """Whether such an operator reads a value some of whose lengths aren't known."""
    return any(
        node.op_type in _UNCHECKED
        and not all(_is_static(subgraph.graph, name) for name in node.inputs if name)
        for node in subgraph.nodes
    )


def _is_static(graph: Graph, name: str) -> bool:
    kind = graph.type_of(name)
    return isinstance(kind, TensorType) and kind.static_shape is not None


class LengthCheck:
    """Looks at the shapes of inputs before a run; safe to use from many threads.

    Args:
        label: of the partition, the beginning of messages.
        read: makes the `openvino.Model`, whose inputs are called by `input_label`; called when
            the first run is checked.
    """

    def __init__(self, label: str, read: Callable[[], Any]) -> None:
        self._label = label
        self._read = read
        self._model: Any = None
        self._squeezed: list[tuple[Any, int]] = []
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()
        self._reshaping = threading.Lock()

    def check(self, inputs: Sequence[Value]) -> None:
        """See whether every kernel, state and axis fits.

        Raises:
            RunError: one doesn't.
        """
        shapes = tuple(value.shape for value in inputs)
        if shapes in self._fitting:
            return
        with self._reshaping:
            if self._model is None:
                self._model = self._read()
                self._squeezed = [(made, _rank(made)) for made in _squeezed(self._model)]
            self._reshape(shapes)
            if len(self._fitting) >= _MOST_SHAPES:
                self._fitting.clear()
            self._fitting.add(shapes)

    def _reshape(self, shapes: Sequence[tuple[int, ...]]) -> None:
        import openvino

        places = {input_label(place): place for place in range(len(shapes))}
        wanted = {}
        for port in self._model.inputs:
            shape = shapes[places[port.get_node().get_friendly_name()]]
            wanted[port] = openvino.PartialShape(list(shape))
        try:
            self._model.reshape(wanted)
        except RuntimeError as error:
            # Whatever else doesn't fit, the run itself finds.
            if any(text in str(error) for text in _MISFITS):
                raise RunError(
                    f"{self._label}: lengths don't fit each other: {message_of(error)}",
                    fix="Feed inputs of other lengths.",
                ) from error
        for made, rank in self._squeezed:
            if _rank(made) != rank:
                name = made.get_node().get_friendly_name()
                raise RunError(
                    f"{self._label}: an axis for 'Squeeze' of {name!r} isn't of length 1",
                    fix="Feed inputs of other lengths.",
                )


def _squeezed(model: Any) -> list[Any]:
    """What a Squeeze gives, where the number of its axes is known."""
    made = [node.output(0) for node in model.get_ops() if node.get_type_name() == "Squeeze"]
    return [port for port in made if port.get_partial_shape().rank.is_static]


def _rank(made: Any) -> int:
    return int(made.get_partial_shape().rank.get_length())
