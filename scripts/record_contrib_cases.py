"""Records the right answers to questions that onnx can't answer, from ONNX Runtime.

Run it where onnxruntime is installed: python scripts/record_contrib_cases.py
It writes the kit's data file; `--check` only says whether the file holds the same questions.
Operators that ONNX Runtime's CPU provider lacks are asked for in standard operators.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent))

from contrib_cases import (  # noqa: F401 - they register
    attention,
    elementwise,
    quantized,
    tensors,
    vectors,
)
from contrib_cases.asking import Array, Asked, asked
from contrib_cases.compositions import composed

from ep_compliance.cases.recipes.numbers import Numbers
from ep_compliance.cases.recorded.files import Question, written
from ep_core.types import DataType

FILE = Path(__file__).parents[1] / "compliance/src/ep_compliance/recorded/microsoft.jsonl"

_OPSET = 21
_IR_VERSION = 10
_CHANGE = 2.0**-12
"""Relative change of the inputs: far above the roundings of float32, far below their values."""

_DRAWS = 4
_NARROW = ("uint4", "int4", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
"""Types that cross ONNX Runtime's interface only as constants."""

_UNMOVED = frozenset({"GatherND", "Range", "Trilu", "Unique"})
"""Asked with whole numbers, whose changes would be other questions."""

_WITHOUT_KERNEL = frozenset(
    {
        "BiasAdd",
        "BiasSoftmax",
        "BiasSplitGelu",
        "FusedMatMulActivation",
        "GemmFastGelu",
        "GroupNorm",
        "Irfft",
        "NhwcConv",
        "NhwcFusedConv",
        "QLinearReduceMean",
        "Rfft",
        "SkipGroupNorm",
        "SwiGLU",
    }
)


def questions() -> Iterator[Asked]:
    """Every question; names are unique within an operator."""
    seen = set()
    for question in asked():
        assert (question.op_type, question.name) not in seen, (question.op_type, question.name)
        seen.add((question.op_type, question.name))
        yield question


def answered(question: Asked) -> Question:
    """The question with ONNX Runtime's answer and how strongly it moves."""
    outputs = _run(question, question.inputs)
    spreads = _spreads(question, outputs)
    places = iter(range(len(outputs)))
    order = [next(places) if wanted else None for wanted in question.outputs]
    return Question(
        domain=question.domain,
        op_type=question.op_type,
        name=question.name,
        inputs=question.inputs,
        outputs=[None if place is None else outputs[place] for place in order],
        spreads=[None if place is None else spreads[place] for place in order],
        attributes=question.attributes,
        constants=question.constants,
        mixed=question.mixed,
        fixed=question.fixed,
    )


def _run(question: Asked, inputs: Sequence[Array | None]) -> list[Array]:
    constants = _constant_places(question)
    defined = question.defined or question.op_type in _WITHOUT_KERNEL
    model = composed(question) if defined else _model(question, inputs, constants)
    feeds = {
        f"x{place}": value
        for place, value in enumerate(inputs)
        if value is not None and (defined or place not in constants)
    }
    outputs = [_plain(value) for value in _session(model).run(None, feeds)]
    if question.op_type == "QuantizeLinear" and len(inputs) > 2 and inputs[2] is not None:
        outputs[0] = outputs[0].astype(inputs[2].dtype)
    return outputs


def _plain(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UT" else array


def _constant_places(question: Asked) -> tuple[int, ...]:
    """Inputs that ONNX Runtime takes as constants only."""
    if question.op_type == "GatherBlockQuantized":
        return question.constants
    places = []
    for place, value in enumerate(question.inputs):
        if _is_narrow(value):
            places.append(place)
    return tuple(places)


def _is_narrow(value: Array | None) -> bool:
    return value is not None and DataType.from_numpy(value.dtype).text in _NARROW


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _model(
    question: Asked, inputs: Sequence[Array | None], constants: Sequence[int]
) -> onnx.ModelProto:
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    results = [f"y{place}" if wanted else "" for place, wanted in enumerate(question.outputs)]
    node = helper.make_node(question.op_type, names, results, domain=question.domain)
    for key, value in question.attributes.items():
        node.attribute.append(helper.make_attribute(key, value))
    infos, fixed = [], []
    for place, array in enumerate(inputs):
        if array is None:
            continue
        if place in constants:
            fixed.append(onnx.numpy_helper.from_array(array, names[place]))
        else:
            kind = int(DataType.from_numpy(array.dtype))
            infos.append(helper.make_tensor_value_info(names[place], kind, array.shape))
    nodes = [node]
    outputs = [onnx.ValueInfoProto(name=name) for name in results if name]
    if question.op_type == "QuantizeLinear" and _is_narrow(inputs[-1]):
        node.output[0] = "narrow"
        wide = helper.make_node("Cast", ["narrow"], ["y0"], to=int(DataType.INT8))
        nodes.append(wide)
    if question.op_type == "MultiHeadAttention" and len(outputs) == 4:
        # ONNX Runtime doesn't tell the type of this one.
        outputs[3].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(nodes, "one", infos, outputs, fixed)
    imports = [helper.make_opsetid("", _OPSET)]
    if question.domain:
        imports.append(helper.make_opsetid(question.domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _spreads(question: Asked, outputs: Sequence[Array]) -> list[Array | None]:
    """How far each float output moves, per relative change of the float inputs, at most."""
    is_float = any(value.dtype == np.float32 for value in outputs)
    if question.op_type in _UNMOVED or not is_float:
        return [None] * len(outputs)
    moved = [np.zeros(value.shape) for value in outputs]
    numbers = Numbers(f"{question.op_type} {question.name}")
    for _ in range(_DRAWS):
        changed = _run(question, [_changed(value, numbers) for value in question.inputs])
        for place, value in enumerate(outputs):
            if value.dtype == np.float32:
                distance = np.abs(changed[place].astype(np.float64) - value.astype(np.float64))
                moved[place] = np.maximum(moved[place], distance / _CHANGE)
    return [
        _power_above(spread) if value.dtype == np.float32 else None
        for spread, value in zip(moved, outputs, strict=True)
    ]


def _changed(value: Array | None, numbers: Numbers) -> Array | None:
    if value is None or value.dtype != np.float32:
        return value
    signs = numbers.random(value.shape, DataType.INT8, 0, 1).astype(np.float32) * 2 - 1
    return np.asarray(value * (1 + np.float32(_CHANGE) * signs)).astype(np.float32)


def _power_above(spread: Array) -> Array:
    """The power of two at or above each number, as one byte."""
    fraction, exponent = np.frexp(spread)
    exponent = np.where(fraction == 0.5, exponent - 1, exponent)
    exponent = np.where(spread == 0, -127, np.clip(exponent, -127, 127))
    return np.ldexp(1.0, exponent).astype(ml_dtypes.float8_e8m0fnu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether questions differ")
    args = parser.parse_args(arguments)
    source = f"onnxruntime {onnxruntime.__version__} (CPU)"
    text = written(source, [answered(question) for question in questions()])
    if args.check:
        same = _asked_in(text) == _asked_in(FILE.read_text(encoding="utf-8"))
        sys.stdout.write("the same questions\n" if same else "the questions differ\n")
        return 0 if same else 1
    FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(text.splitlines()) - 1} questions, {len(text)} bytes: {FILE}\n")
    return 0


def _asked_in(text: str) -> list[Mapping[str, Any]]:
    """What a file asks, without the answers, which differ in their last bits between machines."""
    records = [json.loads(line) for line in text.splitlines()[1:]]
    return [{k: v for k, v in r.items() if k not in ("outputs", "spreads")} for r in records]


if __name__ == "__main__":
    sys.exit(main())
