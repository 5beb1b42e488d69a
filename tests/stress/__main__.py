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
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from stress.devices import stress_providers
from stress.episodes import STYLES, run_episode

_HANGS_SECONDS = 180
_TOLD_SECONDS = 60.0
_MOST_PROBLEMS = 20
_WARM_UP = 0.2
"""Part of the episodes in which caches may still fill."""

_TRACED = 0.8
"""Part of the time after which Python traces its memory, which makes everything slower."""

_MOST_GROWTH = 0.1
"""Part of its size by which anything may grow from the warm-up to the end, along a fitted line."""

_FEW_SAMPLES = 60
"""With fewer than this nothing is said about growth."""


@dataclass
class _Sample:
    """What there is after an episode; 0 for what isn't known."""

    heap: int
    traced: int
    blocks: int


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
    samples: list[_Sample] = []
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
            samples.append(_sample())
            late = time.monotonic() - start > 60 * args.minutes * _TRACED
            if late and args.count is None and not tracemalloc.is_tracing():
                tracemalloc.start()
            if time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                _tell(_line(number - args.first, told - start, samples[-1], counts))
    faulthandler.cancel_dump_traceback_later()
    _tell(_line(number - args.first, time.monotonic() - start, samples[-1], counts))
    for what, count in sorted(counts.items()):
        _tell(f"  {what}: {count}")
    for line, is_too_much in _growth(samples):
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


def _sample() -> _Sample:
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
    return _Sample(_heap(), traced, sys.getallocatedblocks())


def _line(episodes: int, seconds: float, sample: _Sample, counts: Counter[str]) -> str:
    return (
        f"{seconds:.0f} s: {episodes} episodes, {counts['accesses']} accesses checked, "
        f"{counts['interrupts']} interrupts, {sample.heap / 2**20:.1f} MB in use"
    )


def _growth(samples: list[_Sample]) -> Iterator[tuple[str, bool]]:
    """By what is counted, how it has grown after the warm-up, and whether that is too much."""
    traced = [sample.traced for sample in samples if sample.traced]
    untraced = [sample for sample in samples if not sample.traced]  # tracing takes memory itself
    series = {
        "bytes of the heap": [sample.heap for sample in untraced],
        "blocks of Python": [sample.blocks for sample in untraced],
        "traced bytes": traced,
    }
    for what, values in series.items():
        late = values[int(len(values) * _WARM_UP) :]
        if len(late) < _FEW_SAMPLES:
            continue
        slope, first = np.polyfit(np.arange(len(late)), late, 1)
        grown = slope * len(late)
        text = f"{what}: {first:.0f} after the warm-up, {grown:+.0f} until the end"
        # Tracing begins with nothing: what fills up once is all there is.
        yield text, bool(grown > _MOST_GROWTH * max(first, untraced[-1].heap / 10))


if __name__ == "__main__":
    sys.exit(main())
