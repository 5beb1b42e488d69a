"""Puts the page together: markup, style and script of ours, and the data, in one file.

The data is JSON inside a script element of a type that browsers don't run, with every `<` written
as an escape, so that nothing in it can end the element. A policy in the page allows this script and
this style alone, and no connection to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib import resources
from typing import Any

from ep_tools.explain_placing import Placed
from ep_tools.page.colours import COLOURS
from ep_tools.page.document import page_document

__all__ = ["page_html"]

_SCRIPTS = (
    "model.js",
    "view.js",
    "heat.js",
    "picture.js",
    "panel.js",
    "times.js",
    "search.js",
    "timeline.js",
    "tracks.js",
    "clock.js",
    "main.js",
)
"""In this order: later ones use what earlier ones define."""


def page_html(placed: Placed, title: str) -> str:
    """Return the whole page.

    Args:
        title: what the model is called.
    """
    document = page_document(placed, title)
    script = "".join(_asset(name) for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    style = _asset("style.css")
    parts = {
        "@POLICY@": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "@TITLE@": escape(f"{title} - placement"),
        "@STYLE@": style,
        "@DATA@": data_json(document | {"colours": COLOURS}),
        "@SCRIPT@": script,
    }
    # Piece by piece, so that data that holds such a word isn't taken for one.
    page = ""
    rest = _asset("page.html")
    for mark, text in parts.items():
        before, _, rest = rest.partition(mark)
        page += before + text
    return page + rest.rstrip("\n")


def data_json(document: Any) -> str:
    """Return JSON in ASCII that is safe inside a script element."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
