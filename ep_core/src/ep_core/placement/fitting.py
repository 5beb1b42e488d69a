"""Placements that fit into memories with a limit: simple ones to start from, and the error."""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.errors import PlacementError
from ep_core.placement.memory import needs
from ep_core.placement.objective import Outcome, evaluate
from ep_core.placement.problem import Owners, Problem

__all__ = ["check_room", "roomy"]

_TRIES = 8
_MOST_NAMED = 2
_MIB = 2**20


def roomy(problem: Problem, choices: Owners) -> list[Outcome]:
    """Placements that take less room than what is chosen, none of them sure to fit.

    One leaves to memories with a limit only what can run nowhere else. The others keep to the
    choices, in order, as long as constants and the values around each unit fit.
    """
    spare = [
        next((c for c in able if problem.memory_of[c] not in problem.tight), able[0])
        for able in problem.able
    ]
    found = [evaluate(problem, spare)]
    room = dict(problem.tight)
    for _ in range(_TRIES):
        outcome = evaluate(problem, _filled(problem, choices, room))
        found.append(outcome)
        if not outcome.overflow:
            break
        for memory, (constants, values) in _taken(problem, outcome).items():
            room[memory] -= max(0, constants + values - problem.tight[memory])
    return found


def _filled(problem: Problem, choices: Owners, room: Mapping[int, int]) -> list[int]:
    """The choices, or else the first that can and has room; who has no choice comes first."""
    weights: list[list[int]] = [[] for _ in problem.names]
    for position, weight in enumerate(problem.weights):
        for unit in weight.consumers:
            weights[unit].append(position)
    left = dict(room)
    held: set[tuple[int, int]] = set()
    owners = list(choices)
    for unit in sorted(problem.order, key=lambda unit: len(problem.able[unit]) > 1):
        around = sum(problem.tensors[position].nbytes for position in problem.touching[unit])
        for candidate in (choices[unit], *problem.able[unit]):
            memory = problem.memory_of[candidate]
            new = [position for position in weights[unit] if (position, memory) not in held]
            taken = sum(problem.weights[position].nbytes for position in new)
            forced = len(problem.able[unit]) == 1
            if memory not in left or forced or taken + around <= left[memory]:
                owners[unit] = candidate
                held.update((position, memory) for position in new)
                if memory in left:
                    left[memory] -= taken
                break
    return owners


def check_room(problem: Problem, best: Outcome) -> None:
    """Raise PlacementError if a placement doesn't fit; names what stands against the limit."""
    if not best.overflow:
        return
    taken = _taken(problem, best)
    memory = max(taken, key=lambda m: sum(taken[m]) - problem.tight[m])
    names = [
        repr(name)
        for name, at in zip(problem.candidates, problem.memory_of, strict=True)
        if at == memory
    ]
    constants, values = taken[memory]
    raise PlacementError(
        f"the memory limit of {' and '.join(names)}, {_text(problem.tight[memory])}, contradicts "
        f"where nodes may run: {_bound(problem, memory)}",
        got=f"{_text(constants + values)} at the least, of the placements tried: "
        f"{_text(constants)} of constants and {_text(values)} of values",
        fix="Raise the limit, change the pins and providers, or give the lengths of dimensions "
        "that the model leaves open: they are assumed.",
    )


def _bound(problem: Problem, memory: int) -> str:
    """The units that can be nowhere else and need most."""
    needed = {
        unit: sum(problem.tensors[position].nbytes for position in problem.touching[unit])
        for unit, able in enumerate(problem.able)
        if all(problem.memory_of[candidate] == memory for candidate in able)
    }
    for weight in problem.weights:
        for unit in weight.consumers:
            if unit in needed:
                needed[unit] += weight.nbytes
    texts = []
    for unit in sorted(needed, key=lambda u: -needed[u])[:_MOST_NAMED]:
        how = "is pinned there" if unit in problem.pinned else "can run nowhere else"
        texts.append(f"{problem.names[unit]!r} {how} and needs {_text(needed[unit])}")
    return ", ".join(texts) or "everything that was tried needs more"


def _taken(problem: Problem, outcome: Outcome) -> dict[int, tuple[int, int]]:
    return needs(problem, outcome.owners, outcome.batches, outcome.copies, problem.tight)


def _text(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB" if nbytes >= _MIB else f"{nbytes} bytes"
