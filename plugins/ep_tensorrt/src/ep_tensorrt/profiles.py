"""Shapes that engines are built for: declared by options, or observed in runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ep_core.errors import CompileError, OptionError
from ep_core.graph import Subgraph
from ep_core.types import Shape, TensorType

__all__ = ["Range", "declared", "merged", "spans"]

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Range:
    """The shapes of one input: smallest, the one to tune for, largest."""

    least: Lengths
    best: Lengths
    most: Lengths

    def holds(self, shape: Lengths) -> bool:
        """Whether a shape lies within."""
        return len(shape) == len(self.least) and all(
            low <= length <= high
            for low, length, high in zip(self.least, shape, self.most, strict=True)
        )


Ranges = Mapping[str, Range]


def declared(subgraph: Subgraph, options: Mapping[str, Any]) -> Ranges | None:
    """Return the ranges of a subgraph's inputs as far as shapes and options tell them.

    A range of an input of the model tells the range of its symbolic lengths, wherever they stand.

    Returns:
        A range for each input; None where lengths of one aren't told.

    Raises:
        OptionError: what is declared contradicts itself or the model.
    """
    told = _told(options)
    symbols: dict[str, tuple[int, int, int]] = {}
    for name, span in told.items():
        kind = subgraph.graph.type_of(name)
        if isinstance(kind, TensorType) and kind.shape is not None:
            _note(name, kind.shape, span, symbols)
    found = {}
    for name in subgraph.inputs:
        kind = subgraph.graph.type_of(name)
        if not isinstance(kind, TensorType) or kind.shape is None:
            raise CompileError(f"the rank of {name!r} isn't known")
        known = told.get(name) or _from_symbols(kind.shape, symbols)
        if known is None:
            return None
        found[name] = known
    return found


def _told(options: Mapping[str, Any]) -> dict[str, Range]:
    least, best, most = (
        dict(options[f"trt_profile_{word}_shapes"]) for word in ("min", "opt", "max")
    )
    if not least.keys() == best.keys() == most.keys():
        raise OptionError(
            "trt_profile_min_shapes, trt_profile_opt_shapes and trt_profile_max_shapes",
            expected="the same names in all three",
            got=f"{sorted(least)}, {sorted(best)} and {sorted(most)}",
        )
    found = {}
    for name in least:
        low, middle, high = least[name], best[name], most[name]
        ordered = len(low) == len(middle) == len(high) and all(
            a <= b <= c for a, b, c in zip(low, middle, high, strict=True)
        )
        if not ordered:
            raise OptionError(
                f"the declared shapes of {name!r}",
                expected="min <= opt <= max in every length",
                got=f"{low}, {middle} and {high}",
            )
        found[name] = Range(low, middle, high)
    return found


def _note(name: str, shape: Shape, span: Range, symbols: dict[str, tuple[int, int, int]]) -> None:
    """Take the ranges of symbolic lengths from what is declared of an input."""
    if len(span.least) != len(shape):
        raise OptionError(
            f"the declared shapes of {name!r}",
            expected=f"{len(shape)} lengths",
            got=len(span.least),
        )
    for dim, *lengths in zip(shape, span.least, span.best, span.most, strict=True):
        low, middle, high = lengths
        if isinstance(dim, int):
            if not low == middle == high == dim:
                raise OptionError(f"the declared shapes of {name!r}", expected=dim, got=lengths)
        elif dim is not None and symbols.setdefault(dim, (low, middle, high)) != tuple(lengths):
            raise OptionError(
                f"length {dim!r} is declared twice", expected=symbols[dim], got=tuple(lengths)
            )


def _from_symbols(shape: Shape, symbols: Mapping[str, tuple[int, int, int]]) -> Range | None:
    lengths = []
    for dim in shape:
        if isinstance(dim, int):
            lengths.append((dim, dim, dim))
        elif dim is not None and dim in symbols:
            lengths.append(symbols[dim])
        else:
            return None
    columns = list(zip(*lengths, strict=True)) or [(), (), ()]
    least, best, most = (tuple(column) for column in columns)
    return Range(least, best, most)


def spans(ranges: Ranges, shapes: Sequence[Lengths]) -> bool:
    """Whether ranges hold the shapes of a run, which are in the order of the ranges."""
    return all(span.holds(shape) for span, shape in zip(ranges.values(), shapes, strict=True))


def merged(ranges: Ranges | None, names: Sequence[str], shapes: Sequence[Lengths]) -> Ranges:
    """Return ranges that hold what older ones did and the shapes of a run, tuned for those."""
    found = {}
    for name, shape in zip(names, shapes, strict=True):
        old = ranges[name] if ranges is not None else Range(shape, shape, shape)
        least = tuple(map(min, old.least, shape))
        most = tuple(map(max, old.most, shape))
        found[name] = Range(least, shape, most)
    return found
