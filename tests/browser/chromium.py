"""A headless Chromium, driven through a pipe by its own protocol: no driver, no port."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str | None:
    """Where the browser is: $REWAKE_CHROMIUM, or one of its usual names."""
    named = os.environ.get("REWAKE_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page; `complaints` collects what its console and loader said."""

    def __init__(self, path: str, profile: Path) -> None:
        low_read, self._to = os.pipe()
        self._from, low_write = os.pipe()
        # The browser reads commands at 3 and answers at 4; the shell must not overwrite one
        # with the other on the way there.
        to_read, to_write = (fcntl.fcntl(each, fcntl.F_DUPFD, 20) for each in (low_read, low_write))
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", shell, path, *options],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for each in (low_read, low_write, to_read, to_write):
            os.close(each)
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = None
        try:
            self.call("Browser.close")
        except OSError:
            self._process.kill()
        os.close(self._to)
        os.close(self._from)
        self._process.wait(30)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of that size."""
        self.complaints, self.requests, self._events = [], [], []
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.media(dark=dark)
        self.call("Page.navigate", url=path.absolute().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._read())

    def media(self, *, dark: bool = False, kind: str = "screen") -> None:
        """What the page is shown on."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def evaluate(self, script: str) -> Any:
        """The value of a script in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print(self, path: Path) -> None:
        """The page on paper (A4)."""
        printed = self.call(
            "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True
        )
        path.write_bytes(base64.b64decode(printed["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise BrokenPipeError("the browser ended")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = str(event.get("method")), event.get("params", {})
        self._events.append(method)
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
