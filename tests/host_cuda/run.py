"""Runs a command with the host stand-ins for CUDA: `python tests/host_cuda/run.py pytest ...`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from host_cuda import HostCudaError, environment


def main() -> NoReturn:
    """Take the options before the command, then become the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "host_cuda"
    parser.add_argument("--cache", type=Path, default=cache, help="libraries and compiled kernels")
    parser.add_argument("--order", choices=("forward", "backward", "shuffled"), default="forward")
    parser.add_argument("--seed", type=int, default=1, help="of --order shuffled")
    parser.add_argument("--delay", type=int, default=0, help="microseconds before a stream's work")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--sanitize", action="store_true", help="with the address sanitizer")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("a command is needed")
    try:
        found = environment(
            options.cache.absolute(),
            order=options.order,
            seed=options.seed,
            delay=options.delay,
            devices=options.devices,
            sanitize=options.sanitize,
        )
    except HostCudaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    os.execvpe(options.command[0], options.command, found)


if __name__ == "__main__":
    main()
