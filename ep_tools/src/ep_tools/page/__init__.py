"""The page of `ep explain --html`: one file that shows a placement in any browser.

From general to particular: `html` puts the page together, `document` says what it knows as plain
data, `layout` and the files below it decide where boxes and lines are, `assets/` draws and answers
in the browser. Nothing here places anything, and nothing here writes files.
"""

from __future__ import annotations

from ep_tools.page.html import page_html

__all__ = ["page_html"]
