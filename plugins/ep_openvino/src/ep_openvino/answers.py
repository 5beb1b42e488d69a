"""OpenVINO's own answers about nodes: whether it can read one, and whether the device takes it.

Each question is asked once in the life of the process. Reading is asked node by node, as one that
can't be read spoils a whole model; the device is asked about all new ones together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from ep_core.graph import Graph
from ep_core.types import TensorType
from ep_openvino.convert import ELEMENT_TYPES, read_graph
from ep_openvino.library import message_of
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

    def _ask(self, signatures: Iterable[NodeSignature]) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        models: dict[bytes, Any] = {}
        for signature in signatures:
            try:
                model = read_graph(self._core, signature.graph)
                found[signature.key] = disagreement(model, signature.graph)
                if not found[signature.key]:
                    models[signature.key] = model
            except Exception as error:  # noqa: BLE001 - whatever it is, the node can't be read
                found[signature.key] = f"OpenVINO can't read it: {message_of(error)}"
        if models:
            found |= self._asked_of_device(models)
        return found

    def _asked_of_device(self, models: Mapping[bytes, Any]) -> dict[bytes, str]:
        try:
            return self._query(models)
        except Exception as error:  # noqa: BLE001 - one of the nodes is to blame
            if len(models) == 1:
                (key,) = models
                return {key: f"{self._target} can't take it: {message_of(error)}"}
        # A query of many fails as a whole; then each is asked by itself.
        return {
            key: refusal
            for item in models.items()
            for key, refusal in self._asked_of_device(dict([item])).items()
        }

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
