"""Runs one operator, or a model, by ONNX Runtime and by us, and compares what comes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from ep_core import InferenceSession

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

OPSETS = (helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1))


def operator_model(
    op_type: str,
    inputs: Sequence[Array | None],
    *,
    outputs: Sequence[str] = ("y0",),
    constants: Collection[int] = (),
    domain: str = "com.microsoft",
    attributes: Mapping[str, Any] | None = None,
    typed: Mapping[str, int] | None = None,
) -> tuple[onnx.ModelProto, Feeds]:
    """A model of one node and its feeds.

    Args:
        op_type: the operator.
        inputs: values; None for an input that is left out.
        outputs: names; empty for an output that isn't wanted.
        constants: positions of inputs that become initializers.
        domain: the operator's domain.
        attributes: the node's attributes; None for none.
        typed: element types of outputs that ONNX Runtime can't infer.
    """
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    node = helper.make_node(op_type, names, list(outputs), domain=domain)
    # Not as keyword arguments, among which an attribute may have the name of a parameter.
    for name, value in (attributes or {}).items():
        node.attribute.append(helper.make_attribute(name, value))
    present = {
        name: (index, value)
        for index, (name, value) in enumerate(zip(names, inputs, strict=True))
        if value is not None
    }
    feeds = {name: value for name, (index, value) in present.items() if index not in constants}
    fixed = [
        numpy_helper.from_array(value, name)
        for name, (index, value) in present.items()
        if index in constants
    ]
    infos = [
        helper.make_tensor_value_info(name, _element(value), value.shape)
        for name, value in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    for result in results:
        if typed and result.name in typed:
            result.type.tensor_type.elem_type = typed[result.name]
    graph = helper.make_graph([node], "one", infos, results, fixed)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10), feeds


def _element(value: Array) -> int:
    if value.dtype == object:
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def reference_session(model: onnx.ModelProto | str) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread, the graph as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    source = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def both(model: onnx.ModelProto | str, feeds: Feeds) -> tuple[list[Array], list[Array]]:
    """Our outputs and ONNX Runtime's."""
    with InferenceSession(model, providers=["cpu"]) as session:
        ours = session.run(None, feeds)
    return ours, reference_session(model).run(None, feeds)


def assert_same(
    model: onnx.ModelProto | str, feeds: Feeds, *, rtol: float = 1e-4, atol: float = 2e-5
) -> None:
    """Compare types, shapes and values; integers may differ by `atol` too."""
    ours, theirs = both(model, feeds)
    for mine, their in zip(ours, theirs, strict=True):
        assert mine.dtype == their.dtype
        assert mine.shape == their.shape
        if mine.dtype.kind in "iu":
            difference = np.abs(mine.astype(np.int64) - their.astype(np.int64))
            assert difference.max(initial=0) <= atol
        else:
            np.testing.assert_allclose(
                mine.astype(np.float64), their.astype(np.float64), rtol=rtol, atol=atol
            )


@dataclass(frozen=True)
class Case:
    """One operator to compare; `model` holds keywords of `operator_model`."""

    op_type: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Run it on both sides and compare."""
        given = operator_model(self.op_type, self.inputs, attributes=self.attributes, **self.model)
        assert_same(*given, **self.tolerance)


class Cases(dict[str, Case]):
    """Cases by a name that says what is special about each."""

    def add(
        self,
        name: str,
        inputs: Sequence[Array | None],
        *,
        tolerance: Mapping[str, float] | None = None,
        model: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> None:
        """Add a case; the operator is the first word of the name."""
        assert name not in self, name
        self[name] = Case(name.split()[0], inputs, attributes, tolerance or {}, model or {})
