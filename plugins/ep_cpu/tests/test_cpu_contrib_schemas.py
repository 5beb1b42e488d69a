"""Schemas of com.microsoft: what a model is held to when it is loaded, and the inferred types."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from cpu_harness import PROVIDER
from onnx import helper

from ep_core.errors import EpError, InvalidModelError
from ep_core.loading.load import load_model
from ep_core.types import DataType
from ep_cpu.schemas import microsoft_schemas

SCHEMAS = {schema.name: schema for schema in microsoft_schemas()}
F, F16, I8, U8, I32, I64 = (
    getattr(onnx.TensorProto, name)
    for name in ("FLOAT", "FLOAT16", "INT8", "UINT8", "INT32", "INT64")
)


def load(op_type, inputs, *, outputs=1, domain="com.microsoft", **attributes):
    """A model of the operator and a Neg behind it; `inputs` are (element type, shape) or None."""
    names = [f"x{i}" if given else "" for i, given in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    after = helper.make_node("Neg", ["side"], ["z"])
    infos = [
        helper.make_tensor_value_info(name, *given)
        for name, given in zip(names, inputs, strict=True)
        if given
    ]
    infos.append(helper.make_tensor_value_info("side", F, ["N", 7]))
    found = [onnx.ValueInfoProto(name=name) for name in (*results, "z")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node, after], "one", infos, found)
    return load_model(helper.make_model(graph, opset_imports=imports, ir_version=8)).graph


def test_every_schema_has_a_kernel_and_keys_of_rows_are_inputs():
    rows = {row.op_type: row for row in PROVIDER.table if row.domain == "com.microsoft"}
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert set(SCHEMAS) - set(rows) == {"SimplifiedLayerNormalization"}
    # These share their name with a standard operator, and onnx wants names to be unique.
    assert set(rows) - set(SCHEMAS) <= standard
    for name, row in rows.items():
        if name in SCHEMAS:
            assert all(key < len(SCHEMAS[name].inputs) for key in row.types)


def test_the_reference_implementation_can_still_be_imported():
    """It refuses a table in which two domains have an operator of one name."""
    code = "import ep_core.discovery.registry as r; r.registry().factory('cpu'); "
    code += "import onnx; assert onnx.defs.has('FastGelu', domain='com.microsoft'); "
    subprocess.run([sys.executable, "-c", code + "import onnx.reference"], check=True)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("FastGelu", [], {}, "number of inputs"),
        ("FastGelu", [(F, [2])] * 3, {}, "number of inputs"),
        ("BiasGelu", [(F, [2]), None], {}, "required"),
        ("FusedMatMul", [(F, [2, 2])] * 2, {"transC": 1}, "transA"),
        ("FusedMatMul", [(F, [2, 2])] * 2, {"transA": 1.0}, "wrong type"),
        ("MatMulNBits", [(F, [2, 2])] * 3, {"K": 1, "N": 1}, "block_size"),
        ("MultiHeadAttention", [(F, [2, 2, 2])], {}, "num_heads"),
    ],
)
def test_nodes_that_break_their_schema(op_type, inputs, attributes, text):
    with pytest.raises(InvalidModelError, match=text):
        load(op_type, inputs, **attributes)


# Expected types stand as (element type, shape) per output; a name in a shape is a symbol.
INFERRED = {
    "FusedConv": ([(F, ["N", 3, 9, 9]), (F, [4, 3, 3, 3])], {"pads": [1, 1, 0, 0]},
                  [(F, ("N", 4, 8, 8))]),
    "NhwcFusedConv": ([(F16, [1, 9, "W", 3]), (F16, [4, 3, 3, 3])], {"strides": [2, 1]},
                      [(F16, (1, 4, None, 4))]),
    "FusedMatMul": ([(F, [5, 4, 2, 3]), (F, [4, 2, 7, 3])], {"transBatchA": 1, "transB": 1},
                    [(F, (4, 2, 5, 7))]),
    "FusedGemm": ([(F, [4, "M"]), (F, [6, 4])], {"transA": 1, "transB": 1},
                  [(F, ("M", 6))]),
    "MatMulNBits": ([(F, ["B", "S", 32]), (U8, [5, 2, 8]), (F, [5, 2])],
                    {"K": 32, "N": 5, "block_size": 16}, [(F, ("B", "S", 5))]),
    "BiasSplitGelu": ([(F, [2, "S", 8]), (F, [8])], {}, [(F, (2, "S", 4))]),
    "SkipLayerNormalization": ([(F16, ["B", "S", 8]), (F16, ["B", "S", 8]), (F16, [8])], {},
                               [(F16, ("B", "S", 8)), (F, ("B", "S", 1)), (F, ("B", "S", 1)),
                                (F16, ("B", "S", 8))]),
    "EmbedLayerNormalization": ([(I32, ["B", 5]), None, (F, [9, 8]), (F, [5, 8]), None, (F, [8]),
                                 (F, [8])], {}, [(F, ("B", 5, 8)), (I32, ("B",))]),
    "QAttention": ([(U8, ["B", 5, 6]), (I8, [6, 24]), (F, [24]), (F, []), (F, [])],
                   {"num_heads": 2}, [(F, ("B", 5, 8)), (F, (2, "B", 2, 5, 4))]),
    "MultiHeadAttention": ([(F, ["B", 3, 16]), (F, ["B", "L", 16]), (F, ["B", "L", 16])],
                           {"num_heads": 2},
                           [(F, ("B", 3, 16)), (F, ("B", 2, "L", 8)), (F, ("B", 2, "L", 8)),
                            (F, ("B", 2, 3, "L"))]),
    "GroupQueryAttention": ([(F16, ["B", "S", 64]), None, None, None, None, (I32, ["B"]),
                             (I32, [1])], {"num_heads": 4, "kv_num_heads": 2},
                            [(F16, ("B", "S", 32)), (F16, ("B", 2, None, 8)),
                             (F16, ("B", 2, None, 8))]),
    "QLinearAdd": ([(U8, ["N", 1, 4]), (F, []), (U8, []), (U8, [3, 4]), (F, []), (U8, []), (F, []),
                    (U8, [])], {}, [(U8, ("N", 3, 4))]),
    "QLinearConcat": ([(F, []), (I8, []), (I8, [2, 3]), (F, []), (I8, []), (I8, [2, 4]), (F, []),
                       (I8, [])], {"axis": -1}, [(I8, (2, 7))]),
    "QLinearAveragePool": ([(U8, [1, 8, 8, 3]), (F, []), (U8, []), (F, []), (U8, [])],
                           {"channels_last": 1, "kernel_shape": [2, 2], "strides": [2, 2]},
                           [(U8, (1, 4, 4, 3))]),
    "QLinearReduceMean": ([(U8, ["N", 3, 8]), (F, []), (U8, []), (F, []), (U8, [])],
                          {"axes": [2], "keepdims": 0}, [(U8, ("N", 3))]),
    "QGemm": ([(U8, [2, 4]), (F, []), (U8, []), (I8, [4, 5]), (F, []), (I8, [])], {},
              [(F, (2, 5))]),
    "DynamicQuantizeLSTM": ([(F, ["T", "B", 3]), (I8, [2, 3, 16]), (I8, [2, 4, 16]), None, None,
                             None, None, None, (F, [2]), (I8, [2]), (F, [2]), (I8, [2])],
                            {"hidden_size": 4, "direction": "bidirectional"},
                            [(F, ("T", 2, "B", 4)), (F, (2, "B", 4)), (F, (2, "B", 4))]),
    "GatherBlockQuantized": ([(U8, [9, 16]), (I64, ["B", "S"]), (F, [9, 2])], {"block_size": 16},
                             [(F, ("B", "S", 32))]),
    "Rfft": ([(F, ["N", 9])], {"signal_ndim": 1}, [(F, ("N", 5, 2))]),
    "MurmurHash3": ([(I64, ["N"])], {"positive": 0}, [(I32, ("N",))]),
}  # fmt: skip


@pytest.mark.parametrize("op_type", INFERRED)
def test_inferred_types(op_type):
    inputs, attributes, expected = INFERRED[op_type]
    graph = load(op_type, inputs, outputs=len(expected), **attributes)
    for index, (kind, shape) in enumerate(expected):
        found = graph.type_of(f"y{index}")
        assert found.dtype == DataType(kind)
        # onnx puts names of its own where a length has none.
        plain = [None if str(dim).startswith("unk__") else dim for dim in found.shape]
        assert tuple(plain) == shape


def test_simplified_normalisation_in_the_standard_domain():
    graph = load(
        "SimplifiedLayerNormalization", [(F16, ["B", 3, 4]), (F, [3, 4])], outputs=2, domain="",
        axis=1,
    )  # fmt: skip
    assert (graph.type_of("y0").dtype, graph.type_of("y0").shape) == (DataType.FLOAT, ("B", 3, 4))
    assert (graph.type_of("y1").dtype, graph.type_of("y1").shape) == (DataType.FLOAT, ("B", 1, 1))


STRANGE = {
    "i": [0, -1, 1, 2**62, -(2**63)],
    "is": [[0], [0, 0], [-1], [2**62, -(2**63)], [0] * 9],
    "f": [0.0, float("nan"), -1e30],
    "fs": [[float("inf")]],
    "s": ["", "SAME_UPPER", "x"],
    "ss": [["", "x"]],
}
KINDS = {"INT": "i", "INTS": "is", "FLOAT": "f", "FLOATS": "fs", "STRING": "s", "STRINGS": "ss"}


@pytest.mark.parametrize("op_type", SCHEMAS)
def test_strange_attributes_and_shapes_cost_no_other_type(op_type):
    """Whatever stands in the node, it doesn't crash and the node behind it has its type."""
    schema = SCHEMAS[op_type]
    rng = np.random.default_rng(18)
    shapes = [None, [], [0], [1, 0], ["N", 3, 3], [2, 3, 4, 5], [2**40, 2], ["a", "b", "c", "d", 1]]
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for _ in range(40):
        attributes = {
            name: STRANGE[kind][rng.integers(len(STRANGE[kind]))]
            for name, item in schema.attributes.items()
            for kind in [KINDS[item.type.name]]
            if item.required or rng.random() < 0.5
        }
        inputs = [
            (int(rng.choice([F, U8, I64])), shapes[rng.integers(len(shapes))])
            if item.option == single or rng.random() < 0.7
            else None
            for item in schema.inputs
        ]
        try:
            graph = load(
                op_type, inputs, outputs=len(schema.outputs), domain=schema.domain, **attributes
            )
        except EpError:
            continue
        assert graph.type_of("z").shape == ("N", 7)
