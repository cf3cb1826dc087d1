"""A real headless Chromium, driven by its own protocol as a person drives it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_SECONDS = 90.0


class Page:
    """A tab of the browser.

    Args:
        wire: A connection to the tab's debugger.
    """

    def __init__(self, wire: Any) -> None:
        self._wire, self._calls = wire, 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A call of Chromium's DevTools protocol; events are passed over."""
        self._calls += 1
        self._wire.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            told = json.loads(self._wire.recv(timeout=_SECONDS))
            if told.get("id") == self._calls:
                assert "error" not in told, told["error"]
                return told["result"]

    def value(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, script: str, seconds: float = _SECONDS) -> Any:
        """Waits until an expression is true in the page, and gives its value."""
        last = time.monotonic() + seconds
        while not (found := self.value(script)):
            assert time.monotonic() < last, f"{script} did not become true; the page: {self.text()[:2000]}"
            time.sleep(0.02)
        return found

    def text(self) -> str:
        """The words that a person reads on the page."""
        return self.value("document.body.innerText")

    def key(self, key: str) -> None:
        """Presses a key as a person does."""
        code = {"ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, " ": 32}
        told = {"key": key, "windowsVirtualKeyCode": code.get(key, ord(key[0].upper()))}
        if len(key) == 1:
            told["text"] = key
        elif key == "Enter":
            told["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in told.items() if k != "text"})

    def write(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Clicks the first element of a CSS selector."""
        assert self.value(
            f"(e => e && !e.disabled && (e.click(), true))(document.querySelector({json.dumps(selector)}))"
        )


class Browser:
    """A running browser.

    Args:
        address: Of its debugger.
        closing: Closes what was opened.
    """

    def __init__(self, address: str, closing: contextlib.ExitStack) -> None:
        self._address, self._closing = address, closing

    def open(self, url: str) -> Page:
        """Opens a page in a tab of its own."""
        from websockets.sync.client import connect

        request = urllib.request.Request(f"{self._address}/json/new?{url}", method="PUT")
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            told = json.load(answer)
        wire = connect(told["webSocketDebuggerUrl"], max_size=None, open_timeout=_SECONDS)
        self._closing.enter_context(wire)
        return Page(wire)


def find_chromium() -> str | None:
    """Path of the Chromium of this machine; `None` if it has none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Browser]:
    """Starts Chromium with a profile of its own.

    Args:
        chromium: Its path.
        profile: A folder that is not there.
    """
    process = subprocess.Popen(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with contextlib.ExitStack() as closing:
        try:
            port = _wait_for(lambda: (profile / "DevToolsActivePort").read_text().split()[0])
            yield Browser(f"http://127.0.0.1:{port}", closing)
        finally:
            closing.close()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(read: Callable[[], str]) -> str:
    last = time.monotonic() + _SECONDS
    while True:
        try:
            return read()
        except (OSError, IndexError):
            assert time.monotonic() < last, "Chromium did not start"
            time.sleep(0.05)
