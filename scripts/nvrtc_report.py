"""Compiles the kernels for NVIDIA's chips and tells registers and spills; no GPU is needed.

    python scripts/nvrtc_report.py            writes docs/cuda-kernels.md
    python scripts/nvrtc_report.py --check    fails where a kernel got worse than is written there

NVRTC comes with the package nvidia-cuda-nvrtc; EP_CUDA_NVRTC may name another one.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_corpus import wanted_programs

from ep_core.errors import CompileError, EpError
from ep_cuda.dialect import OPTIONS, text_of
from ep_cuda.nvrtc import Nvrtc

TARGET = Path(__file__).resolve().parents[1] / "docs" / "cuda-kernels.md"
CHIPS = ("sm_75", "sm_80", "sm_90", "sm_120")
MORE_REGISTERS = 8
"""By how many a kernel may grow before `--check` fails: compilers differ by a few."""

HEADER = """\
# Kernels on NVIDIA's chips

What NVRTC makes of the device kernels. Written by `scripts/nvrtc_report.py`; with `--check` it
fails when a kernel spills more than is written here, or needs over {more} registers more. The
programs are those that the kit's cases ask for on a GPU; a row tells the largest of all variants
of a kernel.

A cell is registers of a thread, then bytes spilled from registers to memory where there are any.
Nothing here has been measured on a chip: it is what the compiler says.

NVRTC {version}, {programs} programs, {chips}.

"""

_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_CELL = re.compile(r"(\d+)(?: \((\d+) B\))?")


@dataclass(frozen=True, slots=True)
class Use:
    """What a kernel takes.

    Attributes:
        registers: of a thread.
        spilled: bytes of spill stores and loads.
    """

    registers: int
    spilled: int

    def __str__(self) -> str:
        return f"{self.registers} ({self.spilled} B)" if self.spilled else str(self.registers)

    def joined(self, other: Use) -> Use:
        """The larger of both, each by itself."""
        registers = max(self.registers, other.registers)
        return Use(registers, max(self.spilled, other.spilled))


Report = Mapping[tuple[str, str], Mapping[str, Use]]
"""By file and kernel, by chip."""


def main() -> int:
    """Compile everything, then write the report or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with docs/cuda-kernels.md")
    parser.add_argument("--chips", nargs="+", default=list(CHIPS), metavar="sm_90")
    options = parser.parse_args()
    library = _library()
    programs = wanted_programs()
    texts = {
        text_of(item.file, dict(item.defines), item.head, item.body): item.file for item in programs
    }
    try:
        report = _compiled(library, texts, options.chips)
    except EpError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.check:
        worse = list(_worse(_read(TARGET.read_text(encoding="utf-8")), report))
        sys.stdout.writelines(f"{line}\n" for line in worse)
        sys.stdout.write(f"{len(report)} kernels, {len(worse)} got worse\n")
        return 1 if worse else 0
    version = ".".join(map(str, Nvrtc(library).version()))
    head = HEADER.format(
        more=MORE_REGISTERS, version=version, programs=len(texts), chips=", ".join(options.chips)
    )
    TARGET.write_text(head + _table(report, options.chips), encoding="utf-8")
    return 0


def _library() -> str:
    """Path or name of NVRTC."""
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = sorted(packages.glob("*/lib/libnvrtc.so.*"))
    return os.environ.get("EP_CUDA_NVRTC") or (str(found[-1]) if found else "libnvrtc.so")


def _compiled(library: str, texts: Mapping[str, str], chips: Sequence[str]) -> Report:
    report: dict[tuple[str, str], dict[str, Use]] = {}
    loaded = ctypes.CDLL(library)
    for chip in chips:
        wanted = [f"--gpu-architecture={chip}", *OPTIONS, "--ptxas-options=-v"]
        for text, file in texts.items():
            for name, use in _uses(_told(loaded, text, file, wanted)):
                row = report.setdefault((file, name), {})
                row[chip] = use.joined(row.get(chip, use))
    return report


def _told(library: ctypes.CDLL, text: str, name: str, options: Sequence[str]) -> str:
    """What the compiler says of a program; the provider's own layer forgets it where all is well.

    Raises:
        CompileError: the compiler refuses the program.
    """
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = library.nvrtcCompileProgram(program, len(options), words)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    told = log.value.decode("utf-8", "replace")
    if status:
        raise CompileError(f"NVRTC can't compile {name}: {told}")
    return told


def _uses(log: str) -> Iterable[tuple[str, Use]]:
    """Kernels and what they take, from the lines of ptxas."""
    _, *parts = _KERNEL.split(log)
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        spills, registers = _SPILLS.search(part), _REGISTERS.search(part)
        if spills is not None and registers is not None:
            yield name, Use(int(registers[1]), int(spills[1]) + int(spills[2]))


def _table(report: Report, chips: Sequence[str]) -> str:
    lines = [
        f"| File | Kernel | {' | '.join(chips)} |",
        "|---|---|" + "---:|" * len(chips),
    ]
    for (file, name), uses in sorted(report.items()):
        cells = " | ".join(str(uses[chip]) for chip in chips)
        lines.append(f"| `{file}` | `{name}` | {cells} |")
    return "\n".join(lines) + "\n"


def _read(text: str) -> Report:
    """The table of a report."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith("|-")
    ]
    chips = rows[0][2:]
    found: dict[tuple[str, str], dict[str, Use]] = {}
    for file, name, *cells in rows[1:]:
        uses = found[file, name] = {}
        for chip, cell in zip(chips, cells, strict=True):
            match = _CELL.fullmatch(cell)
            if match is not None:
                uses[chip] = Use(int(match[1]), int(match[2] or 0))
    return found


def _worse(before: Report, after: Report) -> Iterable[str]:
    """Sentences about what got worse, or isn't written down."""
    for (file, name), uses in sorted(after.items()):
        if (file, name) not in before:
            yield f"{file} {name} isn't in the report: write it anew"
            continue
        for chip, use in uses.items():
            old = before[file, name].get(chip)
            if old is None:
                continue
            if use.spilled > old.spilled or use.registers > old.registers + MORE_REGISTERS:
                yield f"{file} {name} on {chip}: {use}, was {old}"


if __name__ == "__main__":
    sys.exit(main())
