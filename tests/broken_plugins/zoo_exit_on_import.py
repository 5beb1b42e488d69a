"""A script that somebody made an entry point of."""

import sys

sys.exit("usage: zoo [options]")
