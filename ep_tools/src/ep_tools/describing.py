"""The work of `ep info`: what a model is made of, without making a session."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from ep_core.graph import Graph, Initializer, Node, ValueInfo
from ep_core.loading.load import Model, load_model
from ep_core.types import DataType, TensorType
from ep_tools.console import Console, format_bytes
from ep_tools.progress import Progress

__all__ = ["describe_model"]

_CONTROL_FLOW = ("If", "Loop", "Scan")
_MAX_TEXT = 72


@dataclass(frozen=True, slots=True)
class Header:
    """What the file says that the loaded graph doesn't keep.

    Attributes:
        functions: names of local functions.
        external: bytes of data by the file beside the model that holds them.
    """

    ir_version: int
    producer_version: str
    functions: tuple[str, ...]
    external: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """How often an operator is called in the main graph, and in bodies of control flow."""

    domain: str
    op_type: str
    main: int
    bodies: int

    @property
    def key(self) -> str:
        """`Conv`, or `com.microsoft.Gelu` outside the default domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


def describe_model(path: str, *, as_json: bool) -> int:
    """Print what a model is made of; return the exit code.

    Raises:
        EpError: the model can't be loaded.
    """
    console = Console()
    with Progress(console, f"loading {path}"):
        model = load_model(path)
        header = _read_header(path)
        file_bytes = Path(path).stat().st_size
    document = _to_json(path, file_bytes, model, header)
    if as_json:
        console.json(document)
    else:
        _show(console, document)
    return 0


def _to_json(path: str, file_bytes: int, model: Model, header: Header) -> dict[str, Any]:
    graph = model.graph
    metadata = model.metadata
    operators = _operators(graph)
    parameters = [item for part in _graphs(graph) for item in part.initializers.values()]
    required = [info for info in graph.inputs if info.name not in graph.overridable]
    defaults = [info for info in graph.inputs if info.name in graph.overridable]
    return {
        "model": path,
        "file_bytes": file_bytes,
        "external_bytes": dict(header.external),
        "ir_version": header.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in graph.opsets.items()},
        "producer": {"name": metadata.producer_name, "version": header.producer_version},
        "graph_name": metadata.graph_name,
        "domain": metadata.domain,
        "version": metadata.version,
        "description": metadata.description,
        "graph_description": metadata.graph_description,
        "metadata": dict(metadata.custom_metadata_map),
        "inputs": [_value_json(info) for info in required],
        "inputs_with_default": [_value_json(info) for info in defaults],
        "outputs": [_value_json(info) for info in graph.outputs],
        "nodes": {
            "main": sum(operator.main for operator in operators),
            "bodies": sum(operator.bodies for operator in operators),
            "nesting": _nesting(graph),
        },
        "control_flow": {
            operator.op_type: operator.main + operator.bodies
            for operator in operators
            if operator.key in _CONTROL_FLOW
        },
        "functions": list(header.functions),
        "parameters": {
            "tensors": len(parameters),
            "elements": sum(math.prod(item.shape) for item in parameters),
            "bytes": sum(item.nbytes for item in parameters),
            "bytes_by_type": _bytes_by_type(parameters),
        },
        "values_by_type": _values_by_type(graph),
        "operators": [
            {
                "domain": operator.domain or "ai.onnx",
                "operator": operator.op_type,
                "main": operator.main,
                "bodies": operator.bodies,
            }
            for operator in operators
        ],
    }


def _value_json(info: ValueInfo) -> dict[str, Any]:
    """The shape is null where even the rank is unknown, a length is where only that is."""
    kind = info.type
    shape = list(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None
    return {"name": info.name, "type": None if kind is None else str(kind), "shape": shape}


# ---------------------------------------------------------------- counting


def _graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and all bodies in it."""
    yield graph
    for node in graph.nodes:
        for body in node.bodies.values():
            yield from _graphs(body)


def _nesting(graph: Graph) -> int:
    """How deep bodies lie within bodies; 0 without any."""
    depths = [1 + _nesting(body) for node in graph.nodes for body in node.bodies.values()]
    return max(depths, default=0)


def _operators(graph: Graph) -> list[OperatorCount]:
    """The most frequent ones first."""
    main = Counter(map(_kind, graph.nodes))
    everywhere = Counter(_kind(node) for part in _graphs(graph) for node in part.nodes)
    return [
        OperatorCount(domain, op_type, main[domain, op_type], total - main[domain, op_type])
        for (domain, op_type), total in sorted(
            everywhere.items(), key=lambda item: (-item[1], item[0])
        )
    ]


def _kind(node: Node) -> tuple[str, str]:
    return node.domain, node.op_type


def _bytes_by_type(parameters: list[Initializer]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for item in parameters:
        found[item.dtype.text] += item.nbytes
    return dict(found.most_common())


def _values_by_type(graph: Graph) -> dict[str, int]:
    """How many inputs and results of nodes, bodies included, have each type."""
    found: Counter[str] = Counter()
    for part in _graphs(graph):
        for name in (*part.input_names, *part.producers):
            kind = part.type_of(name)
            text = kind.dtype.text if isinstance(kind, TensorType) else str(kind or "unknown")
            found[text] += 1
    return dict(found.most_common())


# ---------------------------------------------------------------- the file


def _read_header(path: str) -> Header:
    """Read what `load_model`, which has found the file to be sound, doesn't tell."""
    proto = onnx.load_model(path, load_external_data=False)
    external: dict[str, int] = {}
    for tensor in _tensors(proto):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        packed = (math.prod(tensor.dims) * DataType(tensor.data_type).bits + 7) // 8
        size = entries.get("length", packed)
        location = entries.get("location", "")
        external[location] = external.get(location, 0) + int(size)
    return Header(
        ir_version=proto.ir_version,
        producer_version=proto.producer_version,
        functions=tuple(f"{item.domain}.{item.name}".lstrip(".") for item in proto.functions),
        external=external,
    )


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _tensors_of_graph(proto.graph)
    for function in proto.functions:
        for node in function.node:
            yield from _tensors_of_node(node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _tensors_of_node(node)


def _tensors_of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("g"):
            yield from _tensors_of_graph(attribute.g)
        for graph in attribute.graphs:
            yield from _tensors_of_graph(graph)


# ---------------------------------------------------------------- showing


def _show(console: Console, document: Mapping[str, Any]) -> None:
    for title, text in _header_lines(document):
        if text:
            console.line(f"{console.style(f'{title:<12}', 'bold')}{text}")
    for title, key in (
        ("inputs", "inputs"),
        ("inputs with a default", "inputs_with_default"),
        ("outputs", "outputs"),
    ):
        _show_values(console, title, document[key])
    _show_operators(console, document["operators"])


def _header_lines(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    external = document["external_bytes"]
    size = format_bytes(document["file_bytes"])
    if external:
        files = ", ".join(f"{name} {format_bytes(count)}" for name, count in external.items())
        size += f" and external data: {files}"
    yield "file", f"{document['model']}, {size}"
    opsets = ", ".join(f"{domain} {version}" for domain, version in document["opsets"].items())
    yield "format", f"IR version {document['ir_version']}, opset {opsets}"
    producer = document["producer"]
    yield "producer", f"{producer['name']} {producer['version']}".strip()
    version = f" version {document['version']}" if document["version"] else ""
    yield "graph", _short(f"{document['graph_name']}{version}")
    yield "description", _short(document["description"] or document["graph_description"])
    for key, value in document["metadata"].items():
        yield "metadata", _short(f"{key}: {value}")
    yield "nodes", _nodes_text(document)
    yield "functions", _short(", ".join(document["functions"]))
    parameters = document["parameters"]
    by_type = ", ".join(
        f"{name} {format_bytes(count)}" for name, count in parameters["bytes_by_type"].items()
    )
    yield (
        "parameters",
        f"{parameters['elements']:,} in {parameters['tensors']} tensors"
        + (f": {by_type}" if by_type else ""),
    )
    yield "values", ", ".join(f"{n} {kind}" for kind, n in document["values_by_type"].items())


def _nodes_text(document: Mapping[str, Any]) -> str:
    nodes = document["nodes"]
    text = str(nodes["main"])
    if nodes["bodies"]:
        text += f", and {nodes['bodies']} in bodies, up to {nodes['nesting']} deep"
    if document["control_flow"]:
        text += "; " + ", ".join(f"{n} {name}" for name, n in document["control_flow"].items())
    return text


def _show_values(console: Console, title: str, values: list[dict[str, Any]]) -> None:
    if not values:
        return
    console.line()
    console.line(console.style(title, "bold"))
    rows = [(value["name"], value["type"] or "unknown type", _shape(value)) for value in values]
    for line in console.columns(rows):
        console.line(f"  {line}")


def _shape(value: Mapping[str, Any]) -> str:
    if value["shape"] is None:
        return "unknown rank" if str(value["type"]).startswith("tensor") else ""
    lengths = ", ".join("?" if size in (None, "") else str(size) for size in value["shape"])
    return f"[{lengths}]"


def _show_operators(console: Console, operators: list[dict[str, Any]]) -> None:
    if not operators:
        return
    console.line()
    console.line(console.style("operators", "bold"))
    widest = max(len(f"{item['main'] + item['bodies']}") for item in operators)
    for item in operators:
        domain = "" if item["domain"] == "ai.onnx" else f"{item['domain']}."
        total = item["main"] + item["bodies"]
        inside = f"  ({item['bodies']} in bodies)" if item["bodies"] else ""
        console.line(f"  {total:>{widest}}  {domain}{item['operator']}{inside}")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_TEXT else f"{flat[:_MAX_TEXT]}..."
