"""The model and operator cases that the onnx package brings, read from where it is installed."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("simple", "pytorch-converted", "pytorch-operator", "light")

NOT_COMPUTED = {
    "simple/test_gradient_of_add": "Gradient differentiates a part of the graph; nothing here does",
    "simple/test_gradient_of_add_and_mul": (
        "Gradient differentiates a part of the graph; nothing here does"
    ),
}
"""Cases that a session refuses, with the reason."""

RANDOM = frozenset(
    f"test_bernoulli{variant}{expanded}"
    for variant in ("", "_double", "_seed")
    for expanded in ("", "_expanded")
)
"""Cases of random draws: the numbers aren't ONNX's to say, only types, shapes and chances."""


@dataclass(frozen=True)
class Case:
    """A model with the right outputs for some inputs.

    Attributes:
        model: the model, or the path of its file.
        data_sets: pairs of inputs and outputs, in the order of the graph's.
        rtol, atol: how near floats must come, as the case says.
    """

    model: onnx.ModelProto | Path
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def model_names() -> list[str]:
    """`kind/name` of every model case."""
    folders = [f"{kind}/{path.name}" for kind in KINDS[:3] for path in (DATA / kind).iterdir()]
    light = [f"light/{path.stem}" for path in (DATA / "light").glob("*.onnx")]
    return sorted([name for name in folders if "/test_" in name] + light)


def model_case(name: str) -> Case:
    """Read one model case."""
    kind, _, short = name.partition("/")
    if kind == "light":
        path = DATA / kind / f"{short}.onnx"
        graph = onnx.load(path).graph
        constants = {tensor.name for tensor in graph.initializer}
        inputs = [ramp(value) for value in graph.input if value.name not in constants]
        outputs = [numpy_helper.to_array(_tensor(DATA / kind / f"{short}_output_0.pb"))]
        return Case(path, [(inputs, outputs)], 1e-3, 1e-7)
    folder = DATA / kind / short
    graph = onnx.load(folder / "model.onnx").graph
    sets = [
        (list(_values(one, "input", graph.input)), list(_values(one, "output", graph.output)))
        for one in sorted(folder.glob("test_data_set_*"))
    ]
    return Case(folder / "model.onnx", sets, 1e-3, 1e-7)


def ramp(value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    """What the light models are fed: equal steps from 0 towards 1."""
    shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def _values(folder: Path, role: str, infos: Any) -> Iterator[Any]:
    for index, info in enumerate(infos):
        path = folder / f"{role}_{index}.pb"
        if not path.exists():
            return
        if info.type.HasField("sequence_type"):
            sequence = onnx.SequenceProto()
            sequence.ParseFromString(path.read_bytes())
            yield numpy_helper.to_list(sequence)
        elif info.type.HasField("optional_type"):
            optional = onnx.OptionalProto()
            optional.ParseFromString(path.read_bytes())
            yield numpy_helper.to_optional(optional)
        else:
            yield as_value(_tensor(path))


def _tensor(path: Path) -> onnx.TensorProto:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor


@functools.lru_cache(maxsize=1)
def node_cases() -> dict[str, Case]:
    """All operator cases by name."""
    # The generators compute expected values with overflows on purpose.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {
            case.name: Case(
                case.model,
                [
                    ([as_value(value) for value in inputs], [as_value(value) for value in outputs])
                    for inputs, outputs in case.data_sets
                ],
                case.rtol,
                case.atol,
            )
            for case in collect_testcases(None)
        }


def as_value(value: Any) -> Any:
    """A test datum as a host value."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        return [as_value(item) for item in value]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UT" else array


# The references compute every step in the narrow type; we round only at the end.
_STEP = {np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 1.6e-2}


def compare(found: Any, expected: Any, rtol: float, atol: float) -> None:
    """Assert equal types, shapes and values; floats within the tolerance."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, rtol, atol)
        return
    if expected is None:
        assert found is None
        return
    assert isinstance(found, np.ndarray), type(found)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    rtol = max(rtol, _STEP.get(expected.dtype, 0))
    if expected.dtype.kind in "fcV":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            found.astype(kind), expected.astype(kind), rtol=rtol, atol=atol, equal_nan=True
        )
    else:
        assert found.tolist() == expected.tolist()
