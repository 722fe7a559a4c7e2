"""The nursery that an ``async with`` object owns: the failure of a background task is recorded, and not raised in the
body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVarTuple, Unpack

import trio

Ts = TypeVarTuple("Ts")


class BackgroundTasks:
    """Tasks that live as long as the ``async with`` block of the object that owns them.

    A task that ends with an `Exception` does not cancel the body: the task calls ``on_failure`` with it, and the other
    tasks continue. A cancelled body does not cancel the tasks either: leaving the block needs them, and `close` ends
    them. Open and close must happen in the same task, as ``__aenter__`` and ``__aexit__`` do.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._manager: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None
        self._scopes: dict[int, trio.CancelScope] = {}
        self._next_number = 0

    @property
    def is_open(self) -> bool:
        """Whether tasks can be started."""
        return self._nursery is not None

    async def open(self) -> None:
        """Open the nursery; starts nothing."""
        manager = self._manager = trio.open_nursery()
        self._nursery = await manager.__aenter__()

    def start(self, function: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts, name: str) -> None:
        """Start a task. Raises `RuntimeError` when closed."""
        if self._nursery is None:
            raise RuntimeError("background tasks can be started only inside the async with block")
        number = self._next_number = self._next_number + 1
        self._scopes[number] = trio.CancelScope(shield=True)
        self._nursery.start_soon(self._run, number, function, args, name=name)

    async def _run(self, number: int, function: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        try:
            with self._scopes[number]:
                await function(*args)
        except Exception as error:
            self._on_failure(_alone(error))
        finally:
            del self._scopes[number]

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. A second call does nothing."""
        manager = self._manager
        self._manager = self._nursery = None
        if manager is not None:
            for scope in self._scopes.values():
                scope.cancel()
            await manager.__aexit__(None, None, None)


def _alone(error: Exception) -> Exception:
    """Return the single exception inside a group: the task's own nursery made the group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
