"""Run a stand-in broker as a process: listen, serve connections, answer its parent, exit with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Protocol

import trio

from triokafka.world import Stream
from triokafka.world.system import RealWorld

HOST: Final = "127.0.0.1"


class StandIn(Protocol):
    """A broker that serves each connection separately; ``port`` is set before the first connection."""

    port: int

    async def serve(self, stream: Stream) -> None:
        """Serve one connection until it closes."""


async def run(broker: StandIn, report: Callable[[str], str] | None = None) -> None:
    """Print ``ready HOST:PORT``, and serve until standard input is closed.

    ``report`` returns a one-line answer to each line on standard input.
    """
    listener = await RealWorld().listen(HOST, 0)
    broker.port = listener.address[1]
    print(f"ready {HOST}:{broker.port}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow_parent, report, nursery.cancel_scope)
        while True:
            nursery.start_soon(_serve, broker, await listener.accept())


async def _serve(broker: StandIn, stream: Stream) -> None:
    try:
        await broker.serve(stream)
    except OSError:
        pass
    finally:
        stream.close()


async def _follow_parent(report: Callable[[str], str] | None, scope: trio.CancelScope) -> None:
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        if report is not None:
            print(report(line.strip()), flush=True)
    scope.cancel()
