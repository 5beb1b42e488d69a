"""A model in: from a path, bytes or a proto to a `Graph` that is safe to run.

The steps, in order: read, check the header, inline local functions, convert, validate, infer
types. Each has a module of its own beside this one; what passes them needs no further checks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path

import onnx

from ep_core.errors import InvalidModelError, NotSupportedError
from ep_core.graph import Graph
from ep_core.loading.convert import Converter
from ep_core.loading.external import ExternalFiles
from ep_core.loading.functions import inline_functions
from ep_core.loading.infer import fix_dimensions, infer_types
from ep_core.loading.limits import LoadLimits, plain_domain, text
from ep_core.loading.payloads import LEAST_FILE_BYTES, lift_payloads
from ep_core.loading.schemas import check_opset
from ep_core.loading.scopes import rename_shadowing
from ep_core.loading.tensors import TensorReader
from ep_core.loading.validate import check_graph
from ep_core.types import OpSet

__all__ = ["LoadLimits", "Model", "ModelMetadata", "load_model"]


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself, under ONNX Runtime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A loaded model."""

    graph: Graph
    metadata: ModelMetadata


def load_model(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    limits: LoadLimits | None = None,
    free_dimensions: Mapping[str, int] | None = None,
) -> Model:
    """Load and check a model.

    Args:
        source: a path, the bytes of a model file, or a proto, which is not changed. Only a model
            loaded by path may have external data.
        limits: what to put up with; the defaults suit any honest model.
        free_dimensions: lengths for symbolic dimensions of the inputs, by name.

    Returns:
        The graph, with `Constant` nodes and sparse initializers as initializers, functions
        inlined, names unique across nested bodies, and types inferred.

    Raises:
        InvalidModelError: the model can't be read or breaks the ONNX specification.
        ModelLimitError: it exceeds one of `limits`.
        UnsafePathError: its external data lies outside its folder.
        NotSupportedError: it is newer than the installed onnx, or uses what nothing here handles.
        OptionError: a name in `free_dimensions` that no input has.
    """
    limits = limits or LoadLimits()
    data, path = _read(source, limits)
    small, payloads = lift_payloads(data)
    proto = _parse(small, data)
    del data
    try:
        reader = TensorReader(ExternalFiles(path), limits, payloads)
        return _load(proto, reader, limits, free_dimensions)
    except UnicodeDecodeError as error:  # protobuf takes such names in and doesn't let them out
        raise InvalidModelError(f"A name in the model isn't valid UTF-8 ({error})") from error


def _load(
    proto: onnx.ModelProto,
    reader: TensorReader,
    limits: LoadLimits,
    free_dimensions: Mapping[str, int] | None,
) -> Model:
    _check_version(proto)
    proto = inline_functions(proto, limits)
    rename_shadowing(proto.graph)
    converter = Converter(
        _opsets(proto),
        reader,
        limits,
        constant_initializers=proto.ir_version < 4,
    )
    graph = converter.convert(proto.graph)
    check_graph(graph)
    if free_dimensions:
        graph = fix_dimensions(graph, free_dimensions)
    metadata = _metadata(proto)
    return Model(infer_types(graph, proto), metadata)


# ---------------------------------------------------------------- reading


def _read(source: object, limits: LoadLimits) -> tuple[bytes | mmap, Path | None]:
    path: Path | None = None
    data: bytes | mmap
    if isinstance(source, onnx.ModelProto):
        data = _serialized(source)
    elif isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
    elif isinstance(source, str | os.PathLike):
        if not os.fsdecode(source):
            raise InvalidModelError("The path of the model is empty")
        path = Path(os.fsdecode(source))
        data = _read_file(path, limits)
    else:
        raise InvalidModelError(
            "There is no model to load",
            expected="a path, bytes or onnx.ModelProto",
            got=type(source).__name__,
        )
    limits.check("max_file_bytes", len(data), "The size of the model")
    if not data:
        raise InvalidModelError(f"The model {path or ''} is empty".replace("  ", " "))
    return data, path


def _serialized(proto: onnx.ModelProto) -> bytes:
    try:
        data: bytes = proto.SerializeToString()
    except Exception as error:  # onnx doesn't export protobuf's exceptions
        raise InvalidModelError(
            f"The model proto can't be serialized ({error})",
            expected="at most 2 GiB and about 30 nested graphs",
            fix="Save a large model with external data and load it by path.",
        ) from error
    return data


def _read_file(path: Path, limits: LoadLimits) -> bytes | mmap:
    """What is in a file; a large one is mapped, for as long as it is being looked through."""
    try:
        status = path.stat()
        # Checked before opening: to open a pipe would wait for a writer.
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a special file"
            raise InvalidModelError(
                f"The model can't be read from {str(path)!r}",
                expected="a file",
                got=kind,
                fix="Give the path of the .onnx file itself.",
            )
        limits.check("max_file_bytes", status.st_size, f"The size of {str(path)!r}")
        with path.open("rb") as file:
            if status.st_size >= LEAST_FILE_BYTES:
                return mmap(file.fileno(), 0, access=ACCESS_READ)
            return file.read(limits.max_file_bytes + 1)
    except FileNotFoundError as error:
        raise InvalidModelError(
            f"There is no model file {str(path)!r}",
            fix=f"Paths are relative to {str(Path.cwd())!r}.",
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidModelError(f"The model {str(path)!r} can't be read ({error})") from error


def _parse(small: bytes, data: bytes | mmap) -> onnx.ModelProto:
    """Parse what is left of a model; `data` is all of it."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(small)
    except Exception as error:  # onnx doesn't export protobuf's exceptions
        raise InvalidModelError(
            f"This is no ONNX model, or a damaged one ({error})",
            expected="a complete serialized onnx.ModelProto with at most about 30 nested graphs",
            got=f"{len(data)} bytes that don't parse, beginning with {bytes(data[:16])!r}",
            fix="Check that the download was complete and isn't a web page or a Git LFS pointer.",
        ) from error
    return proto


# ---------------------------------------------------------------- the header


def _check_version(proto: onnx.ModelProto) -> None:
    if proto.ir_version < 1 or not proto.HasField("graph"):
        raise InvalidModelError(
            "This is no ONNX model",
            expected="an IR version and a graph",
            got=f"IR version {proto.ir_version} and "
            f"{'a' if proto.HasField('graph') else 'no'} graph",
        )
    if proto.ir_version > onnx.IR_VERSION:
        raise NotSupportedError(
            f"The model has IR version {proto.ir_version}",
            expected=f"at most {onnx.IR_VERSION}, the newest that onnx {onnx.__version__} knows",
            fix="Upgrade the onnx package, or export the model with an older IR version.",
        )


def _opsets(proto: onnx.ModelProto) -> OpSet:
    versions: dict[str, int] = {}
    for item in proto.opset_import:
        domain = plain_domain(text(item.domain, "A domain in opset_import"))
        if versions.setdefault(domain, item.version) != item.version:
            raise InvalidModelError(
                f"The model imports domain {domain or 'ai.onnx'!r} in two versions",
                got=f"{versions[domain]} and {item.version}",
            )
        check_opset(domain, item.version)
    if proto.ir_version < 3:
        versions.setdefault("", 1)  # opset_import came with IR version 3
    return OpSet(versions)


def _metadata(proto: onnx.ModelProto) -> ModelMetadata:
    custom = {
        text(item.key, "A metadata key"): text(item.value, "A metadata value")
        for item in proto.metadata_props
    }
    return ModelMetadata(
        producer_name=text(proto.producer_name, "The producer's name"),
        graph_name=text(proto.graph.name, "The name of a graph"),
        domain=text(proto.domain, "The model's domain"),
        description=text(proto.doc_string, "The model's documentation"),
        graph_description=text(proto.graph.doc_string, "The documentation of a graph"),
        version=proto.model_version,
        custom_metadata_map=custom,
    )
