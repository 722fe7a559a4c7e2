"""A headless Chromium, driven by the DevTools protocol over a websocket.

Tests use it through `browser`; without a Chromium on the machine `CHROMIUM` is None, and they are skipped. A page
records the errors on its console and the address of every request.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, Request, TextMessage

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM: Final = next((found for name in _NAMES if (found := shutil.which(name))), None)
"""The browser's program, if there is one."""
_FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
)  # fmt: skip
_PATIENCE: Final = 120.0


class Page:
    """One tab."""

    def __init__(self, connection: _Connection, session: str) -> None:
        self._connection = connection
        self._session = session
        self.errors: list[str] = []
        """Errors that the console of the browser has shown."""
        self.requests: list[str] = []
        """Addresses of all requests."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol, and return its result."""
        return await self._connection.call(method, params, self._session)

    async def open(self, url: str) -> None:
        """Load an address again, even if only its fragment differs."""
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, awaited."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def wait_for(self, condition: str) -> Any:
        """Wait until an expression of JavaScript is true and raises nothing; return its value."""
        script = f"""new Promise((done) => {{
            const look = () => {{
                let found = null;
                try {{ found = {condition}; }} catch {{ /* not yet */ }}
                if (found) done(found === true || typeof found !== "object" ? found : true); else setTimeout(look, 30);
            }};
            look();
        }})"""
        with trio.move_on_after(_PATIENCE):
            while True:
                try:
                    return await self.run(script)
                except BrowserError:  # the page was reloaded meanwhile
                    await trio.sleep(0.05)
        text = await self.run("document.body.innerText")
        raise AssertionError(f"{condition} did not become true; the page shows {text[:2000]!r}")

    async def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.wait_for(f"document.body.innerText.includes({json.dumps(text)})")

    async def click(self, selector: str) -> None:
        """Wait for the element that a CSS selector matches, and click it."""
        await self.wait_for(f"((one) => (one.click(), true))(document.querySelector({json.dumps(selector)}))")

    async def fill(self, selector: str, text: str) -> None:
        """Put a text into a field, as if it were typed."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.wait_for(f"((one) => (one.focus(), one.select(), document.activeElement === one))({found})")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key: a character, or Tab, Enter, Escape."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37}
        more: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0), "code": key}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    async def look(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Set the width in pixels, and the system's theme."""
        mobile = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[theme])

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page: PNG or WebP, by the name."""
        kind = path.suffix.removeprefix(".")
        more = {"quality": 80} if kind == "webp" else {}
        found = await self.call("Page.captureScreenshot", format=kind, captureBeyondViewport=whole, **more)
        path.write_bytes(base64.b64decode(found["data"]))

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Record an event of the DevTools protocol."""
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(one.get("value")) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


class BrowserError(Exception):
    """The browser refused a call."""


class _Connection:
    """The websocket to the browser."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._ids = count(1)
        self._waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def open(self, host: str, path: str) -> None:
        await self._stream.send_all(self._socket.send(Request(host=host, target=path)))

    async def read(self, accepted: trio.Event) -> None:
        """Read until the browser ends."""
        parts: list[str] = []
        while data := await self._stream.receive_some(1 << 16):
            self._socket.receive_data(data)
            for event in self._socket.events():
                if isinstance(event, AcceptConnection):
                    accepted.set()
                elif isinstance(event, Ping):
                    await self._stream.send_all(self._socket.send(event.response()))
                elif isinstance(event, TextMessage):
                    parts.append(event.data)
                    if event.message_finished:
                        self._take(json.loads("".join(parts)))
                        parts.clear()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._waiting.pop(message["id"]).send_nowait(message)
        elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
            page.hear(message["method"], message["params"])

    async def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        number = next(self._ids)
        document: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            document["sessionId"] = session
        sender, receiver = trio.open_memory_channel[dict[str, Any]](1)
        self._waiting[number] = sender
        await self._stream.send_all(self._socket.send(TextMessage(data=json.dumps(document))))
        with trio.fail_after(_PATIENCE):
            answer = await receiver.receive()
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def new_page(self) -> Page:
        target = await self.call("Target.createTarget", {"url": "about:blank"})
        attached = await self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        return page


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """Run a browser for the length of the block, with one tab."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await trio.lowlevel.open_process(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            said = b""
            with trio.fail_after(_PATIENCE):
                while b"/devtools/browser/" not in said or b"\n" not in said.partition(b"/devtools/browser/")[2]:
                    said += await process.stderr.receive_some()
            address = said.partition(b"ws://")[2].split()[0].decode()
            host, _, path = address.partition("/")
            name, _, port = host.rpartition(":")
            async with await trio.open_tcp_stream(name, int(port)) as stream, trio.open_nursery() as nursery:
                connection = _Connection(stream)
                accepted = trio.Event()
                nursery.start_soon(connection.read, accepted)
                nursery.start_soon(_drain, process.stderr)
                await connection.open(host, f"/{path}")
                with trio.fail_after(_PATIENCE):
                    await accepted.wait()
                yield await connection.new_page()
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some():
        pass
