"""Random models on two devices and the host: what is copied is what was planned, to the byte.

Providers, what they claim, their speeds, the strategy and who copies between devices are drawn. The
same input gives the same plan, partitions come after what they need, and outputs are the CPU's.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from random_graphs import random_model
from stress.devices import DEVICE, DEVICE_IDS, Episode, stress_providers
from stress.subjects import is_same, quiet_options

from ep_core import InferenceSession, OrtValue

MODELS = 240
LENGTH = 3
OPERATORS = (
    *("Add", "Sub", "Mul", "Max", "Min", "Clip", "Relu", "Neg", "Abs", "Identity", "Cast"),
    *("Transpose", "Unsqueeze", "Squeeze", "Reshape", "Concat", "Slice", "Gather", "MatMul"),
    *("ReduceSum", "Less", "Greater", "Equal", "Where", "Shape", "Not"),
)


@pytest.fixture(scope="module", autouse=True)
def _providers():
    with stress_providers():
        yield


class Drawn:
    """What one model is placed on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.model = random_model(seed)
        self.feeds = self.model.feeds(seed, LENGTH)
        self.episode = Episode(direct=self.rng.choice(["", "source", "target"]))
        self._devices = [
            (number, self._options()) for number in DEVICE_IDS[: self.rng.choice([1, 2, 2])]
        ]
        self._host_first = self.rng.random() < 0.3
        self._strategy = self.rng.choice(["cost", "cost", "greedy"])
        self._level = self.rng.choice([0, 99])

    def _options(self) -> dict[str, object]:
        rate, width = 10 ** self.rng.uniform(9, 12), 10 ** self.rng.uniform(9, 11)
        return {
            "skip": [name for name in OPERATORS if self.rng.random() < 0.3],
            "speed": f"{rate},{width},1e-7,{self.rng.choice(['0', '1e-6'])},1e-7,1e10",
            "overlap": self.rng.random() < 0.5,
        }

    def open(self) -> InferenceSession:
        """A session; all of them are alike."""
        options = quiet_options()
        options.placement_strategy = self._strategy
        options.graph_optimization_level = self._level
        if any("N" in value.shape for value in self.model.inputs):
            options.add_free_dimension_override_by_name("N", LENGTH)
        providers = [self.episode.device(number, **own) for number, own in self._devices]
        providers.insert(0 if self._host_first else len(providers), "cpu")
        return InferenceSession(self.model.model, options, providers=providers)


def plan_of(session):
    """All that was decided, as data."""
    report = session.get_placement()
    return (report.nodes, report.partitions, report.copies, report.predicted_seconds)


def assert_in_order(report):
    """What a partition of the main graph reads from another one was made before."""
    parts = [part for part in report.partitions if not part.scope]
    maker = {name: at for at, part in enumerate(parts) for name in part.outputs}
    for at, part in enumerate(parts):
        assert all(maker.get(name, -1) < at for name in part.inputs)


def unmatched(planned, made):
    """Copies that were made and not planned, and those planned and not made.

    Where a shape isn't known beforehand, so is the number of bytes; the way has to be right then.
    """
    exact = Counter((c.source, c.target, c.nbytes) for c in planned if c.nbytes is not None)
    ways = Counter((c.source, c.target) for c in planned if c.nbytes is None)
    missing = exact - Counter(made)
    rest = Counter((source, target) for source, target, _ in (Counter(made) - exact).elements())
    return rest - ways, missing + (ways - rest)


@pytest.mark.parametrize("start", range(0, MODELS, 40))
def test_plans_of_random_models(start):
    counted = 0
    for seed in range(start, start + 40):
        drawn = Drawn(seed)
        with (
            InferenceSession(drawn.model.model, quiet_options(), providers=["cpu"]) as alone,
            drawn.episode as episode,
            drawn.open() as session,
            drawn.open() as again,
        ):
            right = alone.run(None, drawn.feeds)
            report = session.get_placement()
            assert plan_of(session) == plan_of(again), seed
            assert_in_order(report)
            for _ in range(2):
                episode.copies.clear()
                assert is_same(session.run(None, drawn.feeds), right), seed
                unplanned, unmade = unmatched(
                    [copy for copy in report.copies if not copy.scope], episode.copies
                )
                assert not unmade, seed
                # Bodies copy as often as they run.
                ways = {(copy.source, copy.target) for copy in report.copies if copy.scope}
                assert set(unplanned) <= ways, seed
                counted += len(episode.copies)
    assert counted > 40


@pytest.mark.parametrize("start", range(0, MODELS, 80))
def test_copies_of_bound_runs(start):
    counted = 0
    for seed in range(start, start + 80, 2):
        drawn = Drawn(seed)
        rng = drawn.rng
        with (
            InferenceSession(drawn.model.model, quiet_options(), providers=["cpu"]) as alone,
            drawn.episode as episode,
            drawn.open() as session,
        ):
            right = dict(
                zip(
                    [info.name for info in session.get_outputs()],
                    alone.run(None, drawn.feeds),
                    strict=True,
                )
            )
            if any(copy.scope for copy in session.get_placement().copies):
                continue
            binding, on_device = session.io_binding(), None
            for name, value in drawn.feeds.items():
                if isinstance(value, list) or value.dtype == object or rng.random() < 0.4:
                    binding.bind_cpu_input(name, value)
                else:
                    place = (DEVICE, rng.choice(DEVICE_IDS))
                    on_device = OrtValue.ortvalue_from_numpy(value, *place)
                    binding.bind_ortvalue_input(name, on_device)
            for name, value in right.items():
                if isinstance(value, list) or value.dtype == object or rng.random() < 0.4:
                    binding.bind_output(name)
                else:
                    binding.bind_output(name, DEVICE, rng.choice(DEVICE_IDS))
            planned = [copy for copy in binding.get_copies() if copy.source != copy.target]
            episode.copies.clear()
            session.run_with_iobinding(binding)
            unplanned, unmade = unmatched(planned, episode.copies)
            assert not unplanned, seed
            assert not unmade, seed
            counted += len(planned)
            assert is_same(binding.copy_outputs_to_cpu(), list(right.values())), seed
            del binding, on_device
    assert counted > 40
