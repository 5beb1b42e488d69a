"""Saves every partition of a placement as a model of its own, as its provider was given it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import onnx

from ep_core.errors import EpError, NotSupportedError, OptionError
from ep_core.graph import Subgraph, ValueInfo
from ep_core.report import PartitionReport
from ep_core.types import TensorType
from ep_tools.explain_external import MOST_INSIDE, data_path, split_model, weight_bytes
from ep_tools.explain_files import write_chunks, write_file
from ep_tools.explain_placing import Placed

__all__ = ["SavedPartitions", "check_folder", "save_partitions"]

_LONGEST_NAME = 80
_SUFFIX = ".onnx"
_SHOWN_FILES = 4


@dataclass(frozen=True)
class SavedPartitions:
    """What was written, and what isn't as it should be.

    Attributes:
        unranked: those of the files that `onnx.checker` refuses because the rank of an input or an
            output isn't known, which runtimes don't mind.
        failures: partitions that can't be models, with the reason.
    """

    files: tuple[Path, ...]
    unranked: tuple[Path, ...]
    failures: tuple[str, ...]

    @property
    def complaints(self) -> tuple[str, ...]:
        """What to warn of, in sentences."""
        if not self.unranked:
            return self.failures
        names = ", ".join(path.name for path in self.unranked[:_SHOWN_FILES])
        rest = len(self.unranked) - _SHOWN_FILES
        more = f" and {rest} more" if rest > 0 else ""
        told = (
            f"{len(self.unranked)} of {len(self.files)} models don't pass onnx.checker, as the "
            f"rank of an input or an output isn't known; --dim may tell it: {names}{more}"
        )
        return (*self.failures, told)


def check_folder(path: str) -> None:
    """Refuse a folder that can't be one, before any work is done.

    Raises:
        OptionError: it is a file, or isn't inside a folder.
    """
    folder = Path(path)
    if not path or (folder.exists() and not folder.is_dir()) or not folder.parent.is_dir():
        raise OptionError(
            f"--save-partitions '{path}'",
            expected="a folder, or the name of one to make in a folder that exists",
        )


def save_partitions(placed: Placed, folder: Path, *, force: bool) -> SavedPartitions:
    """Write `000-NAME.onnx` and so on, in the order of the report.

    A partition's inputs and outputs keep their names and order. It holds the constants that it
    reads, and none of the rewrites that a provider makes of its own. More than 1 GiB of constants
    are in a file beside the model, `000-NAME.onnx.data`. A partition that can't be a model (a value
    of unknown type) is left out.

    Args:
        force: write over files of these names.

    Raises:
        OptionError: a file is there already.
        EpError: the folder or a file can't be written.
    """
    paths = [folder / _file_name(i, part) for i, part in enumerate(placed.report.partitions)]
    both = (file for path in paths for file in (path, data_path(path)))
    taken = [path for path in both if path.exists()]
    if taken and not force:
        raise OptionError(
            f"'{taken[0]}' is there already",
            fix="Add --force to write over it, or empty the folder.",
        )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise EpError(f"can't make the folder '{folder}'", got=str(error)) from error
    places = {
        scope: {node.name: index for index, node in enumerate(graph.nodes)}
        for scope, graph in placed.graphs.items()
    }
    written = []
    unranked = []
    failures = []
    for path, part in zip(paths, placed.report.partitions, strict=True):
        graph = placed.graphs[part.scope]
        subgraph = Subgraph.cut(graph, (places[part.scope][name] for name in part.nodes), part.name)
        try:
            _save(subgraph, path)
        except NotSupportedError as error:
            failures.append(f"{part.name} isn't saved: {error}")
            continue
        written.append(path)
        if any(map(_lacks_rank, _boundary(subgraph))):
            unranked.append(path)
    return SavedPartitions(tuple(written), tuple(unranked), tuple(failures))


def _file_name(position: int, part: PartitionReport) -> str:
    """A name that every file system takes, whatever a provider is called."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", part.name)[:_LONGEST_NAME]
    return f"{position:03d}-{name}{_SUFFIX}"


def _boundary(subgraph: Subgraph) -> list[ValueInfo]:
    graph = subgraph.graph
    return [ValueInfo(name, graph.type_of(name)) for name in (*subgraph.inputs, *subgraph.outputs)]


def _lacks_rank(value: ValueInfo) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape is None


def _save(subgraph: Subgraph, path: Path) -> None:
    """Write the partition as a model that the checker has passed, but for ranks."""
    boundary = _boundary(subgraph)
    untyped = [value.name for value in boundary if value.type is None]
    if untyped:
        raise NotSupportedError(
            f"the type of {untyped[0]!r} isn't known", expected="a type for every input and output"
        )
    checked = not any(map(_lacks_rank, boundary))
    graph = subgraph.as_graph()
    if weight_bytes(graph) <= MOST_INSIDE:
        model = graph.to_model()
        if checked:
            _check(model)
        write_file(path, model.SerializeToString())
        return
    split = split_model(graph, path)
    # The data first: a model is never there without it. The checker wants to see both.
    write_chunks(data_path(path), split.chunks())
    write_file(path, split.model.SerializeToString())
    try:
        if checked:
            _check(str(path))
    except NotSupportedError:
        path.unlink()
        data_path(path).unlink()
        raise


def _check(model: onnx.ModelProto | str) -> None:
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise NotSupportedError(f"onnx.checker refuses it: {error}") from error
