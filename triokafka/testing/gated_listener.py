"""A listener that a fault can hold back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from triokafka.world import Listener, Stream


class GatedListener(Listener):
    """Another listener, whose connections wait for ``gate`` and are then wrapped by ``wrap``.

    Args:
        closed: called once, when it has closed.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        gate: Callable[[], Awaitable[None]],
        wrap: Callable[[Stream], Stream],
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._listener = listener
        self._gate = gate
        self._wrap = wrap
        self._closed = closed

    async def accept(self) -> Stream:
        stream = await self._listener.accept()
        try:
            await self._gate()
        except trio.Cancelled:
            stream.close()
            raise
        return self._wrap(stream)

    def close(self) -> None:
        self._listener.close()
        closed, self._closed = self._closed, lambda: None
        closed()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address
