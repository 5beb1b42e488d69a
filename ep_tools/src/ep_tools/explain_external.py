"""A partition whose constants are too large for one file: they go into a file beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from ep_core.graph import Graph, Initializer
from ep_core.loading.export import tensor_proto
from ep_core.types import DataType

__all__ = ["MOST_INSIDE", "SplitModel", "data_path", "split_model", "weight_bytes"]

MOST_INSIDE = 2**30
"""Bytes of constants up to which a model is one file. Protobuf ends at twice that."""
_LEAST_OUTSIDE = 1024
"""Smaller ones stay inside, for shape inference wants to see shapes and axes."""
_ALIGNMENT = 4096
"""Where a tensor may begin, so that it can be mapped into memory."""

_EXTERNAL = onnx.TensorProto.EXTERNAL


@dataclass(frozen=True)
class SplitModel:
    """A model, and the tensors that it expects in the file of its name with `.data` after it."""

    model: onnx.ModelProto
    outside: tuple[Initializer, ...]

    def chunks(self) -> Iterator[bytes]:
        """The content of that file, a tensor at a time."""
        written = 0
        for tensor in self.outside:
            padding = _aligned(written) - written
            content = tensor_proto(tensor.numpy()).raw_data
            written += padding + len(content)
            yield bytes(padding)
            yield content


def data_path(path: Path) -> Path:
    """The file beside a model that holds its tensors."""
    return path.with_name(f"{path.name}.data")


def weight_bytes(graph: Graph) -> int:
    """Bytes of the constants of a graph, without those of bodies and attributes."""
    return sum(tensor.nbytes for tensor in graph.initializers.values())


def split_model(graph: Graph, path: Path) -> SplitModel:
    """Return a graph's model without its large constants, which it expects beside `path`.

    Raises:
        NotSupportedError: what stays inside exceeds the 2 GiB that protobuf can hold.
    """
    outside = {
        name: tensor
        for name, tensor in graph.initializers.items()
        if tensor.nbytes >= _LEAST_OUTSIDE and tensor.dtype is not DataType.STRING
    }
    inside = {name: t for name, t in graph.initializers.items() if name not in outside}
    model = graph.replace(initializers=inside).to_model()
    # What nothing defines has become an input.
    inputs = [value for value in model.graph.input if value.name not in outside]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    offset = 0
    for name, tensor in outside.items():
        offset = _aligned(offset)
        proto = model.graph.initializer.add(
            name=name, dims=tensor.shape, data_type=tensor.dtype, data_location=_EXTERNAL
        )
        places = {"location": data_path(path).name, "offset": offset, "length": tensor.nbytes}
        for key, value in places.items():
            proto.external_data.add(key=key, value=str(value))
        offset += tensor.nbytes
    return SplitModel(model, tuple(outside.values()))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
