"""Sets of nodes of an operator and version, as boxes of types, and what one has beyond another.

A box has a set of types for each type parameter of the schema, so that only combinations that a
valid node can have are looked at, and says which inputs and outputs may stand. Rows are read as the
core matches them. Nothing here knows certificates as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ep_compliance.cases.signatures import Formal, Signature
from ep_core.certificates.file import CertificateRow
from ep_core.errors import CertificateError

__all__ = ["Box", "Layout", "beyond"]

Box = tuple[frozenset[str], ...]
"""Types by key of the layout, then by position `_STANDS`, or nothing where no value may stand."""

_ANY = "any"
_STANDS = frozenset({"stands"})
_MOST_PARTS = 20_000

_MIXED = frozenset({"Adagrad", "Adam", "Gradient", "If", "Loop", "Momentum", "Scan", "SequenceMap"})
"""Operators whose variadic inputs and outputs may differ in type among each other."""


@dataclass(frozen=True)
class Layout:
    """What the entries of a box mean, for one operator and version.

    Attributes:
        inputs, outputs: the key of each position: a type parameter, or a name of its own.
        required: positions, inputs first, that every node has.
        types: what any type may be, by key.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    required: frozenset[int]
    types: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, signature: Signature | None, rows: Sequence[CertificateRow]) -> Layout:
        """The layout that fits rows of an operator, whose signature may be unknown."""
        sides = {"input": [row.inputs for row in rows], "output": [row.outputs for row in rows]}
        keys: dict[str, tuple[str, ...]] = {}
        types: dict[str, frozenset[str]] = {}
        required: list[int] = []
        start = 0
        for side, entries in sides.items():
            formals = _formals(signature, side, max(map(len, entries), default=0))
            keys[side] = tuple(_key(signature, side, i, f) for i, f in enumerate(formals))
            for position, (key, formal) in enumerate(zip(keys[side], formals, strict=True)):
                if signature is None or formal is None:
                    types[key] = _seen(entries, position)
                    continue
                types[key] = signature.allowed(formal)
                if not formal.optional and not formal.variadic:
                    required.append(start + position)
            start = len(formals)
        return cls(keys["input"], keys["output"], frozenset(required), types)

    @property
    def positions(self) -> tuple[str, ...]:
        """Keys of inputs, then of outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def keys(self) -> tuple[str, ...]:
        """Each key once."""
        return tuple(dict.fromkeys(self.positions))

    def boxes(self, row: CertificateRow) -> list[Box]:
        """What a row grants.

        A row has types by position. Types of one parameter that may stand in different positions
        go into different boxes.
        """
        types = [self._types(kinds, key) for kinds, key in self._padded(row)]
        choices = [list(self._choices(key, types)) for key in self.keys]
        return [
            (
                *(kinds for kinds, _ in choice),
                *(
                    _STANDS if any(i in standing for _, standing in choice) else frozenset()
                    for i in range(len(types))
                ),
            )
            for choice in itertools.islice(itertools.product(*choices), _MOST_PARTS)
        ]

    def _padded(self, row: CertificateRow) -> Iterator[tuple[frozenset[str] | None, str]]:
        """Types and key of each position; the last entry of a side stands for all later ones."""
        for side, keys in ((row.inputs, self.inputs), (row.outputs, self.outputs)):
            for position, key in enumerate(keys):
                yield (side[min(position, len(side) - 1)] if side else frozenset()), key

    def _types(self, kinds: frozenset[str] | None, key: str) -> frozenset[str]:
        return self.types[key] if kinds is None else kinds

    def _choices(
        self, key: str, types: Sequence[frozenset[str]]
    ) -> Iterator[tuple[frozenset[str], frozenset[int]]]:
        """Types of one key, together if they may stand in the same positions, with those."""
        mine = [i for i, other in enumerate(self.positions) if other == key]
        groups: dict[frozenset[int], set[str]] = {}
        for kind in sorted(frozenset[str]().union(*(types[i] for i in mine))):
            standing = frozenset(i for i in mine if kind in types[i])
            if self.required & set(mine) <= standing:
                groups.setdefault(standing, set()).add(kind)
        for standing, kinds in groups.items():
            yield frozenset(kinds), standing
        if not groups and not self.required & set(mine):
            yield frozenset(), frozenset()

    def sides(self, box: Box) -> tuple[Box, Box]:
        """Types by position of inputs and outputs, nothing where no value may stand."""
        keys = dict(zip(self.keys, box, strict=False))
        flags = box[len(keys) :]
        shown = tuple(
            keys[key] if stands else frozenset[str]()
            for key, stands in zip(self.positions, flags, strict=True)
        )
        return shown[: len(self.inputs)], shown[len(self.inputs) :]


def _formals(signature: Signature | None, side: str, length: int) -> list[Formal | None]:
    """The formal of each position, None where there is none; a variadic one has all further."""
    known: Sequence[Formal] = ()
    if signature is not None:
        known = signature.inputs if side == "input" else signature.outputs
    further = known[-1] if known and known[-1].variadic else None
    return [*known, *[further] * (length - len(known))]


def _key(signature: Signature | None, side: str, position: int, formal: Formal | None) -> str:
    """A type parameter, or a name of its own: values of mixed types needn't be alike."""
    if signature is None or formal is None or formal.kind not in signature.types:
        return f"{side} {position}"
    mixed = formal.variadic and signature.op_type in _MIXED
    return f"{side} {position}" if mixed else formal.kind


def _seen(entries: Sequence[Sequence[frozenset[str] | None]], position: int) -> frozenset[str]:
    """What stands for any type where nothing tells: all that are named there, and others."""
    named = [side[min(position, len(side) - 1)] for side in entries if side]
    return frozenset({_ANY}).union(*(kinds for kinds in named if kinds is not None))


# ---------------------------------------------------------------- what is beyond


def beyond(ours: Sequence[Box], others: Sequence[Box]) -> list[Box]:
    """Boxes that cover what ours have and no other does, none inside another.

    Raises:
        CertificateError: they overlap in more ways than any run of the kit makes.
    """
    shared = set(others)
    parts = [part for box in ours if box not in shared for part in _left_of(box, others)]
    distinct = list(dict.fromkeys(parts))
    return [
        part
        for part in distinct
        if not any(_inside(part, other) for other in distinct if other is not part)
    ]


def _inside(box: Box, other: Box) -> bool:
    return all(kinds <= wider for kinds, wider in zip(box, other, strict=True))


def _left_of(box: Box, others: Sequence[Box]) -> list[Box]:
    """Cut off what others cover, entry by entry.

    An empty entry is covered by all: a value may always be left out.
    """
    left: list[Box] = []
    open_parts: list[tuple[Box, tuple[int, ...]]] = [((), tuple(range(len(others))))]
    for at, kinds in enumerate(box):
        following: list[tuple[Box, tuple[int, ...]]] = []
        for start, covering in open_parts:
            for still, part in _split(kinds, at, covering, others):
                following.append(((*start, part), still))
        left += [(*start, *box[at + 1 :]) for start, still in following if not still]
        open_parts = [item for item in following if item[1]]
        if len(open_parts) + len(left) > _MOST_PARTS:
            raise CertificateError("rows overlap in too many ways to be compared")
    return left


def _split(
    kinds: frozenset[str], at: int, covering: tuple[int, ...], others: Sequence[Box]
) -> Iterator[tuple[tuple[int, ...], frozenset[str]]]:
    """The types of one entry, together if the same boxes have them, with those boxes."""
    if not kinds:
        yield covering, kinds
        return
    groups: dict[tuple[int, ...], set[str]] = {}
    for kind in sorted(kinds):
        still = tuple(i for i in covering if kind in others[i][at])
        groups.setdefault(still, set()).add(kind)
    for still, found in groups.items():
        yield still, frozenset(found)
