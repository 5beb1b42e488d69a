"""The text of programs: which prelude, which definitions, which file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

__all__ = ["program_text", "read_source"]


@cache
def read_source(name: str) -> str:
    """The text of a file in the folder `cl`."""
    return files(__package__).joinpath("cl", name).read_text(encoding="utf-8")


def program_text(
    prelude: str, file: str, defines: Mapping[str, object], head: str = "", body: str = ""
) -> str:
    """The text that a device's compiler is given.

    Args:
        prelude: text that gives the words of kernels a meaning for the compiler; see `common.cl`.
        file: source in the folder `cl`.
        defines: macros set before everything.
        head: text between `common.cl` and the file.
        body: text after the file, for generated kernels.
    """
    lines = [f"#define {name} {value}" for name, value in defines.items()]
    common = read_source("common.cl")
    return "\n".join([*lines, prelude, common, head, read_source(file), body])
