"""The work of `ep dump`: one node of a model with its values, as a model that can be run by itself.

The folder has the form of ONNX's own test cases: `model.onnx` and `test_data_set_0`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ep_core.errors import EpError, NotSupportedError, OptionError, did_you_mean
from ep_core.graph import Graph, Node, Subgraph, ValueInfo
from ep_core.loading.export import save_model, tensor_proto
from ep_core.loading.load import load_model
from ep_tools.console import Console
from ep_tools.differences import Difference, compare_values
from ep_tools.feeds import feeds_for, telling_of_random
from ep_tools.layers_values import values_of
from ep_tools.outputs import OutputSummary, save_outputs, summarise
from ep_tools.progress import Progress
from ep_tools.requests import FeedRequest, SessionRequest, Tolerance
from ep_tools.sessions import open_session, session_options

__all__ = ["DumpRequest", "dump_node"]

_EXACTLY = Tolerance(rtol=0.0, atol=0.0)


@dataclass(frozen=True)
class DumpRequest:
    """What the command line of `ep dump` asks for.

    Attributes:
        node: name of a node of the main graph, or of one of its results.
        out: the folder to make.
    """

    session: SessionRequest
    feeds: FeedRequest
    node: str
    out: str


def dump_node(request: DumpRequest, *, as_json: bool) -> int:
    """Write a node, its inputs and its outputs; return the exit code.

    Raises:
        EpError: there is no such node, the model can't be run, or the folder can't be made.
    """
    console = Console()
    folder = Path(request.out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EpError(f"{folder} exists already", expected="a new or empty folder")
    options = session_options(request.session)
    graph = load_model(request.session.model, limits=options.load_limits).graph
    index = _find(graph, request.node)
    node = graph.nodes[index]

    def opener(model: bytes) -> Any:
        return open_session(request.session, model)

    with Progress(console, f"running {request.session.model}"):
        session = open_session(request.session)
        with session:
            feeds, sources = feeds_for(session, request.feeds)
        with telling_of_random(sources):
            values = values_of(graph, [*node.reads, *node.outputs], opener, feeds)
    alone = _alone(graph, index)
    inputs = {name: values[name] for name in alone.input_names}
    outputs = {name: values[name] for name in alone.output_names}
    reads = {name: values[name] for name in node.reads}
    model = alone.to_model()
    _write(folder, model, inputs, outputs, reads)
    repeated = _repeated(request.session, model, inputs, outputs)
    if as_json:
        console.json(_to_json(request, node, folder, reads, outputs, repeated))
    else:
        _show(console, node, folder, reads, outputs, repeated)
    return 0


def _find(graph: Graph, name: str) -> int:
    for index, node in enumerate(graph.nodes):
        if name == node.name or name in node.outputs:
            return index
    inner = {found.name for node in graph.nodes for found in _inner(node)}
    if name in inner:
        raise NotSupportedError(
            f"node {name!r} is inside a body of If, Loop or Scan, whose values can't be outputs",
            fix="Dump the control-flow node around it.",
        )
    known = [node.name for node in graph.nodes] + list(graph.producers)
    raise OptionError(f"the model has no node {name!r}", fix=did_you_mean(name, known))


def _inner(node: Node) -> Iterator[Node]:
    for body in node.bodies.values():
        for inner in body.nodes:
            yield inner
            yield from _inner(inner)


def _alone(graph: Graph, index: int) -> Graph:
    """The node as a graph: its inputs but constants are inputs, all its results are outputs."""
    node = graph.nodes[index]
    alone = Subgraph.cut(graph, (index,), f"{node.op_type} alone").as_graph()
    results = tuple(graph.values.get(name, ValueInfo(name)) for name in node.outputs if name)
    return alone.replace(outputs=results)


def _repeated(
    request: SessionRequest,
    model: onnx.ModelProto,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> list[Difference]:
    """How far the outputs of the dumped model lie from those that the node had in its model."""
    with open_session(request, model.SerializeToString()) as session:
        found = session.run(None, inputs)
    return [
        difference
        for (name, value), other in zip(outputs.items(), found, strict=True)
        for difference in compare_values(name, other, value, _EXACTLY)
    ]


# ---------------------------------------------------------------- writing


def _write(
    folder: Path,
    model: onnx.ModelProto,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    reads: Mapping[str, Any],
) -> None:
    """Write everything or nothing: files are made elsewhere, and the folder gets its name last."""
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as temporary:
            made = Path(temporary) / "dump"
            data = made / "test_data_set_0"
            data.mkdir(parents=True)
            save_model(model, made / "model.onnx")
            for kind, values in (("input", inputs), ("output", outputs)):
                for position, (name, value) in enumerate(values.items()):
                    content = _proto(name, value).SerializeToString()
                    (data / f"{kind}_{position}.pb").write_bytes(content)
            for kind, values in (("inputs", reads), ("outputs", outputs)):
                save_outputs(str(made / kind), {n: v for n, v in values.items() if _is_plain(v)})
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
    except OSError as error:
        raise EpError(f"the node can't be written to {folder}", got=str(error)) from error


def _is_plain(value: Any) -> bool:
    """True for what numpy's format can hold, one file for each member of a sequence."""
    if isinstance(value, list):
        return all(isinstance(member, np.ndarray) for member in value)
    return isinstance(value, np.ndarray)


def _proto(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor_proto(value, name)
    if value is None:
        return numpy_helper.from_optional(None, name)
    if not _is_plain(value):
        raise NotSupportedError(
            f"value {name!r} can't be dumped",
            expected="a tensor, a sequence of tensors, or nothing",
            got=type(value).__name__,
        )
    sequence = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.TENSOR)
    sequence.tensor_values.extend(tensor_proto(member) for member in value)
    return sequence


# ---------------------------------------------------------------- showing


def _to_json(
    request: DumpRequest,
    node: Node,
    folder: Path,
    reads: Mapping[str, Any],
    outputs: Mapping[str, Any],
    repeated: Sequence[Difference],
) -> dict[str, Any]:
    return {
        "model": request.session.model,
        "node": node.name,
        "operator": node.key,
        "folder": str(folder),
        "inputs": [entry.to_json() for entry in _summaries(reads)],
        "outputs": [entry.to_json() for entry in _summaries(outputs)],
        "reproduced": all(difference.agrees for difference in repeated),
        "differences": [difference.to_json() for difference in repeated],
    }


def _summaries(values: Mapping[str, Any]) -> list[OutputSummary]:
    return [entry for name, value in values.items() for entry in summarise(name, value)]


def _show(
    console: Console,
    node: Node,
    folder: Path,
    reads: Mapping[str, Any],
    outputs: Mapping[str, Any],
    repeated: Sequence[Difference],
) -> None:
    console.line(f"{console.style(node.name, 'bold')} ({node.key})")
    rows = [
        (title, entry.name, entry.type, "" if entry.shape is None else str(list(entry.shape)))
        for title, values in (("reads", reads), ("gives", outputs))
        for entry in _summaries(values)
    ]
    for line in console.columns(rows):
        console.line(f"  {line}")
    console.line()
    console.line(f"written to {folder}: model.onnx, test_data_set_0, inputs, outputs")
    wrong = [difference for difference in repeated if not difference.agrees]
    if not wrong:
        console.line("run by itself, the node gives the same bits")
        return
    for difference in wrong:
        console.line(
            f"run by itself, the node gives another {difference.name}: "
            f"{difference.problem or f'up to {difference.max_abs:.3g} away'}"
        )
