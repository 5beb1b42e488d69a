"""`python -m stress`: episodes for as long as is asked for, then a report; the exit status says.

One episode again: `python -m stress --seed 7 --first 1234 --count 1`.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
from stress.devices import stress_providers
from stress.episodes import STYLES, run_episode

_HANGS_SECONDS = 180
_TOLD_SECONDS = 60.0
_MOST_PROBLEMS = 20
_WARM_UP = 0.2
"""Part of the episodes in which caches may still fill."""

_MOST_GROWTH = 0.03
"""Part of its size by which anything may grow from the warm-up to the end, along a fitted line."""

_FEW_SAMPLES = 300
"""With fewer than this nothing is said about growth."""


def main() -> int:
    """Run the episodes."""
    parser = argparse.ArgumentParser(prog="stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long; ignored with --count")
    parser.add_argument("--count", type=int, help="how many episodes, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first episode")
    parser.add_argument("--style", choices=sorted(set(STYLES)), help="of all episodes")
    args = parser.parse_args()
    _tell(f"seed {args.seed}, Python {sys.version.split()[0]}")
    problems: list[str] = []
    counts: Counter[str] = Counter()
    heap, blocks = array("q"), array("q")  # after each episode
    start = told = time.monotonic()
    number = args.first
    with stress_providers():
        while not _is_over(args, number, start) and len(problems) < _MOST_PROBLEMS:
            faulthandler.dump_traceback_later(_HANGS_SECONDS, exit=True)
            found, done = run_episode(args.seed, number, args.style)
            counts += done
            for problem in found:
                problems.append(f"episode {number}: {problem}")
                _tell(problems[-1])
            number += 1
            gc.collect()
            heap.append(_heap())
            blocks.append(sys.getallocatedblocks())
            if time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                _tell(_line(number - args.first, told - start, heap[-1], counts))
    faulthandler.cancel_dump_traceback_later()
    _tell(_line(number - args.first, time.monotonic() - start, heap[-1], counts))
    for what, count in sorted(counts.items()):
        _tell(f"  {what}: {count}")
    for what, series in (("bytes of the heap", heap), ("blocks of Python", blocks)):
        line, is_too_much = _growth(what, series)
        _tell(f"  {line}")
        problems += [line] if is_too_much else []
    told = problems[:_MOST_PROBLEMS]
    _tell("\n".join([f"{len(problems)} problems:", *told]) if problems else "nothing was lost")
    return 1 if problems else 0


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _is_over(args: argparse.Namespace, number: int, start: float) -> bool:
    if args.count is not None:
        return bool(number >= args.first + args.count)
    return bool(time.monotonic() - start > 60 * args.minutes)


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library (mallinfo(3)): ten sizes in bytes or numbers."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")),
        ("keepcost", ctypes.c_size_t),
    )


def _heap() -> int:
    """Bytes that are taken from the C library and not given back; 0 where it doesn't tell.

    Not what is resident: with many threads that rises by what the library keeps of each arena.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    mallinfo.restype = _MallInfo
    told = mallinfo()
    return int(told.uordblks + told.hblkhd)


def _line(episodes: int, seconds: float, heap: int, counts: Counter[str]) -> str:
    return (
        f"{seconds:.0f} s: {episodes} episodes, {counts['accesses']} accesses checked, "
        f"{counts['interrupts']} interrupts, {heap / 2**20:.1f} MB in use"
    )


def _growth(what: str, series: Sequence[int]) -> tuple[str, bool]:
    """How something has grown after the warm-up, in words, and whether that is too much.

    Python's own objects are counted as blocks: they don't lie on the heap of the C library.
    """
    late = series[int(len(series) * _WARM_UP) :]
    if len(late) < _FEW_SAMPLES:
        return f"{what}: too few episodes to say how it grows", False
    slope, first = np.polyfit(np.arange(len(late)), late, 1)
    grown = slope * len(late)
    text = f"{what}: {first:.0f} after the warm-up, {grown:+.0f} until the end"
    return text, bool(grown > _MOST_GROWTH * first)


if __name__ == "__main__":
    sys.exit(main())
