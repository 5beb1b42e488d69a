"""OpenVINO's own answers about nodes: whether it can read one, and whether the device takes it.

Each question is asked once in the life of the process. OpenVINO is asked about many nodes together,
side by side in one model, as a model costs it more than a node. One that it can't read, or that the
device can't take, spoils the whole; then it is asked about either half.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ep_core.graph import Graph
from ep_core.types import TensorType
from ep_openvino.convert import ELEMENT_TYPES
from ep_openvino.library import message_of
from ep_openvino.side_by_side import read_apart
from ep_openvino.signature import NodeSignature

__all__ = ["Answers"]

_CARRIERS = ("Parameter", "Result", "Constant")
_known: dict[tuple[str, bytes], str] = {}
_asking = threading.Lock()


class Answers:
    """Answers for one device.

    Args:
        core: `openvino.Core`.
        target: what OpenVINO calls the device.
    """

    def __init__(self, core: Any, target: str) -> None:
        self._core = core
        self._target = target

    def refusals(self, signatures: Iterable[NodeSignature]) -> Mapping[bytes, str]:
        """Why OpenVINO doesn't take nodes, by key; an empty text for those that it takes."""
        wanted = {signature.key: signature for signature in signatures}
        with _asking:
            new = [s for key, s in wanted.items() if (self._target, key) not in _known]
            for key, refusal in self._ask(new).items():
                _known[self._target, key] = refusal
            return {key: _known[self._target, key] for key in wanted}

    def _ask(self, signatures: Sequence[NodeSignature]) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        models: dict[bytes, Any] = {}
        alike: dict[str, list[NodeSignature]] = {}
        for signature in signatures:
            alike.setdefault(repr(sorted(signature.graph.opsets.items())), []).append(signature)
        for group in alike.values():
            for signature, model in zip(group, self._read(group), strict=True):
                told = model if isinstance(model, str) else disagreement(model, signature.graph)
                found[signature.key] = told
                if not told:
                    models[signature.key] = model
        if models:
            found |= self._asked_of_device(models)
        return found

    def _read(self, signatures: Sequence[NodeSignature]) -> list[Any]:
        """A model of each node, or in its place why OpenVINO can't read it."""
        try:
            return read_apart(self._core, [signature.graph for signature in signatures])
        except Exception as error:  # noqa: BLE001 - whatever it is, one of the nodes can't be read
            if len(signatures) == 1:
                return [f"OpenVINO can't read it: {message_of(error)}"]
        half = len(signatures) // 2
        return self._read(signatures[:half]) + self._read(signatures[half:])

    def _asked_of_device(self, models: Mapping[bytes, Any]) -> dict[bytes, str]:
        try:
            return self._query(models)
        except Exception as error:  # noqa: BLE001 - one of the nodes is to blame
            if len(models) == 1:
                (key,) = models
                return {key: f"{self._target} can't take it: {message_of(error)}"}
        items = list(models.items())
        half = len(items) // 2
        first, second = dict(items[:half]), dict(items[half:])
        return self._asked_of_device(first) | self._asked_of_device(second)

    def _query(self, models: Mapping[bytes, Any]) -> dict[bytes, str]:
        """Ask the device about models, put together into one."""
        import openvino

        operators: dict[bytes, dict[str, str]] = {}
        for number, (key, model) in enumerate(models.items()):
            operators[key] = {}
            for place, operator in enumerate(model.get_ops()):
                name = f"{number}/{place}"
                operator.set_friendly_name(name)
                if operator.get_type_name() not in _CARRIERS:
                    operators[key][name] = operator.get_type_name()
        whole = openvino.Model(
            [result for model in models.values() for result in model.get_results()],
            [parameter for model in models.values() for parameter in model.get_parameters()],
            "question",
        )
        taken = self._core.query_model(whole, self._target)
        found = {}
        for key, named in operators.items():
            missing = sorted({kind for name, kind in named.items() if name not in taken})
            found[key] = f"{self._target} doesn't take {', '.join(missing)}" if missing else ""
        return found


def disagreement(model: Any, graph: Graph) -> str:
    """How the results that OpenVINO works out differ from what ONNX says of them, or nothing."""
    for port, info in zip(model.outputs, graph.outputs, strict=True):
        kind = info.type
        if not isinstance(kind, TensorType):
            continue
        element = port.get_element_type().get_type_name()
        if element != ELEMENT_TYPES[kind.dtype]:
            return f"OpenVINO makes {element} of {info.name!r}, not {ELEMENT_TYPES[kind.dtype]}"
        shape = port.get_partial_shape()
        if kind.shape is None or shape.rank.is_dynamic:
            continue
        found = [None if dim.is_dynamic else dim.get_length() for dim in shape]
        agrees = len(found) == len(kind.shape) and all(
            a is None or not isinstance(b, int) or a == b
            for a, b in zip(found, kind.shape, strict=True)
        )
        if not agrees:
            return f"OpenVINO makes shape {list(shape)} of {info.name!r}, not {list(kind.shape)}"
    return ""
