"""``--console`` of ``triokafka broker`` and ``triokafka cluster``: the page in the same process, with fault
switches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

PATIENCE = 240


@asynccontextmanager
async def started(*words: str) -> AsyncIterator[int]:
    """Run a command, yield the port of its console, and assert that it ends cleanly."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "triokafka", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(PATIENCE):
            output = b""
            while b"console http" not in output or not output.endswith(b"\n"):
                more = await process.stdout.receive_some()
                assert more, await process.stderr.receive_some() if process.stderr else b""
                output += more
            yield int(output.partition(b"console http://127.0.0.1:")[2].partition(b"/")[0])
            process.terminate()
            assert await process.wait() == 0
    finally:
        process.kill()  # it has ended unless the test failed
        with trio.CancelScope(shield=True):
            await process.wait()


def is_whole(data: bytes) -> bool:
    """Whether a response is complete."""
    head, end, body = data.partition(b"\r\n\r\n")
    return bool(end) and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])


async def request(port: int, path: str, token: str | None = None, document: Any = None) -> Any:
    """Send a request, with a token as a POST; return the JSON of the response."""
    body = b"" if document is None else json.dumps(document).encode()
    head = "GET" if token is None else "POST"
    lines = f"{head} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n"
    lines += f"X-Console-Token: {token}\r\n" if token else ""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(lines.encode() + b"\r\n" + body)
        data = b""
        while not is_whole(data):
            piece = await stream.receive_some()
            assert piece, data
            data += piece
    text = data.partition(b"\r\n\r\n")[2].decode()
    return json.loads(text) if path.startswith("/api") else text


async def token_of(port: int) -> str:
    text: str = await request(port, "/")
    return text.partition("token&quot;: &quot;")[2][:32]


async def test_broker_serves_the_console_with_its_metrics_and_fault_switches() -> None:
    words = ("--in-memory", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--console", "127.0.0.1:0")
    async with started("broker", *words) as port:
        assert (await request(port, "/api/overview"))["topics"] == 0
        assert [one["problem"] for one in (await request(port, "/api/metrics"))["sources"]] == [None]
        (broker,) = (await request(port, "/api/faults"))["brokers"]
        token = await token_of(port)
        fault = {"api": "Produce", "delay_ms": 10, "times": 3}
        await request(port, "/api/faults/faults", token, fault)
        assert [one["api"] for one in (await request(port, "/api/faults"))["faults"]] == ["Produce"]
        await request(port, "/api/faults/reset", token, {})
        assert (await request(port, "/api/faults"))["faults"] == []
        refused = await request(port, "/api/faults/freeze", token, {"broker": broker["broker"] + 1})
        assert "broker must be one of" in refused["message"]
        unknown = await request(port, "/api/change/create-topic", token, {"name": "x", "partitions": 1})
        assert "read-only" in unknown["message"]


async def test_broker_without_control_has_no_fault_switches() -> None:
    async with started("broker", "--in-memory", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0") as port:
        assert "has no fault switches" in (await request(port, "/api/faults"))["message"]


@pytest.mark.long
async def test_page_of_a_cluster_kills_freezes_and_starts_its_processes(tmp_path: Path) -> None:
    words = ("--nodes", "3", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")

    async def states(port: int) -> list[tuple[bool, bool]]:
        return [(one["running"], one["frozen"]) for one in (await request(port, "/api/faults"))["brokers"]]

    async with started("cluster", *words) as port:
        token = await token_of(port)
        await request(port, "/api/faults/kill", token, {"broker": 3})
        with trio.fail_after(60):
            while (await states(port))[2][0]:
                await trio.sleep(0.05)
        await request(port, "/api/faults/start", token, {"broker": 3})
        await request(port, "/api/faults/freeze", token, {"broker": 2})
        assert await states(port) == [(True, False), (True, True), (True, False)]
        await request(port, "/api/faults/restart", token, {"broker": 2})
        assert await states(port) == [(True, False)] * 3
        assert len((await request(port, "/api/metrics"))["sources"]) == 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--console", "0.0.0.0:8089"), "the page has no login"),
        (("--console-allow-changes",), "needs --console"),
    ],
)
def test_wrong_use_of_the_console_option_is_one_error_line(words: tuple[str, ...], problem: str) -> None:
    command = [sys.executable, "-m", "triokafka", "broker", "--in-memory", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 2, ran.stderr
    assert problem in ran.stderr
