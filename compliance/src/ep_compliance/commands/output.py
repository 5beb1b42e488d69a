"""How the kit's commands write: plain text, safe whatever stands in it."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["say", "say_json"]


def say(text: str) -> None:
    """Write lines to stdout. Control characters are shown, not obeyed: texts come from files."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def say_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")
