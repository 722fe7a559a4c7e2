"""Ctrl-C in ``triokafka demo``."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest
import trio

pytest.importorskip("rich")

from rich.console import Console

from triokafka.cli.demo import run
from triokafka.cli.demo.flights import Flight


async def test_interrupted_demo_does_not_wait_until_the_flights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, on a busy machine half a minute."""
    begun, release, read = trio.Event(), threading.Event(), threading.Event()

    def slow_flights() -> Iterator[Flight]:
        trio.from_thread.run_sync(begun.set)
        release.wait(10)
        read.set()
        return iter(())

    async def no_topic(bootstrap: str) -> None:
        """The broker is not needed."""

    demo = run.Demo(drop_one=False, console=Console(file=io.StringIO()))
    monkeypatch.setattr(run, "flights", slow_flights)
    monkeypatch.setattr(demo, "_create_topic", no_topic)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(demo._steps, "127.0.0.1:1")
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert not read.is_set()
    release.set()
