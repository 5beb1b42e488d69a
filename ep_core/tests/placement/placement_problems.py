"""Random placement problems, and the best placement of a small one found by trying them all.

The sums are written with numpy over all assignments at once, from the words of the model and not
from the code that is tested. Only the number of partitions is asked of the code, for few.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import numpy as np

from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import NO_UNIT, Group, Problem, Route, Tensor

MEMORIES = {
    2: [(0, 1), (1, 0), (1, 2), (0, 0), (1, 1)],
    3: [(1, 2, 0), (1, 0, 0), (0, 0, 0), (1, 2, 3), (0, 1, 2), (1, 1, 0)],
}


def random_edges(rng: random.Random, count: int) -> list[tuple[int, ...]]:
    """By unit the units that it reads."""
    edges: list[tuple[int, ...]] = []
    for unit in range(count):
        wanted = rng.choice([0, 1, 1, 2, 2, 3])
        edges.append(tuple(sorted({rng.randrange(unit) for _ in range(wanted)})) if unit else ())
    return edges


def random_problem(
    seed: int,
    candidates: int,
    most: int,
    *,
    direct: bool = False,
    start: tuple[float, ...] = (0.0, 2.0, 10.0, 30.0),
) -> Problem:
    """A problem of up to `most` units; what it reads from outside is one tensor.

    Args:
        direct: some pairs of devices have a way that avoids the host.
        start: of which one is what each partition takes.
    """
    rng = random.Random(seed)
    count = rng.randint(2, most)
    edges = random_edges(rng, count)
    memory_of = rng.choice(MEMORIES[candidates])
    routes = {}
    for memory in range(1, max(memory_of) + 1):
        routes[memory, 0] = random_route(rng)
        routes[0, memory] = random_route(rng)
    if direct:
        for pair in itertools.permutations(range(1, max(memory_of) + 1), 2):
            if rng.random() < 0.7:
                routes[pair] = random_route(rng)
    return problem_of(
        edges,
        [random_row(rng, candidates) for _ in range(count)],
        memory_of,
        routes,
        start=rng.choice(start),
        sizes=[rng.choice([1, 10, 1000]) for _ in range(count + 1)],
        outputs=[unit for unit in range(count) if rng.random() < 0.2],
    )


def random_route(rng: random.Random) -> Route:
    return Route(rng.choice([1.0, 5.0, 20.0]), rng.choice([10.0, 100.0]))


def random_row(rng: random.Random, candidates: int) -> tuple[float, ...]:
    row = [float(rng.randrange(40)) for _ in range(candidates)]
    row = [math.inf if rng.random() < 0.15 else cost for cost in row]
    if min(row) == math.inf:
        row[rng.randrange(candidates)] = 5.0
    return tuple(row)


def problem_of(
    edges, seconds, memory_of, routes, *, start=0.0, sizes=None, outputs=(), **extra
) -> Problem:
    """A problem in which unit i makes tensor i + 1 and reads those of `edges[i]`.

    Units that read nothing read tensor 0, which the caller feeds; what nobody reads is an output.
    """
    count = len(edges)
    readers: list[list[int]] = [[] for _ in range(count)]
    for unit, makers in enumerate(edges):
        for maker in makers:
            readers[maker].append(unit)
    sizes = sizes or [1] * (count + 1)
    roots = tuple(unit for unit, makers in enumerate(edges) if not makers)
    tensors = [Tensor("x", sizes[0], NO_UNIT, roots)]
    for unit, users in enumerate(readers):
        output = unit in outputs or not users
        tensors.append(Tensor(f"t{unit}", sizes[unit + 1], unit, tuple(users), output))
    return Problem(
        candidates=tuple("abcdef"[: len(memory_of)]),
        memory_of=memory_of,
        names=[f"n{unit}" for unit in range(count)],
        seconds=seconds,
        tensors=tensors,
        routes=routes,
        partition_seconds=(start,) * len(memory_of),
        **extra,
    )


def with_groups(problem: Problem, seed: int) -> Problem:
    """The same where candidates fuse connected units; groups of one candidate share none."""
    rng = random.Random(seed)
    groups = []
    for candidate in range(len(problem.candidates)):
        free = {u for u, able in enumerate(problem.able) if candidate in able}
        for unit in sorted(free):
            chosen = [unit]
            while chosen[-1] in free and rng.random() < 0.7:
                free.discard(chosen[-1])
                users = [user for user in problem.users[chosen[-1]] if user in free]
                if not users:
                    break
                chosen.append(rng.choice(users))
            if len(chosen) > 1:
                free.difference_update(chosen)
                alone = sum(problem.seconds[u][candidate] for u in chosen)
                if alone:
                    saving = alone * rng.choice([0.2, 0.9])
                    groups.append(Group(candidate, tuple(sorted(chosen)), saving))
    return dataclasses.replace(problem, groups=groups)


def assignments(problem: Problem) -> np.ndarray:
    """Every assignment, one per row."""
    return np.array(list(itertools.product(*problem.able)), dtype=np.int8)


def units_and_copies(problem: Problem, owners: np.ndarray, crossing: float = 0.0) -> np.ndarray:
    """Seconds of units and copies by row of `owners`, where every copy goes through the host.

    Groups count as fused wherever they are on their candidate.

    Args:
        crossing: price of a tensor that is read on another candidate than the one that makes it.
    """
    place = np.array(problem.memory_of)[owners]
    rows = np.array(problem.seconds)
    total = sum(rows[unit][owners[:, unit]] for unit in range(owners.shape[1]))
    for tensor in problem.tensors:
        readers = list(tensor.consumers)
        fed = tensor.producer == NO_UNIT
        home = np.zeros(len(owners), int) if fed else place[:, tensor.producer]
        for memory in range(1, max(problem.memory_of) + 1):
            wanted = (place[:, readers] == memory).any(axis=1) & (home != memory)
            leaves = (home == memory) & (tensor.output | (place[:, readers] != memory).any(axis=1))
            total = total + wanted * problem.routes[0, memory].seconds(tensor.nbytes)
            total = total + leaves * problem.routes[memory, 0].seconds(tensor.nbytes)
        if crossing and not fed:
            away = owners[:, readers] != owners[:, [tensor.producer]]
            total = total + crossing * away.any(axis=1)
    for group in problem.groups:
        together = (owners[:, list(group.units)] == group.candidate).all(axis=1)
        total = total - together * group.saving
    return total


def optimum(problem: Problem) -> Outcome:
    """The cheapest placement: assignments in the order of what they cost at the least."""
    owners = assignments(problem)
    starts = np.array(problem.partition_seconds)
    used = np.stack([(owners == c).any(axis=1) for c in range(len(starts))], axis=1)
    bound = units_and_copies(problem, owners) + used @ starts
    best = None
    for row in np.argsort(bound, kind="stable"):
        if best is not None and bound[row] >= best.cost:
            break
        found = evaluate(problem, [int(owner) for owner in owners[row]])
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return best
