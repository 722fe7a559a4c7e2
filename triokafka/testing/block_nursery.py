"""The nursery of a test's block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def block_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that is cancelled at the end of the block.

    A single exception, such as the body's own, is raised without a group; several findings stay together.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
