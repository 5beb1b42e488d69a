"""Copies beside work: proven by work that waits for the copy, so that it would never end otherwise.

The simulator's kernels and copies call `computing` and `copying` with their number, counted in the
order in which the host submits them; here these wait for each other. No clock is read: a wait that
isn't answered within a long time fails its run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import numpy as np
import onnx.parser
import pytest

from ep_core import InferenceSession, OrtValue, SessionOptions
from ep_core.errors import RunError
from ep_core.levels import GraphOptimizationLevel
from ep_core.running.plan import Copy, Run
from ep_sdk.simulator.device import SimulatedDevice
from ep_sdk.simulator.pinned import is_pinned

PATIENCE_SECONDS = 20
X = np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)
Z = X + 1

SANDWICH = """
    <ir_version: 9, opset_import: ["" : 17]>
    sandwich (float[2, 4] x, float[2, 4] z) => (float[2, 4] y) {
        a = Neg (x)
        b = Erf (a)
        y = Add (b, z)
    }
"""
"""Erf runs on the CPU, between two partitions of the simulator; copies are, in order: x in, a out,
z in, b in, y out."""

THICK = SANDWICH.replace("y = Add (b, z)", "c = Neg (b)  d = Exp (c)  e = Abs (d)  y = Add (e, z)")
"""The second partition takes more memory than the first."""

FREE = SANDWICH.replace("float[2, 4]", "float[N, 4]")

EARLY = """
    <ir_version: 9, opset_import: ["" : 17]>
    early (float[2, 4] x, float[2, 4] z) => (float[2, 4] c, float[2, 4] y) {
        c = Exp (x)
        a = Neg (x)
        b = Tanh (a)
        y = Add (b, z)
    }
"""
"""Tanh runs on another device; nobody but the caller wants c."""

LOOP = """
    <ir_version: 9, opset_import: ["" : 17]>
    looping (float[2, 4] x, float[2, 4] z, int64 count) => (float[2, 4] y, float[N, 2, 4] all) {
        start = Neg (x)
        last, all = Loop (count, , start) <body = body
            (int64 i, bool go, float[2, 4] before)
            => (bool more, float[2, 4] after, float[2, 4] kept) {
                more = Identity (go)
                e = Erf (before)
                f = Neg (e)
                after = Add (f, z)
                kept = Mul (f, after)
            }>
        y = Add (last, z)
    }
"""


def opened(text: str, *providers, **settings) -> InferenceSession:
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    model = onnx.parser.parse_model(text).SerializeToString()
    return InferenceSession(model, options, list(providers))


def on_simulator(text: str = SANDWICH, **options) -> InferenceSession:
    return opened(text, ("simulator", {"skip": "Erf", **options}), "cpu")


def on_two_devices(text: str = EARLY, **options) -> InferenceSession:
    return opened(
        text,
        ("simulator", {"device_id": "0", "skip": "Tanh,Erf", **options}),
        ("simulator", {"device_id": "1", "skip": "Erf", **options}),
        "cpu",
    )


def answer(text: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    with opened(text, "cpu") as session:
        return session.run(None, feeds)


def assert_right(got, text: str = SANDWICH, feeds: dict[str, np.ndarray] | None = None) -> None:
    for value, right in zip(got, answer(text, feeds or {"x": X, "z": Z}), strict=True):
        np.testing.assert_allclose(value, right, rtol=2e-6, atol=1e-6)


class Gates:
    """Lets something on a device wait until something else has begun, or is over."""

    def __init__(self, monkeypatch, patience: float = PATIENCE_SECONDS) -> None:
        self.patience = patience
        self.open = {}
        self.waits = {}
        for what in ("copying", "computing"):
            monkeypatch.setattr(SimulatedDevice, what, self._hooked(what))

    def begun(self, what: str, number: int, device: int = 0) -> threading.Event:
        return self.open.setdefault((what, number, device), threading.Event())

    def hold(self, what: str, number: int, until: threading.Event, device: int = 0) -> None:
        self.waits[what, number, device] = until

    def wait_for(self, event: threading.Event) -> None:
        if not event.wait(self.patience):
            raise RuntimeError("what this waits for doesn't begin")

    def _hooked(self, what: str) -> Callable[[SimulatedDevice, int], None]:
        def hook(device: SimulatedDevice, number: int) -> None:
            key = (what, number, int(device.memory.device[-1]))
            self.open.setdefault(key, threading.Event()).set()
            if key in self.waits:
                self.wait_for(self.waits[key])

        return hook


def before_host_work(session: InferenceSession, action: Callable[[], None]) -> None:
    """Have the CPU's partition do something first."""
    (step,) = [s for s in session._plan.steps if isinstance(s, Run) and s.label.startswith("cpu")]
    run = step.partition.run

    class Held:
        accepts_outputs = step.partition.accepts_outputs
        close = step.partition.close

        def run(self, inputs, outputs, stream):
            action()
            run(inputs, outputs, stream)

    object.__setattr__(step, "partition", Held())


# ---------------------------------------------------------------- what overlaps


def test_a_copy_in_overlaps_earlier_work(monkeypatch):
    """The first kernel doesn't end before the copy of the input of the second has begun."""
    gates = Gates(monkeypatch)
    gates.hold("computing", 1, until=gates.begun("copying", 3))
    with on_simulator() as session:
        assert_right(session.run(None, {"x": X, "z": Z}))


def test_without_streams_for_copies_it_doesn_t(monkeypatch):
    """So the test above would notice."""
    gates = Gates(monkeypatch, patience=0.2)
    gates.hold("computing", 1, until=gates.begun("copying", 3))
    with (
        on_simulator(overlap=False) as session,
        pytest.raises(RunError, match="doesn't begin"),
    ):
        session.run(None, {"x": X, "z": Z})


def test_a_copy_out_waits_only_for_what_makes_its_value(monkeypatch):
    """The last kernel of device 0 doesn't end before the copy of an early output has begun."""
    gates = Gates(monkeypatch)
    with on_two_devices() as session:
        steps = session._plan.steps
        copies = [s for s in steps if isinstance(s, Copy) and s.stream in (0, 3, 6)]
        (late,) = [n for n, step in enumerate(copies, 1) if step.value == "c"]
        runs = [s for s in steps if isinstance(s, Run) and s.stream == 0]
        assert len(runs) == 2
        gates.hold("computing", 3, until=gates.begun("copying", late))
        assert_right(session.run(None, {"x": X, "z": Z}), EARLY)


def test_work_waits_only_for_the_copies_it_needs(monkeypatch):
    """The copy of z doesn't end before the first kernel, which needs x alone, has begun."""
    gates = Gates(monkeypatch)
    gates.hold("copying", 3, until=gates.begun("computing", 1))
    gates.hold("copying", 2, until=gates.begun("copying", 3))
    with on_simulator() as session:
        assert_right(session.run(None, {"x": X, "z": Z}))


@pytest.mark.parametrize("overlap", [True, False])
def test_a_copy_doesn_t_stand_behind_host_work(monkeypatch, overlap):
    """Host work doesn't end before the copy of z, which is there already, has begun."""
    gates = Gates(monkeypatch)
    with on_simulator(overlap=overlap) as session:
        before_host_work(session, lambda: gates.wait_for(gates.begun("copying", 3)))
        assert_right(session.run(None, {"x": X, "z": Z}))


def test_nor_in_a_bound_run(monkeypatch):
    gates = Gates(monkeypatch)
    with on_simulator() as session:
        z = OrtValue.ortvalue_from_numpy(Z, "simulator", 1)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input("z", Z)
        binding.bind_output("y", "simulator")
        gates.hold("computing", 1, until=gates.begun("copying", 3))
        session.run_with_iobinding(binding)
        assert_right(binding.copy_outputs_to_cpu())
        # From the other device its own, blocking copy brings it.
        binding.bind_ortvalue_input("z", z)
        session.run_with_iobinding(binding)
        assert_right(binding.copy_outputs_to_cpu())


def test_streams_for_copies_cost_no_copies():
    for opening in (on_simulator, on_two_devices):
        text = SANDWICH if opening is on_simulator else EARLY
        with opening(text) as one, opening(text, overlap=False) as other:
            mine, theirs = (
                sorted((c.value, c.source, c.target, c.nbytes) for c in s.get_placement().copies)
                for s in (one, other)
            )
            assert mine == theirs


# ---------------------------------------------------------------- any speed, any order


class Moody:
    """Kernels and copies that take a random time, none often."""

    def __init__(self, monkeypatch, seed: int) -> None:
        self.random = random.Random(seed)
        monkeypatch.setattr(SimulatedDevice, "_pass_time", self.pass_time)

    def pass_time(self, device, microseconds: int) -> None:
        if self.random.random() < 0.5:
            time.sleep(self.random.random() * 0.002)


CASES = {
    "one device": (on_simulator, SANDWICH),
    "two devices": (on_two_devices, EARLY),
    "more work at the end": (on_simulator, THICK),
    "free shapes": (on_simulator, FREE),
    "a loop": (on_simulator, LOOP),
    "a loop on two devices": (on_two_devices, LOOP),
}


def feeds_for(text: str, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    feeds = {name: generator.normal(size=X.shape).astype(np.float32) for name in "xz"}
    return feeds | ({"count": np.array(3)} if text is LOOP else {})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("capacity", [2**31, 2048])
def test_the_answer_depends_on_nobody_s_speed(monkeypatch, case, capacity):
    """Also where memory is so tight that runs wait for what others give back."""
    opening, text = CASES[case]
    Moody(monkeypatch, seed=len(case))
    with opening(text, capacity=capacity, alignment=64) as session:
        for seed in range(12):
            feeds = feeds_for(text, seed)
            assert_right(session.run(None, feeds), text, feeds)
        for stats in session.get_memory().devices.values():
            assert stats.in_use_bytes == 0


@pytest.mark.parametrize("case", CASES)
def test_runs_take_no_new_memory_after_the_first(monkeypatch, case):
    opening, text = CASES[case]
    Moody(monkeypatch, seed=len(case))
    with opening(text) as session:
        taken = set()
        for seed in range(15):
            session.run(None, feeds_for(text, seed))
            devices = session.get_memory().devices
            taken.add(tuple(stats.device_allocations for stats in devices.values()))
        assert len(taken) == 1


@pytest.mark.parametrize("case", ["one device", "two devices", "a loop"])
def test_threads(monkeypatch, case):
    opening, text = CASES[case]
    Moody(monkeypatch, seed=1)
    wrong = []

    def work(seed: int) -> None:
        feeds = feeds_for(text, seed)
        right = answer(text, feeds)
        for _ in range(5):
            pairs = zip(session.run(None, feeds), right, strict=True)
            if not all(np.allclose(a, b, rtol=2e-6, atol=1e-6) for a, b in pairs):
                wrong.append(seed)

    with opening(text) as session:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# ---------------------------------------------------------------- pinned host memory


def watched_copies(monkeypatch) -> list[tuple[str, bool]]:
    """For each copy from or to the host: which way, and whether that memory is pinned."""
    from ep_sdk.simulator.transfer import SimulatorTransfer

    seen = []
    copy = SimulatorTransfer.copy

    def watched(self, source, target, stream):
        if isinstance(source, np.ndarray):
            seen.append(("in", is_pinned(source)))
        elif isinstance(target, np.ndarray):
            seen.append(("out", is_pinned(target)))
        copy(self, source, target, stream)

    monkeypatch.setattr(SimulatorTransfer, "copy", watched)
    return seen


def test_what_lies_between_partitions_is_pinned(monkeypatch):
    """Not so what the caller gives and gets; the CPU writes b straight into pinned memory."""
    text = SANDWICH.replace("Erf (a)", "Sigmoid (a)")
    with opened(text, ("simulator", {"skip": "Sigmoid"}), "cpu") as session:
        seen = watched_copies(monkeypatch)
        for _ in range(3):
            assert_right(session.run(None, {"x": X, "z": Z}), text)
        values = [s.value for s in session._plan.steps if isinstance(s, Copy)]
        found = dict(zip(values, [p for _, p in seen], strict=False))
        assert found == {"x": False, "a": True, "z": False, "b": True, "y": False}
        (stats,) = session.get_memory().devices.values()
        assert stats.pinned_bytes == 2 * X.nbytes
        assert session.get_memory().scratch_bytes == 2 * X.nbytes


def test_values_of_unknown_size_are_not(monkeypatch):
    with on_simulator(FREE) as session:
        seen = watched_copies(monkeypatch)
        assert_right(session.run(None, {"x": X, "z": Z}), FREE)
        assert not any(pinned for _, pinned in seen)


def test_the_caller_may_give_pinned_memory(monkeypatch):
    with on_simulator() as session:
        x = OrtValue.ortvalue_from_numpy(X, "simulator", 0, pinned=True)
        y = OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32, "simulator", pinned=True)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_cpu_input("z", Z)
        binding.bind_ortvalue_output("y", y)
        seen = watched_copies(monkeypatch)
        session.run_with_iobinding(binding)
        assert seen[0] == ("in", True)
        assert seen[-1] == ("out", True)
        assert_right([y.numpy()])


def test_a_session_without_room_for_pinned_memory_says_so():
    from ep_core.errors import AllocationError

    with (
        on_simulator(pinned_capacity=16) as session,
        pytest.raises(AllocationError, match="no pinned memory of simulator:0"),
    ):
        session.run(None, {"x": X, "z": Z})
