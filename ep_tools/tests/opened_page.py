"""What tests read off a page that is open in the browser, and a trace to join to one."""

from __future__ import annotations

import io

import pytest
from headless import Browser, find_browser
from PIL import Image

BROWSER = find_browser()
needs_browser = [
    pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium, or one in EP_BROWSER"),
    pytest.mark.usefixtures("providers"),
]

SKEWED = ["--providers", "skewed,reference", "--level", "0"]
CHAIN = """
    <ir_version: 9, opset_import: ["" : 20]>
    chain (float[2, 8] x, bool flag) => (float[2, 8] y, float[2, 8] z) {
        a = Abs (x)  b = Mul (a, x)  c = Neg (b)  y = LeakyRelu <alpha = 0.25> (c)
        z = If (flag) <
            then_branch = yes () => (float[2, 8] p) { p = Abs (y) },
            else_branch = no () => (float[2, 8] q) { q = Neg (y) }
        >
    }
"""
COST = ["--strategy", "cost", "--pin", "op:Mul=npu", "--max-copies", "9"]


def panel(browser: Browser) -> str:
    return browser.evaluate("document.getElementById('panel').innerText")


def drawn(browser: Browser) -> int:
    return int(browser.evaluate("document.getElementById('picture').dataset.nodes"))


def graph(browser: Browser) -> str:
    """What the choice of graphs stands at."""
    return browser.evaluate("document.getElementById('scope').selectedOptions[0].text")


def find(browser: Browser, text: str) -> None:
    """Search as a person does, and go to the first node found."""
    browser.press("/")
    browser.evaluate("document.getElementById('query').select()")
    browser.write(text)
    browser.press("Enter")


def middle(browser: Browser) -> tuple[float, float]:
    x, y = browser.evaluate(
        "(() => { const r = document.getElementById('picture').getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    return x, y


def colours_on(browser: Browser) -> set[str]:
    """The colours of the picture that cover at least a few pixels."""
    image = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
    counts = image.getcolors(image.width * image.height) or []
    return {"#{:02x}{:02x}{:02x}".format(*colour) for count, colour in counts if count > 20}


def modes(browser: Browser) -> list[str]:
    return browser.evaluate("[...document.querySelectorAll('#modes button')].map(b => b.innerText)")


def spans(browser: Browser) -> int:
    return int(browser.evaluate("document.getElementById('clock').dataset.spans"))


def made_trace(document: dict, runs: int = 3) -> list[dict]:
    """A trace that fits an explained placement, written by hand: every node takes 2 us.

    A copy takes 5 us, a partition its nodes and 1 us. On the device a partition is handed over in
    3 us, and its nodes run later on a queue of their own.
    """
    names = {1: "MainThread", 2: "npu stream 0"}
    events = [
        {"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": name}}
        for row, name in names.items()
    ]
    parts = {part["name"]: part for part in document["partitions"]}

    def add(name, category, start, length, row=1, **args):
        event = {"ph": "X", "pid": 1, "tid": row, "name": name, "cat": category}
        events.append(event | {"ts": start, "dur": length, "args": args})

    now = 0.0
    for number in range(runs):
        began = now
        for step in document["steps"][""]:
            if "copy" in step:
                ends = {"from": step["source"], "to": step["target"]}
                add(step["copy"], "copy", now, 5, value=step["copy"], scope="", **ends)
                now += 5
            elif "partition" in step:
                part = parts[step["partition"]]
                device = part["provider"] == "npu"
                count = len(part["nodes"])
                head = {"partition": part["name"], "provider": part["provider"]}
                told = {"scope": "", "node_count": count, "nodes": part["nodes"][:20]}
                told |= {"measured": "handing it over"} if device else {}
                add(part["name"], "partition", now, 3 if device else 1 + 2 * count, **head, **told)
                for place, node in enumerate(part["nodes"]):
                    at = now + 0.5 + 2 * place + (3 if device else 0)
                    add(node, "node", at, 2, 2 if device else 1, operator="", **head)
                now += 3 + 2 * count if device else 1 + 2 * count
        add(f"run {number + 1}", "run", began, now - began + 1)
        now += 10
    return events
