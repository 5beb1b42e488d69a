"""Random small models for property tests.

Elementwise and shape operators on odd values (NaN, -0.0, infinities, denormals, wrapping integers),
with constants, unused nodes, duplicates, several outputs, and bodies that capture outer values.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper
from pass_equivalence import FLOATS

ONNX_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(bool): TensorProto.BOOL,
}
ARITHMETIC = [d for d in ONNX_TYPES if d.kind in "fi"]
SHAPES = [(), (1,), (3,), (2, 3), (1, 3), (2, 1, 3), (0, 3)]
UNARY = ["Neg", "Abs", "Identity", "Dropout", "Relu", "Sign"]
STEPS = [
    *["unary", "binary", "binary", "binary", "cast", "cast", "transpose", "reshape", "squeeze"],
    *["unsqueeze", "slice", "expand", "pad", "concat", "where", "shape", "gather", "again", "if"],
]
BINARY = ["Add", "Sub", "Mul", "Max"]
ODD = {
    "f": [*FLOATS, 1.0, 1.0, 0.0, -0.0],
    "i": [0, 1, -1, 127, -128, 1, 0],
    "b": [True, False],
}


class Builder:
    """Draws one graph; `values` holds name, dtype and shape of everything that can be read."""

    def __init__(self, draw, prefix="", values=(), counter=None):
        self.draw = draw
        self.prefix = prefix
        self.values = list(values)
        self.nodes = []
        self.constants = []
        self.counter = counter or itertools.count()

    def pick(self, choices):
        return self.draw(st.sampled_from(list(choices)))

    def name(self):
        return f"{self.prefix}v{next(self.counter)}"

    def array(self, dtype, shape):
        count = int(np.prod(shape))
        values = [self.pick(ODD[dtype.kind]) for _ in range(min(count, 3))]
        with np.errstate(all="ignore"):
            return np.resize(np.array(values or [0]), shape).astype(dtype)

    def constant(self, dtype, shape, array=None):
        name = self.name()
        array = self.array(dtype, shape) if array is None else array
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def integers(self, *values):
        return self.constant(np.dtype(np.int64), None, np.array(values, np.int64))

    def emit(self, op_type, inputs, dtype, shape, **attributes):
        name = self.name()
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"n_{name}", **attributes))
        self.values.append((name, np.dtype(dtype), tuple(shape)))
        return self.values[-1]

    def source(self):
        """Something to read: a value, or a constant with a good chance of zeros and ones."""
        if self.values and self.draw(st.integers(0, 3)):
            return self.pick(self.values[-6:])
        dtype, shape = self.pick(ARITHMETIC), self.pick(SHAPES)
        name = self.constant(dtype, shape)
        self.values.append((name, dtype, shape))
        return self.values[-1]

    def step(self):
        getattr(self, f"add_{self.pick(STEPS)}")(*self.source())

    def add_unary(self, name, dtype, shape):
        op_type = self.pick(UNARY) if dtype.kind in "fi" else "Identity"
        if dtype.kind != "f" and op_type in ("Dropout", "Relu"):
            op_type = "Identity"
        self.emit(op_type, [name], dtype, shape)

    def add_binary(self, name, dtype, shape):
        if dtype.kind == "b":
            return
        other = self.constant(dtype, self.pick([(), (1,), shape, shape[-1:]]))
        alike = [v for v in self.values if v[1:] == (dtype, shape)]
        if alike and self.draw(st.booleans()):
            other = self.pick(alike)[0]
        op_type = self.pick(BINARY)
        inputs = [name, other] if self.draw(st.booleans()) else [other, name]
        result = (1,) if shape == () and self.shape_of(other) == (1,) else shape
        self.emit(op_type, inputs, dtype, result)

    def shape_of(self, name):
        for constant in self.constants:
            if constant.name == name:
                return tuple(constant.dims)
        return None

    def add_cast(self, name, dtype, shape):
        # Casting NaN and the like to integers is undefined.
        targets = st.sampled_from(list(ONNX_TYPES))
        for target in self.draw(st.lists(targets, min_size=1, max_size=2)):
            if dtype.kind == "f" and target.kind in "i":
                return
            name, dtype, _ = self.emit("Cast", [name], target, shape, to=ONNX_TYPES[target])

    def add_transpose(self, name, dtype, shape):
        order = self.draw(st.permutations(range(len(shape))))
        moved = [shape[axis] for axis in order]
        if order:
            self.emit("Transpose", [name], dtype, moved, perm=order)

    def add_reshape(self, name, dtype, shape):
        count = int(np.prod(shape))
        targets = [shape, (count,), (1, count), (*shape, 1)]
        if count:
            targets += [(-1,), (*shape[:-1], -1) if shape else (-1,)]
        target = self.pick(targets)
        result = np.zeros(shape, bool).reshape(target).shape
        allowzero = {} if count else {"allowzero": 1}
        self.emit("Reshape", [name, self.integers(*target)], dtype, result, **allowzero)

    def add_squeeze(self, name, dtype, shape):
        ones = [axis for axis, length in enumerate(shape) if length == 1]
        if ones:
            axis = self.pick(ones)
            inputs = [name, self.integers(self.pick([axis, axis - len(shape)]))]
            self.emit("Squeeze", inputs, dtype, shape[:axis] + shape[axis + 1 :])

    def add_unsqueeze(self, name, dtype, shape):
        axis = self.draw(st.integers(0, len(shape)))
        result = (*shape[:axis], 1, *shape[axis:])
        inputs = [name, self.integers(self.pick([axis, axis - len(result)]))]
        self.emit("Unsqueeze", inputs, dtype, result)

    def add_slice(self, name, dtype, shape):
        if not shape:
            return
        start, end = self.pick([(0, 2**31 - 1), (0, 2), (1, 5), (-2, 9)])
        step = self.pick([1, 1, -1, 2])
        if step < 0:
            start, end = -1, -9
        kept = np.zeros(shape[0])[slice(start, end if end > -9 else None, step)]
        inputs = [name, *(self.integers(n) for n in (start, end, 0, step))]
        self.emit("Slice", inputs, dtype, (len(kept), *shape[1:]))

    def add_expand(self, name, dtype, shape):
        target = self.pick([shape, (1,) * len(shape), (2, *shape)])
        result = np.broadcast_shapes(target, shape)
        self.emit("Expand", [name, self.integers(*target)], dtype, result)

    def add_pad(self, name, dtype, shape):
        if not shape or dtype.kind != "f":
            return
        extra = self.pick([0, 0, 1])
        pads = self.integers(*[0] * (2 * len(shape) - 1), extra)
        self.emit("Pad", [name, pads], dtype, (*shape[:-1], shape[-1] + extra))

    def add_concat(self, name, dtype, shape):
        if shape:
            times = self.pick([1, 2])
            self.emit("Concat", [name] * times, dtype, (shape[0] * times, *shape[1:]), axis=0)

    def add_where(self, name, dtype, shape):
        flags = [v for v in self.values if v[1:] == (np.dtype(bool), shape)]
        flag = self.pick(flags)[0] if flags else self.constant(np.dtype(bool), shape)
        self.emit("Where", [flag, name, self.constant(dtype, shape)], dtype, shape)

    def add_shape(self, name, dtype, shape):
        self.emit("Shape", [name], np.int64, (len(shape),))

    def add_gather(self, name, dtype, shape):
        if shape and shape[0]:
            self.emit("Gather", [name, self.integers(-1)], dtype, (1, *shape[1:]))

    def add_again(self, name, dtype, shape):
        """The last node once more: a duplicate, sometimes read, sometimes dead."""
        if self.nodes and len(self.nodes[-1].output) == 1 and self.values:
            copy = onnx.NodeProto()
            copy.CopyFrom(self.nodes[-1])
            made = {v[0]: v for v in self.values}.get(copy.output[0])
            if made is not None:
                copy.output[0] = self.name()
                copy.name = f"n_{copy.output[0]}"
                self.nodes.append(copy)
                self.values.append((copy.output[0], *made[1:]))

    def add_if(self, name, dtype, shape):
        if self.prefix.count("b") >= 2:
            return
        condition = self.pick(["constant", "fed"])
        flag = "flag"
        if condition == "constant":
            flag = self.constant(np.dtype(bool), None, np.array(self.draw(st.booleans())))
        branches = [self.branch(index, name, dtype, shape) for index in range(2)]
        self.emit("If", [flag], dtype, shape, then_branch=branches[0], else_branch=branches[1])

    def branch(self, index, name, dtype, shape):
        inner = Builder(self.draw, f"{self.prefix}b{index}", self.values, self.counter)
        for _ in range(self.draw(st.integers(0, 3))):
            inner.step()
        # The result is any inner or outer value of that type, or the value itself.
        alike = [v[0] for v in inner.values if v[1:] == (dtype, shape)]
        made = {output for node in inner.nodes for output in node.output}
        chosen = self.pick(alike or [name])
        if chosen not in made:
            chosen = inner.emit("Identity", [chosen], dtype, shape)[0]
        outputs = [value_info(chosen, dtype, shape)]
        return helper.make_graph(inner.nodes, f"body{index}", [], outputs, inner.constants)


def value_info(name, dtype, shape):
    return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)


@st.composite
def models(draw):
    builder = Builder(draw)
    symbolic = draw(st.booleans())
    inputs = []
    signature = [(np.float32, (2, 3)), (np.int8, (3,)), (np.float16, ())]
    for index, (dtype, shape) in enumerate(signature):
        builder.values.append((f"x{index}", np.dtype(dtype), shape))
        declared = ["N", *shape[1:]] if symbolic and shape else shape
        inputs.append(value_info(f"x{index}", np.dtype(dtype), declared))
    inputs.append(value_info("flag", np.dtype(bool), ()))
    for _ in range(draw(st.integers(1, 12))):
        builder.step()
    made = [v for v in builder.values if v[0] not in ("x0", "x1", "x2")]
    chosen = draw(st.lists(st.sampled_from(made or builder.values), min_size=1, max_size=3))
    outputs = [value_info(name, dtype, None) for name, dtype, _ in dict.fromkeys(chosen)]
    graph = helper.make_graph(builder.nodes, "random", inputs, outputs, builder.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
