"""Calls between an asyncio loop and the Trio loop of the process.

Clients of asyncio run in the loop thread that the blocking API uses. A call in either direction costs one wake-up of
the other thread, so records cross in batches. A loop that was closed ends the sessions of its clients: they look for it
at every answer, and every `Bridge.check_seconds` while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import trio

from triokafka.errors import ClosedError, KafkaConnectionError, KafkaError
from triokafka.loop_thread import loop_thread

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CHECKS_PER_REQUEST_TIMEOUT: Final = 8


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop. Raises `RuntimeError` outside of one, as aiokafka does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("The object should be created within an async function or provide loop directly.") from None


class Bridge:
    """The way from one asyncio loop into the loop thread, and back.

    ``check_seconds`` is the time between two looks of an idle session whether its asyncio loop was closed: an eighth of
    ``request_timeout_ms``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, request_timeout_ms: float) -> None:
        self.loop = loop
        self.check_seconds = request_timeout_ms / 1000 / _CHECKS_PER_REQUEST_TIMEOUT
        self.thread = loop_thread()

    # ---------------------------------------------------------------- in the asyncio loop

    async def call(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run ``work`` in the loop thread and return its result. Cancelling cancels the work, and does not wait for it.

        Raises:
            ClosedError: the interpreter shuts down.
        """
        answer: asyncio.Future[T] = self.loop.create_future()
        scope = trio.CancelScope()

        async def run() -> None:
            value: Any = None
            error: BaseException | None = ClosedError("the loop thread ended before the call did")
            try:
                with scope:
                    value, error = await work(*arguments), None
            except Exception as raised:
                error = raised
            finally:
                self.post(settle, answer, value, error)

        self.thread.start(run, name=f"call of {getattr(work, '__qualname__', work)}")
        try:
            return await answer
        except asyncio.CancelledError:
            self.thread.soon(scope.cancel)
            raise

    # ---------------------------------------------------------------- in the loop thread

    @property
    def is_closed(self) -> bool:
        """Whether the asyncio loop was closed."""
        return self.loop.is_closed()

    def post(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Have the asyncio loop call ``do``. Return False if it was closed."""
        try:
            self.loop.call_soon_threadsafe(do, *arguments)
        except RuntimeError:
            return False
        return True

    async def ask(self, make: Callable[[], Awaitable[T]]) -> T:
        """Await what ``make`` returns in the asyncio loop, and return its result.

        Raises:
            ClosedError: the asyncio loop was closed.
        """
        done = trio.Event()
        outcome: list[tuple[Any, Exception | None]] = []

        async def run() -> None:
            try:
                outcome.append((await make(), None))
            except Exception as error:
                outcome.append((None, error))
            finally:
                self.thread.soon(done.set)

        def begin() -> None:
            task = self.loop.create_task(run())
            _running.add(task)
            task.add_done_callback(_running.discard)

        if not self.post(begin):
            raise ClosedError("the asyncio loop was closed")
        await done.wait()
        if not outcome:
            raise ClosedError("the asyncio loop ended")
        value, error = outcome[0]
        if error is not None:
            raise error
        found: T = value
        return found


_running: Final[set[asyncio.Task[None]]] = set()
"""Running calls of `Bridge.ask`: a loop holds its tasks weakly."""


class TokenProvider:
    """aiokafka's token provider for the SDK: its coroutine runs in the asyncio loop."""

    def __init__(self, bridge: Bridge, provider: Any) -> None:
        self._bridge = bridge
        self._provider = provider

    async def token(self) -> str:
        """Return a token."""
        found: str = await self._bridge.ask(self._provider.token)
        return found

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the client's first message."""
        return dict(self._provider.extensions())


def settle(answer: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    """Give a future its outcome, unless its waiter was cancelled."""
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)


async def reach(servers: list[str], seconds: float) -> None:
    """Connect to one of the bootstrap servers, to fail early if none is there. In the loop thread.

    Raises:
        KafkaConnectionError: none accepted a connection within ``seconds``.
    """
    failures = []
    with trio.move_on_after(seconds):
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
            except OSError as error:
                failures.append(f"{server}: {error}")
            else:
                await stream.aclose()
                return
    raise KafkaConnectionError(f"Unable to bootstrap from {servers}: {'; '.join(failures) or 'no answer in time'}")


def usable_error(error: BaseException) -> KafkaError:
    """Return the error that callers get after a session has ended with ``error``."""
    return error if isinstance(error, KafkaError) else KafkaError(f"the client failed: {error!r}")
