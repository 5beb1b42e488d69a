"""From a subgraph to a model of OpenVINO's, in memory and without copying large weights.

OpenVINO's reader gets a model in which large constants are inputs. They are put in afterwards, as
constants over the memory that they lie in already. So no model is too large for a proto, and
weights that are mapped from a file stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ep_core.contracts import HostArray
from ep_core.errors import CompileError
from ep_core.graph import Graph, Initializer, Subgraph, ValueInfo
from ep_core.types import DataType
from ep_openvino.library import translated
from ep_openvino.rewriting import rewritten

__all__ = ["ELEMENT_TYPES", "convert", "input_label", "read_graph", "writable"]

_LARGE_BYTES = 2**18
"""From here on a constant stays where it is; smaller ones may decide how a node is converted."""

ELEMENT_TYPES: Mapping[DataType, str] = {
    DataType.FLOAT: "f32",
    DataType.FLOAT16: "f16",
    DataType.DOUBLE: "f64",
    DataType.BOOL: "boolean",
    DataType.INT8: "i8",
    DataType.INT16: "i16",
    DataType.INT32: "i32",
    DataType.INT64: "i64",
    DataType.UINT8: "u8",
    DataType.UINT16: "u16",
    DataType.UINT32: "u32",
    DataType.UINT64: "u64",
}
"""OpenVINO's names of the types that pass between it and numpy as they are."""


def convert(core: Any, subgraph: Subgraph) -> Any:
    """Return the `openvino.Model` of a subgraph, with inputs named by `input_label`.

    Outputs are in the subgraph's order. Inputs that OpenVINO has no use for are left out.

    Raises:
        CompileError: OpenVINO can't read it.
    """
    graph = subgraph.as_graph()
    large = {name: item for name, item in graph.initializers.items() if _stays(item)}
    try:
        model = _with_large(core, graph, large) if large else None
        if model is None:
            model = read_graph(core, graph)
    except RuntimeError as error:
        raise translated(error, f"OpenVINO can't read {subgraph.name!r}", CompileError) from error
    if len(model.get_results()) != len(subgraph.outputs):
        raise CompileError(
            f"OpenVINO reads {subgraph.name!r} with other outputs",
            expected=len(subgraph.outputs),
            got=len(model.get_results()),
        )
    for name, parameter in _parameters(model, graph).items():
        parameter.set_friendly_name(input_label(subgraph.inputs.index(name)))
    return model


def input_label(place: int) -> str:
    """What the input at a place among a subgraph's is called inside OpenVINO."""
    return f"input {place}"


def read_graph(core: Any, graph: Graph) -> Any:
    """Read a graph with OpenVINO; raises RuntimeError, as OpenVINO does."""
    model = core.read_model(rewritten(graph).to_model().SerializeToString())
    for operator in model.get_ops():
        if operator.get_type_name() == "TopK":
            # Equal numbers come in the order of their positions, which the reader doesn't ask for.
            operator.set_attribute("sort", "value")
            operator.set_attribute("stable", True)
    return model


def _parameters(model: Any, graph: Graph) -> dict[str, Any]:
    """The inputs of a model that was read, by name.

    OpenVINO's reader keeps their order, and leaves out inputs that say nothing new to it. Only then
    names are looked at: where a node passes an input on, that is called by the output's name.
    """
    parameters = list(model.get_parameters())
    if len(parameters) == len(graph.inputs):
        return dict(zip(graph.input_names, parameters, strict=True))
    found: dict[str, Any] = {}
    for parameter in parameters:
        name = next(iter(parameter.output(0).get_names()), "")
        while name in graph.producers and name not in graph.input_names:
            name = graph.nodes[graph.producers[name]].inputs[0]
        if name not in graph.input_names or name in found:
            raise CompileError(f"OpenVINO reads {graph.name!r} with an input {name!r} of its own")
        found[name] = parameter
    return found


def writable(array: HostArray) -> HostArray:
    """The same memory as an array that may be written to, which OpenVINO asks of all arrays.

    It doesn't write to inputs and constants. The array must be contiguous.
    """
    return array if array.flags.writeable else np.asarray(_Alias(array))


class _Alias:
    """Offers an array's memory once more, and keeps it alive."""

    def __init__(self, array: HostArray) -> None:
        self._array = array
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "version": 3,
        }


def _stays(item: Initializer) -> bool:
    return item.nbytes >= _LARGE_BYTES and item.dtype in ELEMENT_TYPES


def _with_large(core: Any, graph: Graph, large: Mapping[str, Initializer]) -> Any | None:
    """Read a graph without some of its constants, which are put in afterwards.

    Returns:
        The model; None if OpenVINO can't read it so, as some operators need their weights.
    """
    import openvino

    added = tuple(ValueInfo(name, item.type) for name, item in large.items())
    rest = {name: item for name, item in graph.initializers.items() if name not in large}
    opened = graph.replace(inputs=(*graph.inputs, *added), initializers=rest)
    try:
        model = read_graph(core, opened)
        parameters = _parameters(model, opened)
        for name in parameters.keys() & large.keys():
            array = np.ascontiguousarray(large[name].numpy()).reshape(large[name].shape)
            constant = openvino.op.Constant(writable(array), True)
            constant.set_friendly_name(name)
            for user in parameters[name].output(0).get_target_inputs():
                user.replace_source_output(constant.output(0))
            model.remove_parameter(parameters[name])
        model.validate_nodes_and_infer_types()
    except (RuntimeError, CompileError):
        return None
    return model
