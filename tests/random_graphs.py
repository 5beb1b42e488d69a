"""Random valid models, seeded, whose answers are exact: any two right runtimes agree to the bit.

Float values stay small integers, so that the order of a sum can't matter. Shapes may hold "N", a
length that differs from run to run. Bodies of If, Loop and Scan capture, nest, pass values through
and swap them; sequences, strings and overridable initializers occur wherever tensors do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = TensorProto.FLOAT
I = TensorProto.INT64  # noqa: E741
B = TensorProto.BOOL
S = TensorProto.STRING
NUMPY = {F: np.dtype(np.float32), I: np.dtype(np.int64), B: np.dtype(bool), S: np.dtype(object)}

Dim = int | str
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Value:
    name: str
    dtype: int
    shape: Shape
    is_sequence: bool = False

    @property
    def kind(self):
        return (self.dtype, self.shape, self.is_sequence)

    def info(self, *, typed: bool = True):
        if self.is_sequence:
            return helper.make_tensor_sequence_value_info(self.name, self.dtype, list(self.shape))
        return helper.make_tensor_value_info(
            self.name, self.dtype, list(self.shape) if typed else None
        )


@dataclass
class RandomModel:
    """A model with what it takes to feed it."""

    model: onnx.ModelProto
    inputs: list[Value]
    defaults: list[Value]

    def feeds(self, seed: int, length: int) -> dict[str, object]:
        """Values for all inputs, and for some of those that have a default."""
        rng = np.random.default_rng(seed)
        chosen = [*self.inputs, *(v for v in self.defaults if rng.random() < 0.5)]
        return {value.name: _random(rng, value, length) for value in chosen}


def _random(rng, value: Value, length: int):
    shape = tuple(length if dim == "N" else dim for dim in value.shape)
    if value.is_sequence:
        return [_array(rng, value.dtype, shape) for _ in range(rng.integers(1, 4))]
    return _array(rng, value.dtype, shape)


def _array(rng, dtype: int, shape) -> np.ndarray:
    if dtype == S:
        words = np.empty(shape, object)
        words[...] = np.array(["a", "bc", ""], object)[rng.integers(0, 3, shape)]
        return words
    if dtype == B:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    return np.asarray(rng.integers(-4, 5, shape)).astype(NUMPY[dtype])


@dataclass
class Builder:
    """Grows one graph; `values` may be read, outer values included."""

    rng: np.random.Generator
    counter: list[int]
    values: list[Value] = field(default_factory=list)
    depth: int = 0
    opsets: list[int] = field(default_factory=lambda: [14])
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    own: list[Value] = field(default_factory=list)

    # ------------------------------------------------------------ small parts

    def name(self, prefix: str = "v") -> str:
        self.counter[0] += 1
        return f"{prefix}{self.counter[0]}"

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, items):
        return items[int(self.rng.integers(len(items)))]

    def constant(self, array: np.ndarray) -> str:
        name = self.name("c")
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op_type, inputs, dtype, shape, *, is_sequence=False, outputs=1, **attributes):
        """Add a node; all outputs but the first are made up or left out."""
        value = Value(self.name(), dtype, tuple(shape), is_sequence)
        rest = [self.choose(["", self.name("u")]) for _ in range(outputs - 1)]
        self.nodes.append(
            helper.make_node(
                op_type, inputs, [value.name, *rest], name=self.name("n"), **attributes
            )
        )
        self.keep(value)
        return value

    def keep(self, value: Value) -> None:
        self.values.append(value)
        self.own.append(value)

    def pick(self, *dtypes: int, sequence: bool = False, rank: int | None = None) -> Value | None:
        """A value of one of the types, recent ones more often."""
        fits = [
            v
            for v in self.values
            if v.dtype in dtypes
            and v.is_sequence == sequence
            and (rank is None or len(v.shape) == rank)
        ]
        if not fits:
            return None
        recent = fits[-5:]
        return self.choose(recent if self.chance(0.6) else fits)

    def alike(self, value: Value) -> Value:
        """A value of the same type, maybe itself."""
        return self.choose([v for v in self.values if v.kind == value.kind])

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        moves = [self.arithmetic] * 5 + [self.unary] * 4 + [self.layout] * 4 + [self.reduce] * 2
        moves += [self.compare, self.choice, self.several, self.text, self.sequence, self.dynamic]
        if self.depth < 3:
            moves += [self.branch, self.loop, self.scan] if self.depth else [
                self.branch, self.loop, self.scan, self.branch, self.loop, self.scan
            ]  # fmt: skip
        self.choose(moves)()

    def arithmetic(self) -> None:
        left = self.pick(F, I)
        if left is None:
            return
        right = self.alike(left).name
        if self.chance(0.3):
            shape = self.choose([(), (1,), left.shape[-1:]])
            if all(isinstance(dim, int) for dim in shape) and len(shape) <= len(left.shape):
                right = self.constant(_array(self.rng, left.dtype, shape))
        op_type = self.choose(["Add", "Sub", "Mul", "Max", "Min"])
        inputs = [left.name, right] if self.chance(0.5) else [right, left.name]
        if op_type in ("Max", "Min"):
            self.emit(op_type, inputs, left.dtype, left.shape)
        else:
            self.bounded(self.emit(op_type, inputs, left.dtype, left.shape))

    def bounded(self, value: Value) -> None:
        """Keep numbers small, so that float arithmetic is exact."""
        limits = [self.constant(np.array(limit, NUMPY[value.dtype])) for limit in (-16, 16)]
        self.emit("Clip", [value.name, *limits], value.dtype, value.shape)

    def unary(self) -> None:
        value = self.pick(F, I, B)
        if value is None:
            return
        known = {F: ["Relu", "Neg", "Abs", "Sign", "Floor"], I: ["Neg", "Abs", "Sign"], B: ["Not"]}
        op_type = self.choose(["Identity", *known[value.dtype] * 2, "Cast"])
        if op_type == "Cast":
            target = self.choose([F, I, B])
            self.emit("Cast", [value.name], target, value.shape, to=target)
        else:
            self.emit(op_type, [value.name], value.dtype, value.shape)

    def layout(self) -> None:
        value = self.pick(F, I, B)
        if value is None:
            return
        shape, rank = value.shape, len(value.shape)
        op_type = self.choose(["Transpose", "Unsqueeze", "Reshape", "Concat", "Slice", "Gather"])
        if op_type == "Transpose" and rank:
            order = [int(axis) for axis in self.rng.permutation(rank)]
            self.emit(op_type, [value.name], value.dtype, [shape[i] for i in order], perm=order)
        elif op_type == "Unsqueeze" and rank < 3:
            axis = int(self.rng.integers(rank + 1))
            axes = self.constant(np.array([axis]))
            wide = self.emit(
                op_type, [value.name, axes], value.dtype, (*shape[:axis], 1, *shape[axis:])
            )
            if self.chance(0.5):
                self.emit("Squeeze", [wide.name, axes], value.dtype, shape)
        elif op_type == "Reshape" and all(isinstance(dim, int) for dim in shape):
            target = [int(np.prod(shape))] if self.chance(0.7) else [*shape[::-1]]
            wanted = self.constant(np.array(target, np.int64))
            self.emit(op_type, [value.name, wanted], value.dtype, target, allowzero=1)
        elif op_type == "Concat" and rank:
            axes = [axis for axis, dim in enumerate(shape) if isinstance(dim, int) and dim < 6]
            if axes:
                axis = self.choose(axes)
                joined = [*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]]
                pair = [value.name, self.alike(value).name]
                self.emit(op_type, pair, value.dtype, joined, axis=axis - rank)
        elif rank and isinstance(shape[0], int) and shape[0] >= 1:
            if op_type == "Slice":
                start = int(self.rng.integers(shape[0]))
                bounds = [self.constant(np.array([b])) for b in (start, shape[0], 0)]
                kept = (shape[0] - start, *shape[1:])
                self.emit(op_type, [value.name, *bounds], value.dtype, kept)
            elif op_type == "Gather":
                wanted = self.rng.integers(0, shape[0], self.choose([(), (2,)]))
                kept = (*wanted.shape, *shape[1:])
                indices = self.constant(np.asarray(wanted, np.int64))
                self.emit(op_type, [value.name, indices], value.dtype, kept)

    def reduce(self) -> None:
        value = self.pick(F, I)
        if value is None or not value.shape:
            return
        if value.dtype == F and len(value.shape) == 2 and self.chance(0.4):
            columns = [v for v in self.values if v.kind[0] == F and v.shape[:1] == value.shape[1:]]
            columns = [v for v in columns if len(v.shape) == 2 and not v.is_sequence]
            if columns:
                other = self.choose(columns)
                shape = (value.shape[0], other.shape[1])
                self.bounded(self.emit("MatMul", [value.name, other.name], F, shape))
                return
        axis = int(self.rng.integers(len(value.shape)))
        keep = int(self.rng.integers(2))
        shape = list(value.shape)
        shape[axis : axis + 1] = [1] * keep
        axes = self.constant(np.array([axis]))
        self.bounded(self.emit("ReduceSum", [value.name, axes], value.dtype, shape, keepdims=keep))

    def compare(self) -> None:
        value = self.pick(F, I)
        if value is not None:
            op_type = self.choose(["Less", "Greater", "Equal"])
            self.emit(op_type, [value.name, self.alike(value).name], B, value.shape)

    def choice(self) -> None:
        value = self.pick(F, I)
        flags = [v for v in self.values if value and v.kind == (B, value.shape, False)]
        if value is not None and flags:
            inputs = [self.choose(flags).name, value.name, self.alike(value).name]
            self.emit("Where", inputs, value.dtype, value.shape)

    def several(self) -> None:
        """Operators with outputs that nobody may ask for."""
        value = self.pick(F)
        if value is None or not value.shape:
            return
        length = value.shape[-1]
        if self.chance(0.5) or not isinstance(length, int) or length < 2:
            self.emit("Dropout", [value.name], F, value.shape, outputs=self.choose([1, 2]))
        else:
            one = self.constant(np.array([1]))
            largest = Value(self.name(), F, (*value.shape[:-1], 1))
            outputs = [largest.name, self.name("u")]
            self.nodes.append(helper.make_node("TopK", [value.name, one], outputs))
            self.keep(largest)

    def dynamic(self) -> None:
        """Shape, and operators whose result's shape depends on data."""
        value = self.pick(F, I)
        if value is None:
            return
        if self.chance(0.5) or not value.shape:
            self.emit("Shape", [value.name], I, (len(value.shape),))
            return
        found = Value(self.name("u"), I, (len(value.shape), self.name("K")))
        self.nodes.append(helper.make_node("NonZero", [value.name], [found.name]))
        axes = self.constant(np.array([1]))
        self.bounded(self.emit("ReduceSum", [found.name, axes], I, (found.shape[0],), keepdims=0))

    def text(self) -> None:
        value = self.pick(S)
        if value is not None:
            if self.chance(0.5):
                self.emit("Identity", [value.name], S, value.shape)
            else:
                self.emit("Equal", [value.name, self.alike(value).name], B, value.shape)
                self.opsets.append(19)  # the first that has Equal for strings

    def sequence(self) -> None:
        held = self.pick(F, I, sequence=True)
        if held is None or self.chance(0.4):
            item = self.pick(F, I)
            if item is not None:
                items = [item.name, self.alike(item).name][: int(self.rng.integers(1, 3))]
                self.emit("SequenceConstruct", items, item.dtype, item.shape, is_sequence=True)
            return
        op_type = self.choose(["SequenceAt", "SequenceInsert", "SequenceLength"])
        if op_type == "SequenceAt":
            position = self.constant(np.array(self.choose([0, -1])))
            self.emit(op_type, [held.name, position], held.dtype, held.shape)
        elif op_type == "SequenceLength":
            self.emit(op_type, [held.name], I, ())
        else:
            fits = [v for v in self.values if v.kind == (held.dtype, held.shape, False)]
            if fits:
                inputs = [held.name, self.choose(fits).name]
                inputs += [self.constant(np.array(0))] if self.chance(0.4) else []
                self.emit(op_type, inputs, held.dtype, held.shape, is_sequence=True)

    # ------------------------------------------------------------ control flow

    def inner(self) -> Builder:
        return Builder(self.rng, self.counter, list(self.values), self.depth + 1, self.opsets)

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def result_like(self, kind) -> Value:
        """A value of this graph with the given type: new, or one that was there before."""
        own = [v for v in self.own if v.kind == kind]
        if own and self.chance(0.7):
            return self.choose(own)
        seen = [v for v in self.values if v.kind == kind]
        source = self.choose(seen)
        return self.emit("Identity", [source.name], *kind[:2], is_sequence=kind[2])

    def flag(self) -> str:
        """A condition: an input or computed, or a constant."""
        known = [v for v in self.values if v.kind in ((B, (), False), (B, (1,), False))]
        if known and self.chance(0.8):
            return self.choose(known).name
        return self.constant(np.array(self.chance(0.5)))

    def branch(self) -> None:
        condition = self.flag()
        kinds = [self.choose(self.values).kind for _ in range(int(self.rng.integers(1, 3)))]
        bodies = []
        for _ in range(2):
            body = self.inner()
            body.grow(int(self.rng.integers(0, 4)))
            outputs = [body.result_like(kind) for kind in kinds]
            bodies.append(body.graph([], outputs))
        self.control("If", [condition], kinds, then_branch=bodies[0], else_branch=bodies[1])

    def control(self, op_type, inputs, kinds, **attributes) -> None:
        values = [Value(self.name(), *kind) for kind in kinds]
        self.nodes.append(
            helper.make_node(
                op_type, inputs, [v.name for v in values], name=self.name("n"), **attributes
            )
        )
        for value in values:
            self.keep(value)

    def graph(self, inputs, outputs, *, typed: bool = True) -> onnx.GraphProto:
        unique: list[Value] = []
        for value in outputs:
            if value in unique or (value in inputs and self.chance(0.5)):
                value = self.emit("Identity", [value.name], *value.kind[:2],
                                  is_sequence=value.is_sequence)  # fmt: skip
            unique.append(value)
        return helper.make_graph(
            self.nodes,
            self.name("g"),
            [v.info() for v in inputs],
            [v.info(typed=typed) for v in unique],
            self.initializers,
        )

    def loop(self) -> None:
        states = [self.choose(self.values) for _ in range(int(self.rng.integers(0, 4)))]
        if states and self.chance(0.3):
            states.append(self.alike(states[0]))  # two that the body may swap
        body = self.inner()
        inputs = [Value(self.name(), I, ()), Value(self.name(), B, ())]
        inputs += [Value(self.name(), *state.kind) for state in states]
        for value in inputs:
            body.keep(value)
        body.grow(int(self.rng.integers(0, 5)))
        more = inputs[1]
        if self.chance(0.4):
            most = body.constant(np.array(int(self.rng.integers(0, 4))))
            more = body.emit("Less", [inputs[0].name, most], B, ())
        carried = [self.choose([v for v in body.own if v.kind == s.kind]) for s in states]
        tensors = [v for v in body.own if not v.is_sequence and v.dtype != S]
        scans = [self.choose(tensors) for _ in range(int(self.rng.integers(0, 3)))]
        if not carried and not scans:
            scans = [inputs[0]]
        trips = self.constant(np.array(int(self.rng.integers(0, 4))))
        known = [v for v in self.values if v.name.startswith("trips")]
        if known and self.chance(0.5):
            trips = known[0].name
        condition = self.choose(["", self.flag()])
        rounds = self.name("R")
        kinds = [s.kind for s in states] + [(v.dtype, (rounds, *v.shape), False) for v in scans]
        graph = body.graph(inputs, [more, *carried, *scans])
        self.control("Loop", [trips, condition, *(s.name for s in states)], kinds, body=graph)

    def scan(self) -> None:
        first = self.pick(F, I, B)
        if first is None or not first.shape:
            return
        axis = int(self.rng.integers(len(first.shape)))
        length = first.shape[axis]
        known = [v for v in self.values if length in v.shape and not v.is_sequence]
        others = [v for v in known if v.dtype in (F, I, B)]
        scanned = [(first, axis)]
        if self.chance(0.4):
            other = self.choose(others)
            scanned.append((other, other.shape.index(length)))
        tensors = [v for v in self.values if not v.is_sequence and v.dtype != S]
        states = [self.choose(tensors) for _ in range(int(self.rng.integers(0, 3)))]
        body = self.inner()
        inputs = [Value(self.name(), *state.kind) for state in states]
        inputs += [
            Value(self.name(), v.dtype, (*v.shape[:at], *v.shape[at + 1 :])) for v, at in scanned
        ]
        for value in inputs:
            body.keep(value)
        body.grow(int(self.rng.integers(0, 4)))
        carried = [self.choose([v for v in body.own if v.kind == s.kind]) for s in states]
        fits = [v for v in body.own if not v.is_sequence and v.dtype != S]
        outputs = [self.choose(fits) for _ in range(int(self.rng.integers(0 if states else 1, 3)))]
        places = [int(self.rng.integers(len(v.shape) + 1)) for v in outputs]
        kinds = [s.kind for s in states]
        for value, at in zip(outputs, places, strict=True):
            kinds.append((value.dtype, (*value.shape[:at], length, *value.shape[at:]), False))
        # Negative axes count from the back of the scan output, one rank above the body's.
        negative = [at - len(v.shape) - 1 if self.chance(0.3) else at
                    for v, at in zip(outputs, places, strict=True)]  # fmt: skip
        self.control(
            "Scan",
            [*(s.name for s in states), *(v.name for v, _ in scanned)],
            kinds,
            body=body.graph(inputs, [*carried, *outputs]),
            num_scan_inputs=len(scanned),
            scan_input_axes=[at - len(v.shape) * self.chance(0.3) for v, at in scanned],
            scan_input_directions=[int(self.rng.integers(2)) for _ in scanned],
            **({"scan_output_axes": negative} if outputs else {}),
            **({"scan_output_directions": [int(self.rng.integers(2)) for _ in outputs]}
               if outputs else {}),
        )  # fmt: skip


def random_model(seed: int, *, most_steps: int = 20) -> RandomModel:
    """A model of some 5 to 60 nodes; equal seeds give equal models."""
    rng = np.random.default_rng(seed)
    builder = Builder(rng, [0])
    shapes: list[Shape] = [(), (1,), (3,), ("N",), (2, 3), ("N", 3), (3, 3), (2, 1, 3), (0, 3)]
    inputs = [Value(builder.name("x"), F, builder.choose(shapes[2:]))]
    for _ in range(int(rng.integers(1, 4))):
        inputs.append(
            Value(builder.name("x"), builder.choose([F, F, I, B]), builder.choose(shapes))
        )
    inputs.append(Value("trips", I, ()))
    if builder.chance(0.5):
        inputs.append(Value("flag", B, ()))
    if builder.chance(0.3):
        inputs.append(Value(builder.name("words"), S, builder.choose([(2,), ("N",)])))
    if builder.chance(0.3):
        inputs.append(Value(builder.name("seq"), F, builder.choose([(3,), ("N", 3)]), True))
    defaults = []
    for _ in range(int(rng.integers(0, 3))):
        value = Value(builder.name("d"), builder.choose([F, I]), builder.choose([(), (3,), (2, 3)]))
        builder.initializers.append(
            numpy_helper.from_array(_array(rng, value.dtype, value.shape), value.name)
        )
        defaults.append(value)
    for value in (*inputs, *defaults):
        builder.values.append(value)
    for _ in range(int(rng.integers(0, 3))):
        dtype, shape = builder.choose([F, I]), builder.choose([(), (3,), (2, 3), (3, 3)])
        name = builder.constant(_array(rng, dtype, shape))
        builder.values.append(Value(name, dtype, shape))
    builder.grow(int(rng.integers(3, most_steps)))
    outputs = [builder.own[-1]] if builder.own else [inputs[0]]
    for _ in range(int(rng.integers(0, 6))):
        # Inputs and initializers too.
        value = builder.choose(
            builder.own if builder.own and builder.chance(0.8) else builder.values
        )
        if value not in outputs:
            outputs.append(value)
    graph = helper.make_graph(
        builder.nodes,
        f"random_{seed}",
        [value.info() for value in (*inputs, *defaults)],
        [value.info(typed=builder.chance(0.5)) for value in outputs],
        builder.initializers,
    )
    opset = max(builder.choose([14, 17, 19, 21]), *builder.opsets)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=9,
    )
    return RandomModel(model, inputs, defaults)
