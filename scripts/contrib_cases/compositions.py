"""What some operators of com.microsoft say, in standard operators.

Where ONNX Runtime has no kernel for its CPU provider it is asked this instead; where it has one,
the kit's own evaluation of this checks the recorded answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from contrib_cases.asking import Asked
from ep_core.types import DataType

__all__ = ["Build", "composed", "has_composition", "rule"]

_OPSET = 23


class Build:
    """A model that grows node by node. Inputs are called by their places in the question."""

    def __init__(self, question: Asked) -> None:
        self.question = question
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, place: int) -> str:
        """An input's name; the empty text where it is left out."""
        inputs = self.question.inputs
        present = place < len(inputs) and inputs[place] is not None
        return f"x{place}" if present else ""

    def shape(self, place: int) -> tuple[int, ...]:
        """An input's shape."""
        value = self.question.inputs[place]
        assert value is not None
        return tuple(value.shape)

    def attr(self, name: str, default: Any) -> Any:
        """An attribute of the question."""
        return self.question.attributes.get(name, default)

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """A constant's name."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; returns its name."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def many(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; returns their names."""
        names = [f"v{len(self._nodes)}_{place}" for place in range(count)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names

    def sum(self, *names: str) -> str:
        """The sum of those that are there."""
        present = [name for name in names if name]
        total = present[0]
        for name in present[1:]:
            total = self("Add", total, name)
        return total

    def model(self, results: Sequence[str]) -> onnx.ModelProto:
        """The model, with one output for each that the question asks for."""
        wanted = [
            name for name, asked in zip(results, self.question.outputs, strict=False) if asked
        ]
        infos = [
            helper.make_tensor_value_info(
                f"x{place}", int(DataType.from_numpy(value.dtype)), value.shape
            )
            for place, value in enumerate(self.question.inputs)
            if value is not None
        ]
        outputs = []
        for place, name in enumerate(wanted):
            self._nodes.append(helper.make_node("Identity", [name], [f"y{place}"]))
            outputs.append(onnx.ValueInfoProto(name=f"y{place}"))
        graph = helper.make_graph(self._nodes, "composed", infos, outputs, self._constants)
        imports = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


_Rule = Callable[[Build], Sequence[str]]
_RULES: dict[str, _Rule] = {}


def rule(names: str) -> Callable[[_Rule], _Rule]:
    """Register the decorated function for the operators named in a text."""

    def add(function: _Rule) -> _Rule:
        for name in names.split():
            _RULES[name] = function
        return function

    return add


def _rules() -> Mapping[str, _Rule]:
    for name in ("attention_compositions", "code_compositions", "row_compositions"):
        importlib.import_module(f"contrib_cases.{name}")
    return _RULES


def has_composition(question: Asked) -> bool:
    """True if the question can be put in standard operators."""
    from contrib_cases.attention_compositions import attends_plainly

    attends = question.op_type in ("MultiHeadAttention", "GroupQueryAttention")
    return question.op_type in _rules() and (not attends or attends_plainly(question))


def composed(question: Asked) -> onnx.ModelProto:
    """The question in standard operators; inputs are `x0`, `x1`, ... as they are there."""
    build = Build(question)
    return build.model(_rules()[question.op_type](build))


# ---------------------------------------------------------------- activations


@rule("Gelu BiasGelu")
def _gelu(b: Build) -> Sequence[str]:
    return [b("Gelu", b.sum(b.input(0), b.input(1)))]


@rule("FastGelu")
def _fast_gelu(b: Build) -> Sequence[str]:
    return [b("Gelu", b.sum(b.input(0), b.input(1)), approximate="tanh")]


@rule("QuickGelu")
def _quick_gelu(b: Build) -> Sequence[str]:
    slope = b.constant(b.attr("alpha", 1.702))
    return [b("Mul", b.input(0), b("Sigmoid", b("Mul", b.input(0), slope)))]


@rule("BiasSplitGelu")
def _bias_split_gelu(b: Build) -> Sequence[str]:
    whole = b("Add", b.input(0), b.input(1))
    left, right = _halves(b, whole, b.shape(0)[-1])
    return [b("Mul", left, b("Gelu", right))]


def _halves(b: Build, whole: str, length: int) -> tuple[str, str]:
    axis = b.constant([-1], np.int64)
    ends = [b.constant([value], np.int64) for value in (0, length // 2, length)]
    return (
        b("Slice", whole, ends[0], ends[1], axis),
        b("Slice", whole, ends[1], ends[2], axis),
    )


@rule("BiasAdd")
def _bias_add(b: Build) -> Sequence[str]:
    return [b.sum(b.input(0), b.input(1), b.input(2))]


@rule("BiasSoftmax")
def _bias_softmax(b: Build) -> Sequence[str]:
    whole = b("Add", b.input(0), b.input(1))
    rank = len(b.shape(0))
    assert b.attr("axis", rank - 1) == rank - 1
    return [b("Softmax", whole, axis=-1)]


@rule("SwiGLU")
def _swiglu(b: Build) -> Sequence[str]:
    gate, up = b.input(0), b.input(1)
    if not up:
        gate, up = _halves(b, gate, b.shape(0)[-1])
    limit = b.attr("limit", 0.0)
    if limit > 0:
        low, high = b.constant(-limit), b.constant(limit)
        gate, up = b("Clip", gate, "", high), b("Clip", up, low, high)
    slope = b.constant(b.attr("activation_alpha", 1.0))
    gated = b("Mul", gate, b("Sigmoid", b("Mul", gate, slope)))
    return [b("Mul", gated, b("Add", up, b.constant(b.attr("activation_beta", 0.0))))]


def _activated(b: Build, x: str) -> str:
    """The activation that a fused operator names, with parameters in either of two forms."""
    name = b.attr("activation", "")
    if not name:
        return x
    listed = list(b.attr("activation_params", []))
    named = {
        key: b.attr(f"activation_{key}", None)
        for key in ("alpha", "beta", "gamma")
        if b.attr(f"activation_{key}", None) is not None
    }
    if name == "Clip":
        return b("Clip", x, b.constant(listed[0]), b.constant(listed[1]))
    return b(name, x, **named, **dict(zip(("alpha", "beta"), listed, strict=False)))


# ---------------------------------------------------------------- products


def _turned(b: Build, place: int, batch: int, last: int) -> str:
    order = list(range(len(b.shape(place))))
    if batch:
        order.insert(len(order) - 2, order.pop(0))
    if last:
        order[-1], order[-2] = order[-2], order[-1]
    if order == sorted(order):
        return b.input(place)
    # The axes as they are found, at the places where they go.
    return b("Transpose", b.input(place), perm=order)


def _matrices(b: Build) -> str:
    left = _turned(b, 0, b.attr("transBatchA", 0), b.attr("transA", 0))
    right = _turned(b, 1, b.attr("transBatchB", 0), b.attr("transB", 0))
    return b("Mul", b("MatMul", left, right), b.constant(b.attr("alpha", 1.0)))


@rule("FusedMatMul TransposeMatMul")
def _fused_matmul(b: Build) -> Sequence[str]:
    return [_matrices(b)]


@rule("FusedMatMulActivation")
def _fused_matmul_activation(b: Build) -> Sequence[str]:
    return [_activated(b, _matrices(b))]


@rule("FusedGemm")
def _fused_gemm(b: Build) -> Sequence[str]:
    given = {
        name: b.question.attributes[name]
        for name in ("alpha", "beta", "transA", "transB")
        if name in b.question.attributes
    }
    inputs = [name for name in (b.input(0), b.input(1), b.input(2)) if name]
    return [_activated(b, b("Gemm", *inputs, **given))]


@rule("GemmFastGelu")
def _gemm_fast_gelu(b: Build) -> Sequence[str]:
    product = b.sum(b("MatMul", b.input(0), b.input(1)), b.input(2))
    return [b("Gelu", product, approximate="tanh")]


@rule("FusedConv NhwcFusedConv NhwcConv")
def _convolution(b: Build) -> Sequence[str]:
    rank = len(b.shape(0))
    last = b.question.op_type.startswith("Nhwc")
    inside = [0, rank - 1, *range(1, rank - 1)]
    outside = [0, *range(2, rank), 1]
    x, residual = b.input(0), b.input(3)
    if last:
        x = b("Transpose", x, perm=inside)
        residual = b("Transpose", residual, perm=inside) if residual else ""
    fused = ("activation", "activation_params")
    given = {k: v for k, v in b.question.attributes.items() if k not in fused}
    inputs = [x, b.input(1), *([b.input(2)] if b.input(2) else [])]
    y = _activated(b, b.sum(b("Conv", *inputs, **given), residual))
    return [b("Transpose", y, perm=outside) if last else y]
