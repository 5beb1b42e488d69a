"""Element types as kernels know them: short codes that `cl/common.cl` gives a meaning to."""

from __future__ import annotations

from dataclasses import dataclass

from ep_core.types import DataType

__all__ = [
    "ELEMENTS",
    "FLOATS",
    "INTEGERS",
    "NARROW_FLOATS",
    "NUMBERS",
    "Element",
    "element_of",
]


@dataclass(frozen=True, slots=True)
class Element:
    """One element type.

    Attributes:
        code: its name in kernels, such as `f32`; `LOAD(f32, p, i)` reads one.
        nbytes: of one element in memory.
        kind: `float`, `int`, `uint` or `bool`.
    """

    code: str
    nbytes: int
    kind: str


ELEMENTS: dict[DataType, Element] = {
    DataType.FLOAT: Element("f32", 4, "float"),
    DataType.FLOAT16: Element("f16", 2, "float"),
    DataType.BFLOAT16: Element("bf16", 2, "float"),
    DataType.DOUBLE: Element("f64", 8, "float"),
    DataType.INT8: Element("i8", 1, "int"),
    DataType.INT16: Element("i16", 2, "int"),
    DataType.INT32: Element("i32", 4, "int"),
    DataType.INT64: Element("i64", 8, "int"),
    DataType.UINT8: Element("u8", 1, "uint"),
    DataType.UINT16: Element("u16", 2, "uint"),
    DataType.UINT32: Element("u32", 4, "uint"),
    DataType.UINT64: Element("u64", 8, "uint"),
    DataType.BOOL: Element("b8", 1, "bool"),
}

NARROW_FLOATS = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
"""Computed in float32 and rounded once per operator, on every device."""

FLOATS = NARROW_FLOATS | {DataType.FLOAT, DataType.DOUBLE}
INTEGERS = frozenset(kind for kind, item in ELEMENTS.items() if item.kind in ("int", "uint"))
NUMBERS = FLOATS | INTEGERS


def element_of(dtype: DataType) -> Element:
    """The element type's entry; the caller has made sure that there is one."""
    return ELEMENTS[dtype]
