"""The planned memory of bound runs against what the simulator's allocators measure."""

from __future__ import annotations

import numpy as np
import pytest
from bound_devices import CHAIN, FREE, HEAD, X, empty_on, on, sessions_on_devices
from test_simulator_peak import SCAN, grown

from ep_core import InferenceSession, SessionOptions
from ep_core.errors import FeedError
from ep_core.levels import GraphOptimizationLevel
from ep_core.report import MemoryPeak
from ep_core.values.devices import find_place

HOST, ZERO, ONE = "cpu/host", "simulator:0/device", "simulator:1/device"
PLACES = ("host", 0, 1)


@pytest.fixture
def session():
    """`session(text, device=..., **options)`; see `sessions_on_devices`."""
    with sessions_on_devices() as make:
        yield make


@pytest.fixture
def divided():
    """`divided(model, devices)`: a session whose nodes alternate between the devices."""
    opened = []

    def make(model, devices=("0",)):
        settings = SessionOptions()
        settings.disable_cpu_fallback = True
        settings.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        if len(devices) > 1:
            names = [node.name for node in model.graph.node]
            settings.pin = {name: f"simulator:{at // 4 % 2}" for at, name in enumerate(names)}
        wanted = [("simulator", {"device_id": number}) for number in devices]
        opened.append(InferenceSession(model.SerializeToString(), settings, wanted))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def measured(one, binding, times=3) -> dict[str, int]:
    """What runs take of each device's memory, beyond what was in use before.

    Memories are the session's own, or those that are opened for values.
    """
    arenas = {}
    for device, memory in enumerate((ZERO, ONE)):
        place = find_place("simulator", device, one._ports.providers)
        arenas[memory] = place.provider.allocator._arena
    before = {memory: arena._in_use for memory, arena in arenas.items()}
    for memory, arena in arenas.items():
        arena._peak = before[memory]
    for _ in range(times):
        one.run_with_iobinding(binding)
    return {memory: arena._peak - before[memory] for memory, arena in arenas.items()}


def bind_somehow(one, generator, *, give=False):
    """Inputs and outputs on the host and both devices, these in memory of the caller's or not."""
    binding = one.io_binding()
    for item in one.get_inputs():
        array = generator.random(item.shape, np.float32)
        place = PLACES[generator.integers(3)]
        if place == "host":
            binding.bind_cpu_input(item.name, array)
        else:
            binding.bind_ortvalue_input(item.name, on(place, array))
    for item in one.get_outputs():
        place = PLACES[generator.integers(3)]
        if place == "host":
            binding.bind_output(item.name)
        elif give:
            binding.bind_ortvalue_output(item.name, empty_on(place, *item.shape))
        else:
            binding.bind_output(item.name, "simulator", place)
    return binding


def run_bytes(planned, memory) -> int:
    if memory not in planned:
        return 0
    assert planned[memory].unknown == ""
    return planned[memory].run_bytes


@pytest.mark.parametrize("give", [False, True])
@pytest.mark.parametrize("devices", [("0",), ("0", "1")], ids=["one", "two"])
@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_peak_to_the_byte(divided, seed, devices, give):
    one = divided(grown(seed), devices)
    generator = np.random.default_rng(seed)
    for _ in range(3):
        binding = bind_somehow(one, generator, give=give)
        planned = binding.get_peak_bytes()
        for memory, taken in measured(one, binding).items():
            assert taken == run_bytes(planned, memory), memory
        constants = one.get_placement().peak_bytes[ZERO].constant_bytes
        assert planned[ZERO].constant_bytes == constants


@pytest.mark.parametrize("seed", range(8))
def test_where_all_is_given_the_plan_is_what_happens_inside(divided, seed):
    one = divided(grown(seed))
    binding = one.io_binding()
    for item in one.get_inputs():
        binding.bind_ortvalue_input(item.name, on(0, np.ones(item.shape, np.float32)))
    for item in one.get_outputs():
        binding.bind_ortvalue_output(item.name, empty_on(0, *item.shape))
    planned = binding.get_peak_bytes()
    assert run_bytes(planned, ZERO) == measured(one, binding)[ZERO]
    assert HOST not in planned


def test_memory_that_is_given_isn_t_in_it(session):
    """y is read by what makes z; of a, y and z two are there at a time."""
    one = session(CHAIN)
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", on(0))
    binding.bind_output("y", "simulator", 0)
    binding.bind_output("z", "simulator", 0)
    assert binding.get_peak_bytes() == {ZERO: MemoryPeak(0, 2 * 16)}
    binding.bind_ortvalue_output("z", empty_on(0, 4))
    binding.bind_ortvalue_output("y", empty_on(0, 4))
    assert binding.get_peak_bytes()[ZERO] == MemoryPeak(0, 16)


def test_what_comes_to_the_host_and_to_another_device(session):
    one = session(CHAIN)
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    binding.bind_output("z", "simulator", 1)
    planned = binding.get_peak_bytes()
    assert planned[HOST].run_bytes == 16  # y
    assert planned[ONE] == MemoryPeak(0, 16)  # z
    assert planned[ZERO].run_bytes == 3 * 16  # x, y, and a or z


def test_one_result_that_is_wanted_as_an_input_is_copied(session):
    one = session(
        HEAD + "g (float[4] x) => (float[4] same, float[4] y) {same = Identity(x) y = Neg(x)}"
    )
    binding = one.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("same")
    assert binding.get_peak_bytes()[HOST] == MemoryPeak(0, 16)


def test_bodies_count(session):
    one = session(HEAD + SCAN)
    binding = one.io_binding()
    binding.bind_cpu_input("start", X)
    binding.bind_ortvalue_input("xs", on(0, np.ones((3, 4), np.float32)))
    binding.bind_output("all", "simulator", 0)
    binding.bind_output("twice", "simulator", 0)
    assert binding.get_peak_bytes()[ZERO].run_bytes == measured(one, binding)[ZERO] > 0


def test_what_isn_t_known_beforehand_and_what_isn_t_bound(session):
    one = session(FREE)
    binding = one.io_binding()
    with pytest.raises(FeedError, match="no output is bound"):
        binding.get_peak_bytes()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "simulator", 0)
    peak = binding.get_peak_bytes()[ZERO]
    assert peak.run_bytes is None
    assert peak.unknown == "the size of 'x' isn't known before the run"
