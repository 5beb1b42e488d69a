"""A real browser without a window, driven over a pipe by the DevTools protocol.

See https://chromedevtools.github.io/devtools-protocol/. Messages are JSON, each ended by a zero
byte; the browser reads from its descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60
COUNTING = ("--js-flags=--no-opt --no-maglev",)
"""What a compiler has optimised isn't counted."""

_LAUNCH = """
import fcntl, os, sys
given, taken = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(given, 3)
os.dup2(taken, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a browser that speaks the protocol, or None.

    EP_BROWSER names another than those on the path. It is started through descriptors that only
    POSIX has.
    """
    if os.name != "posix":
        return None
    named = os.environ.get("EP_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; what goes wrong in the page is kept in `complaints`."""

    def __init__(
        self,
        path: str,
        folder: Path,
        width: int = 1280,
        height: int = 800,
        flags: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._next = 0
        self._rest = b""
        self._events: list[dict] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        given, self._to = os.pipe()
        self._from, taken = os.pipe()
        command = [
            path,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},{height}",
            *flags,
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(given), str(taken), *command],
            pass_fds=(given, taken),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(given)
        os.close(taken)
        self._session = None
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def close(self) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)

    # ------------------------------------------------------------ what a person does

    def open(self, html: str | Path, address: str = "") -> None:
        """Open a page, given as its text or its path, and wait until it has drawn something."""
        if isinstance(html, str):
            path = self._folder / "page.html"
            path.write_text(html, encoding="utf-8")
        else:
            path = html
        self.call("Page.navigate", url="about:blank")
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=f"{path.absolute().as_uri()}{address}")
        self.wait("document.readyState === 'complete'")
        self.settle()

    def settle(self) -> None:
        """Wait until two frames have been drawn, so that what was done shows."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def wait(self, condition: str) -> None:
        end = time.monotonic() + SECONDS
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}; {self.complaints}")
            time.sleep(0.02)

    def evaluate(self, expression: str):
        """The value of an expression in the page; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def click(self, x: float, y: float) -> None:
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", buttons=1, **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)
        self.settle()

    def click_on(self, selector: str) -> None:
        x, y = self.evaluate(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            " it.scrollIntoView({block: 'center', inline: 'center'});"
            " const r = it.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.click(x, y)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        for kind, (x, y) in (
            ("mousePressed", start),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1)
        self.settle()

    def wheel(self, x: float, y: float, amount: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=amount)
        self.settle()

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def prefer(self, scheme: str) -> None:
        """Say whether the person likes it `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def runs_during(self, act: Callable[[], None]) -> dict[str, int]:
        """How often each function of the page ran, and with "" what ran in all, blocks counted too.

        The browser has to be started with the flags `COUNTING`.
        """
        self.call("Profiler.enable")
        self.call("Profiler.startPreciseCoverage", callCount=True, detailed=True)
        act()
        found = self.call("Profiler.takePreciseCoverage")["result"]
        self.call("Profiler.stopPreciseCoverage")
        runs = {"": 0}
        for function in (function for script in found for function in script["functions"]):
            counts = [part["count"] for part in function["ranges"]]
            runs[""] += sum(counts)
            runs[function["functionName"] or "?"] = counts[0]
        return runs

    def screenshot(self) -> bytes:
        """A PNG of the page."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    # ------------------------------------------------------------ the protocol

    def call(self, method: str, **parameters):
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser doesn't answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict) -> None:
        """Keep what a developer's console would show in red or yellow, and every request."""
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            told = details.get("exception", {}).get("description", details["text"])
            self.complaints.append(told)
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
