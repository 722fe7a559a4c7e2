"""The SDK's `AdminClient` in a task of the loop, for the components of `KafkaAdminClient`; and outcomes by item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import trio

import triokafka
from triokafka import errors
from triokafka.blocking.errors import NoError
from triokafka.loop_thread import LoopThread, fork_count

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import AclOperation, Results

K = TypeVar("K")
T = TypeVar("T")

Work = Callable[["AdminClient"], Awaitable[T]]


class AdminSession:
    """One SDK admin client, from its construction to its end.

    ``config`` is the configuration of the `KafkaAdminClient`; ``options`` are those of the SDK's client.
    """

    def __init__(self, loop: LoopThread, config: Mapping[str, Any], options: dict[str, Any]) -> None:
        self.loop = loop
        self._config = config
        self._options = options
        self._admin: AdminClient | None = None
        self._closing = trio.Event()
        self._closed = trio.Event()
        self._forks = fork_count()

    async def open(self) -> None:
        """Start the admin client. Raises `ConfigurationError` for wrong options."""
        admin = triokafka.AdminClient(**self._options)
        opened = trio.Event()
        self.loop.start(self._run, admin, opened, name=f"kafka {self._options['client_id']}")
        await opened.wait()

    async def _run(self, admin: AdminClient, opened: trio.Event) -> None:
        try:
            async with admin:
                self._admin = admin
                opened.set()
                await self._closing.wait()
        finally:
            self._admin = None
            opened.set()
            self._closed.set()

    async def close(self) -> None:
        """End the admin client."""
        self._closing.set()
        await self._closed.wait()

    def end(self) -> None:
        """End the admin client and wait for its end. Does nothing in a forked child. Not for the loop's thread."""
        if self._forks == fork_count():
            self.loop.call(self.close)

    def abandon(self) -> None:
        """End the admin client without waiting, because no reference to it is left. For any thread."""
        if self._forks == fork_count():
            self.loop.soon(self._closing.set)

    def run(self, work: Work[T]) -> T:
        """Run ``work`` with the SDK's admin client and return its result. Not for the loop's thread.

        Raises:
            IllegalStateError: the client is closed, or belongs to the parent of this forked process.
        """
        if self._forks != fork_count():
            raise errors.IllegalStateError(
                "this KafkaAdminClient belongs to the process from which this one was forked: make a new one here"
            )
        result: T = self.loop.call(self._work, work)
        return result

    async def _work(self, work: Work[T]) -> T:
        if self._admin is None:
            raise errors.IllegalStateError("KafkaAdminClient is closed")
        return await work(self._admin)

    def change(self, items: Iterable[K], change: Work[Any]) -> dict[K, Any]:
        """Run a call that changes ``items``; return the outcome of each as `together` does."""

        async def work(admin: AdminClient) -> dict[K, Any]:
            return await together(items, change(admin))

        return self.run(work)

    def timeout_ms(self, timeout_ms: float | None = None) -> float:
        """Return the time limit of a call: ``timeout_ms``, or ``request_timeout_ms`` where that is None or 0."""
        limit: float = timeout_ms or self._config["request_timeout_ms"]
        return limit


async def each(items: Iterable[K], do: Callable[[K], Awaitable[T]]) -> dict[K, T | errors.KafkaError]:
    """Do something for each item, one after the other; return the result or error of each."""
    outcomes: dict[K, T | errors.KafkaError] = {}
    for item in items:
        try:
            outcomes[item] = await do(item)
        except errors.UnencodableValueError:
            raise  # an argument is wrong
        except errors.KafkaError as error:
            outcomes[item] = error
    return outcomes


async def together(items: Iterable[K], change: Awaitable[Any]) -> dict[K, Any]:
    """Return the result or the error of each item of one SDK call. Raises the error of a call that failed as a whole.

    Items that a broker's response lacks are left out, as in kafka-python.
    """
    try:
        done = await change
    except (errors.KafkaError, ExceptionGroup) as failure:
        results: Results[K, Any] | None = getattr(failure, "outcomes", None)
        if results is None:
            raise
        if results.whole is not None:
            raise results.whole from None
        outcomes = {item: results.errors[item] if item in results.errors else results[item] for item in items}
        return {
            item: outcome for item, outcome in outcomes.items() if not isinstance(outcome, errors.UnansweredItemError)
        }
    return {item: done[item] if isinstance(done, Mapping) else None for item in items}


def raise_first(outcomes: Iterable[object]) -> None:
    """Raise the first error among ``outcomes``, if any."""
    for outcome in outcomes:
        if isinstance(outcome, errors.KafkaError):
            raise outcome


def code_of(outcome: object) -> int:
    """Return the error code of an outcome: 0 for success, -1 for an error that no broker sent."""
    if not isinstance(outcome, errors.KafkaError):
        return 0
    return outcome.code if isinstance(outcome, errors.BrokerResponseError) else -1


def message_of(outcome: object) -> str | None:
    """Return the text of an error, None for success."""
    return str(outcome) if isinstance(outcome, errors.KafkaError) else None


def class_of(outcome: object) -> type[errors.KafkaError]:
    """Return the class of an error, `NoError` for success."""
    return type(outcome) if isinstance(outcome, errors.KafkaError) else NoError


def text_of(outcome: object) -> str:
    """Return ``OK``, or number, name and text of an error."""
    if not isinstance(outcome, errors.KafkaError):
        return "OK"
    number = f"[Error {outcome.code}] " if isinstance(outcome, errors.BrokerResponseError) else ""
    return f"{number}{type(outcome).__name__}: {outcome}"


def names_of(operations: Collection[AclOperation] | None) -> list[str] | None:
    """Return the names of operations in the order of their codes; None where the broker sent none."""
    return None if operations is None else [operation.name for operation in sorted(operations)]
