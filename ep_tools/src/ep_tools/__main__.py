"""`python -m ep_tools` is `ep`."""

from __future__ import annotations

import sys

from ep_tools.cli import main

sys.exit(main())
