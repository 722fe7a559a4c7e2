"""Records in a consumer's hand, and ``async for`` over them, in plain Python. Twin of ``_cursor``.

`triokafka.records.cursor` selects it when ``_cursor`` is not compiled, and from CPython 3.12 on, where awaiting a
coroutine costs less than awaiting a compiled object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, Self

from triokafka.records.plain_kernel import ConsumerRecord

_NOTHING: Final[Iterator[ConsumerRecord]] = iter(())


class RecordCursor:
    """The records that a consumer has in hand: ``iterator`` gives the rest of them."""

    def __init__(self) -> None:
        self.iterator = _NOTHING

    def over(self, next_run: Callable[[], Awaitable[ConsumerRecord]]) -> AsyncIterator[ConsumerRecord]:
        """Return an iterator for ``async for``; at the end of ``iterator``, ``next_run`` fills it again and returns the
        first record."""
        return _Records(self, next_run)


class _Records:
    def __init__(self, cursor: RecordCursor, next_run: Callable[[], Awaitable[ConsumerRecord]]) -> None:
        self._cursor = cursor
        self._next_run = next_run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        for record in self._cursor.iterator:
            return record
        return await self._next_run()
