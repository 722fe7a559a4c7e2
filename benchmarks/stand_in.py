"""Running a stand-in broker of the benchmarks as a process: listen, serve every connection, end with the parent."""

from __future__ import annotations

import sys
from typing import Protocol

import trio

from triokafka.world import RealWorld, Stream

HOST = "127.0.0.1"


class StandIn(Protocol):
    """A broker that answers one connection at a time of many; ``port`` is set before the first."""

    port: int

    async def serve(self, stream: Stream) -> None:
        """Answer one connection until it ends."""


async def run(broker: StandIn) -> None:
    """Print ``ready HOST:PORT``, and serve until standard input is closed."""
    listener = await RealWorld().listen(HOST, 0)
    broker.port = listener.address[1]
    print(f"ready {HOST}:{broker.port}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_with_parent, nursery.cancel_scope)
        while True:
            nursery.start_soon(_serve, broker, await listener.accept())


async def _serve(broker: StandIn, stream: Stream) -> None:
    try:
        await broker.serve(stream)
    except OSError:
        pass
    finally:
        stream.close()


async def _end_with_parent(scope: trio.CancelScope) -> None:
    await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
    scope.cancel()
