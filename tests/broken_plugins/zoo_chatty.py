"""Works, and writes to standard output and error whenever it can."""

import os
import sys

from zoo_common import Factory

from ep_core.hookspecs import hookimpl

sys.stdout.write('{"outcome": "crashed"}\n')
os.write(1, b"\xff\x00 survived\n")
os.write(2, b"vendor banner\n")


@hookimpl
def ep_provider_factory():
    return Factory("zoo_chatty")
