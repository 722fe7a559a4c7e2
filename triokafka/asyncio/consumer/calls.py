"""The calls of a program to the task of its consumer in the loop thread, and the task's calls back.

The task executes the program's calls one after another, between its polls. It also does so while a rebalance listener
runs in the asyncio loop: the listener's own calls would otherwise wait for themselves.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from triokafka.asyncio.bridge import Bridge, settle
from triokafka.asyncio.errors import ConsumerStoppedError
from triokafka.errors import ClosedError, IllegalStateError, KafkaError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

logger = logging.getLogger(__name__)

NOT_STARTED: Final = "The consumer is not started: await start() first"


class _Call:
    """A call of the program, and the future that gets its answer."""

    __slots__ = ("answer", "arguments", "scope", "work")

    def __init__(self, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], answer: Any) -> None:
        self.work = work
        self.arguments = arguments
        self.answer = answer
        self.scope = trio.CancelScope()


class ProgramCalls:
    """The program's calls, which wait for the consumer's task. `begin` opens the queue; `end` fails the rest.

    Args:
        on_arrival: called in the loop thread when a call has arrived, or `wake` was called, unless the task waits for
            the asyncio loop (`call_back`).
        after_each: called after each executed call.
    """

    def __init__(self, bridge: Bridge, *, on_arrival: Callable[[], None], after_each: Callable[[], None]) -> None:
        self._bridge = bridge
        self._on_arrival = on_arrival
        self._after_each = after_each
        self._waiting: deque[_Call] = deque()
        self._arrived = trio.Event()
        self._is_open = self._has_begun = False
        self._calls_back = 0

    # ---------------------------------------------------------------- in the asyncio loop

    async def ask(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Have the task run ``work``, and return its result. Cancelling cancels the work, and does not wait for it.

        Raises:
            IllegalStateError: the task has not begun.
            ConsumerStoppedError: it has ended, or ended first.
            ClosedError: the interpreter shuts down.
        """
        answer: asyncio.Future[T] = self._bridge.loop.create_future()
        call = _Call(work, arguments, answer)
        if not self._bridge.trio_loop.soon(self._arrive, call):
            raise ClosedError("the interpreter shuts down")
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                self._bridge.trio_loop.soon(call.scope.cancel)

    def soon(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have the loop thread call ``do`` before the work of later calls of `ask`. Its errors are only logged."""
        self._bridge.trio_loop.soon(_do_now, do, arguments)

    # ---------------------------------------------------------------- in the loop thread

    def begin(self) -> None:
        """Accept calls from now on."""
        self._is_open = self._has_begun = True

    def end(self) -> None:
        """Let waiting and later calls raise `ConsumerStoppedError`."""
        self._is_open = False
        while self._waiting:
            self._answer(self._waiting.popleft(), None, ConsumerStoppedError())

    def __bool__(self) -> bool:
        """Whether a call waits."""
        return bool(self._waiting)

    async def run_next(self) -> None:
        """Execute the oldest call."""
        call = self._waiting.popleft()
        value: Any = None
        error: BaseException | None = ConsumerStoppedError()
        try:
            with call.scope:
                value, error = await call.work(*call.arguments), None
        except Exception as raised:
            error = raised
        finally:
            self._answer(call, value, error)
        self._after_each()

    async def wait(self, seconds: float) -> None:
        """Wait for the next call or `wake`, ``seconds`` at most."""
        self._arrived = trio.Event()
        with trio.move_on_after(seconds):
            await self._arrived.wait()

    def end_wait(self) -> None:
        """End `wait`."""
        self._arrived.set()

    def wake(self) -> None:
        """End `wait`, and call ``on_arrival`` as for a new call."""
        self._arrived.set()
        if not self._calls_back:
            self._on_arrival()

    @property
    def is_calling_back(self) -> bool:
        """Whether the task waits for a function or coroutine in the asyncio loop."""
        return self._calls_back > 0

    async def call_back(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function or coroutine in the asyncio loop, execute the program's calls meanwhile; return its result.

        Raises:
            ClosedError: the asyncio loop was closed.
            Exception: what ``do`` raises.
        """
        reply: list[tuple[Any, BaseException | None]] = []

        def answered(value: Any, error: BaseException | None) -> None:
            reply.append((value, error))
            self._arrived.set()

        self._bridge.post(_run_in_loop, self._bridge, do, arguments, answered)
        self._calls_back += 1
        try:
            while not reply:
                if self._waiting:
                    await self.run_next()
                elif self._bridge.is_closed:
                    raise ClosedError("the asyncio loop was closed")
                else:
                    await self.wait(self._bridge.check_seconds)
        finally:
            self._calls_back -= 1
        value, error = reply[0]
        if error is not None:
            raise error
        return value

    def _arrive(self, call: _Call) -> None:
        if not self._is_open:
            error = ConsumerStoppedError() if self._has_begun else IllegalStateError(NOT_STARTED)
            self._answer(call, None, error)
            return
        self._waiting.append(call)
        self.wake()

    def _answer(self, call: _Call, value: Any, error: BaseException | None) -> None:
        self._bridge.post(settle, call.answer, value, error)


def _do_now(do: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        do(*arguments)
    except (KafkaError, ConsumerStoppedError, ValueError, TypeError) as error:
        logger.debug("%s did not take effect: %r", getattr(do, "__name__", do), error)


def _run_in_loop(bridge: Bridge, do: Callable[..., Any], arguments: tuple[Any, ...], answered: Any) -> None:
    import asyncio

    async def wait(coroutine: Awaitable[Any]) -> None:
        error: BaseException | None = ClosedError("the asyncio loop ended")
        try:
            await coroutine
            error = None
        finally:
            bridge.trio_loop.soon(answered, None, error)

    try:
        value = do(*arguments)
    except Exception as error:
        bridge.trio_loop.soon(answered, None, error)
        return
    if asyncio.iscoroutine(value):
        task = bridge.loop.create_task(wait(value))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    else:
        bridge.trio_loop.soon(answered, value, None)


_tasks: Final[set[Any]] = set()
"""Running coroutines of `ProgramCalls.call_back`: the loop holds its tasks weakly."""
