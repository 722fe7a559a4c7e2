"""Calls between an asyncio loop and the Trio loop of its clients.

Producers run in the asyncio loop's thread (`GuestLoop`): a single `send` takes the least time there. Consumers and
admin clients run in the loop thread that the blocking API uses, where heartbeats continue while the program keeps its
asyncio loop busy. A call to the loop thread costs one wake-up of the other thread, and so does its answer, so records
cross in batches. A loop that was closed ends the sessions of its clients: they look for it at every answer, and every
`Bridge.check_seconds` while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import trio

from triokafka.asyncio.guest import guest_loop
from triokafka.asyncio.loop_sockets import LoopWorld
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


class TrioLoop(Protocol):
    """Runs work of Trio for code without Trio: `LoopThread` or `GuestLoop`."""

    def soon(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Call ``do`` in the Trio loop, in order. Return False if it has ended."""
        ...

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any, name: str) -> None:
        """Run ``work`` as a task. Raises `IllegalStateError` if the Trio loop has ended."""
        ...


class Bridge:
    """The way from one asyncio loop into ``trio_loop``, and back.

    That is the loop thread. With ``beside`` it is the guest of the asyncio loop, where that is possible.
    ``check_seconds`` is the time between two looks of an idle session whether its asyncio loop was closed: an eighth of
    ``request_timeout_ms``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, request_timeout_ms: float, *, beside: bool = False) -> None:
        self.loop = loop
        self.check_seconds = request_timeout_ms / 1000 / _CHECKS_PER_REQUEST_TIMEOUT
        self._guest = guest_loop(loop) if beside else None
        self.trio_loop: TrioLoop = self._guest or loop_thread()
        self.world: LoopWorld | None = self._guest.world if self._guest is not None else None
        """For the SDK's client; None for the usual one."""
        self.on_crash: set[Callable[[], object]] = self._guest.on_crash if self._guest is not None else set()
        """As `GuestLoop.on_crash`. No interruption reaches the loop thread."""

    # ---------------------------------------------------------------- in the asyncio loop

    async def call(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run ``work`` in the Trio loop and return its result. Cancelling cancels the work, and does not wait for it.

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

        interrupted = partial(_interrupt, answer)
        self.trio_loop.start(run, name=f"call of {getattr(work, '__qualname__', work)}")
        self.on_crash.add(interrupted)
        try:
            return await answer
        except asyncio.CancelledError:
            self.trio_loop.soon(scope.cancel)
            raise
        finally:
            self.on_crash.discard(interrupted)

    def hand_over(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have the Trio loop call ``do``. A guest's tasks go on before this returns: hold interrupts back meanwhile."""
        if self._guest is not None:
            self._guest.now(do, *arguments)
        else:
            self.trio_loop.soon(do, *arguments)

    # ---------------------------------------------------------------- in the Trio loop

    @property
    def is_closed(self) -> bool:
        """Whether the asyncio loop was closed."""
        return self.loop.is_closed()

    def post(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Have the asyncio loop call ``do``. Return False if it was closed."""
        if self._guest is not None:
            return self._guest.post(do, *arguments)
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
                self.trio_loop.soon(done.set)

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


class BridgedTokenProvider:
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


class Opening:
    """The start of a client's task in the Trio loop, for the coroutine that waits until its client is connected."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        """The scope of the task; it is cancelled with `wait`."""
        self._over = trio.Event()
        self._error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether the client is usable, or its start has failed."""
        return self._over.is_set()

    def cancel(self) -> None:
        """End the task, unless the client is usable."""
        if not self._over.is_set():
            self.scope.cancel()

    async def connect(self, network: Any, servers: list[str]) -> None:
        """Connect and log in to one of the bootstrap servers, each of which is tried once. In the task.

        Raises:
            KafkaConnectionError: none accepted the connection or the login, which is the cause.
        """
        try:
            await network.connect()
        except KafkaError as error:
            raise KafkaConnectionError(f"Unable to bootstrap from {servers}: {error}") from error

    def done(self) -> None:
        """The client is usable. In the task."""
        self._over.set()

    def ended(self, error: Exception | None) -> None:
        """The task ends; that matters if it was not `done`. In the task."""
        if not self._over.is_set():
            self._error = error or ClosedError("the client was closed while it started")
            self._over.set()

    async def wait(self) -> None:
        """Wait until the client is usable. Raises the error of its start."""
        try:
            await self._over.wait()
        except trio.Cancelled:
            self.scope.cancel()
            raise
        if self._error is not None:
            raise self._error


def _interrupt(answer: asyncio.Future[Any]) -> None:
    settle(answer, None, ClosedError("the call was interrupted"))


def usable_error(error: BaseException) -> KafkaError:
    """Return the error that callers get after a session has ended with ``error``."""
    return error if isinstance(error, KafkaError) else KafkaError(f"the client failed: {error!r}")
