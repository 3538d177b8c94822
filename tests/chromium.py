"""A headless Chromium of the system, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 180.0


def found() -> str | None:
    """Path of a Chromium; None if the system has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in its own browser.

    Attributes:
        errors: texts of console errors and uncaught exceptions.
        requested: addresses that the page requested.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.requested: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="chromium-"))
        self._runner = asyncio.Runner()
        self._number = 0
        command = [
            found() or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
            f"--user-data-dir={self._folder}", "--remote-debugging-port=0", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(self._folder)},
        )  # fmt: skip
        self._runner.run(self._connect())
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    async def _connect(self) -> None:
        self._session = aiohttp.ClientSession()
        file = self._folder / "DevToolsActivePort"
        until = time.monotonic() + PATIENCE
        while not (file.exists() and file.read_text().strip()):
            assert self._process.poll() is None and time.monotonic() < until, "no browser came up"
            await asyncio.sleep(0.1)
        port = file.read_text().split()[0]
        pages: list[dict[str, str]] = []
        while not pages:  # the first page comes after the port
            assert time.monotonic() < until, "the browser opened no page"
            async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            await asyncio.sleep(0.1)
        (page,) = pages
        address = page["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        return self._runner.run(self._call(method, parameters))

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE):
            while True:
                message = json.loads((await self._socket.receive()).data)
                if message.get("id") == number:
                    assert "error" not in message, (method, message["error"])
                    return dict(message["result"])
                self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def open(self, address: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def eval(self, script: str) -> Any:
        """Evaluate an expression in the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, (script, answer)
        return answer["result"].get("value")

    def until(self, script: str, patience: float = PATIENCE) -> Any:
        """Wait until an expression is true, and return its value."""
        until = time.monotonic() + patience
        while not (value := self.eval(script)):
            assert time.monotonic() < until, f"never came true: {script}"
            time.sleep(0.1)
        return value

    def size(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Resize the page, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """Prefer "light" or "dark"."""
        told = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=told)

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}
        more = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def shot(self, path: Path, selector: str | None = None) -> None:
        """Write a PNG of the whole page, or of one element."""
        box = self.eval(
            f"(() => {{ const e = document.querySelector({json.dumps(selector or 'html')});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + scrollX, r.y + scrollY, r.width, r.height]; })()"
        )
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}
        made = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def each(self, script: str, values: list[Any], then: Callable[[Any, Any], None]) -> None:
        """Call an arrow function of the page with each value, and ``then`` with both."""
        for value in values:
            then(value, self.eval(f"({script})({json.dumps(value)})"))

    def close(self) -> None:
        """End the browser."""
        self._runner.run(self._leave())
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _leave(self) -> None:
        await self._socket.close()
        await self._session.close()
