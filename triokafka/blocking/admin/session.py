"""What the parts of `KafkaAdminClient` share: the SDK's `AdminClient` in a task of the loop, and outcomes per item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import trio

import triokafka
from triokafka.blocking.errors import NoError
from triokafka.client.admin.arguments import check_public_methods
from triokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    KafkaError,
    UnansweredItemError,
    UnencodableValueError,
    UnsupportedVersionError,
)
from triokafka.loop_thread import LoopThread, fork_count

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import AclOperation, Results

K = TypeVar("K")
T = TypeVar("T")

Work = Callable[["AdminClient"], Awaitable[T]]


class AdminSession:
    """From making the SDK's admin client to its end."""

    def __init__(self, loop: LoopThread, options: dict[str, Any]) -> None:
        self.loop = loop
        self._options = options
        self._admin: AdminClient | None = None
        self._closing = trio.Event()
        self._closed = trio.Event()
        self._forks = fork_count()

    async def open(self) -> None:
        """Make the admin client. Raises what is wrong with its options."""
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
        """End it."""
        self._closing.set()
        await self._closed.wait()

    def end(self) -> None:
        """End it, and wait for that; in a forked child there is nothing to end. From any thread but the loop's."""
        if self._forks == fork_count():
            self.loop.call(self.close)

    def abandon(self) -> None:
        """Nobody has the client any more. From any thread; waits for nothing."""
        if self._forks == fork_count():
            self.loop.soon(self._closing.set)

    def run(self, work: Work[T]) -> T:
        """Do something with the SDK's admin client, and wait for it. From any thread but the loop's."""
        if self._forks != fork_count():
            raise IllegalStateError(
                "this KafkaAdminClient belongs to the process from which this one was forked: make a new one here"
            )
        result: T = self.loop.call(self._work, work)
        return result

    async def _work(self, work: Work[T]) -> T:
        if self._admin is None:
            raise IllegalStateError("KafkaAdminClient is closed")
        return await work(self._admin)


class AdminPart:
    """A part of `KafkaAdminClient`."""

    config: dict[str, Any]
    _session: AdminSession

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_public_methods(cls)

    def _run(self, work: Work[T]) -> T:
        return self._session.run(work)

    def _validate_timeout(self, timeout_ms: float | None) -> float:
        limit: float = timeout_ms or self.config["request_timeout_ms"]
        return limit

    def _lacks(self, what: str) -> NoReturn:
        raise UnsupportedVersionError(f"{what}: triokafka's admin client cannot do that yet, nor can its broker")


async def each(items: Iterable[K], do: Callable[[K], Awaitable[T]]) -> dict[K, T | KafkaError]:
    """What was done for each item, one after the other, or its error; the others go on."""
    outcomes: dict[K, T | KafkaError] = {}
    for item in items:
        try:
            outcomes[item] = await do(item)
        except UnencodableValueError:
            raise  # the argument is wrong, and not the cluster
        except KafkaError as error:
            outcomes[item] = error
    return outcomes


async def together(items: Iterable[K], change: Awaitable[Any]) -> dict[K, Any]:
    """What one call of the SDK's did for each of its items, or its error. Raises what failed as a whole.

    What a broker's answer does not mention is left out, as kafka-python hands on what was answered.
    """
    try:
        done = await change
    except (KafkaError, ExceptionGroup) as failure:
        results: Results[K, Any] | None = getattr(failure, "outcomes", None)
        if results is None:
            raise
        if results.whole is not None:
            raise results.whole from None
        outcomes = {item: results.errors[item] if item in results.errors else results[item] for item in items}
        return {item: outcome for item, outcome in outcomes.items() if not isinstance(outcome, UnansweredItemError)}
    return {item: done[item] if isinstance(done, Mapping) else None for item in items}


def raise_first(outcomes: Iterable[object]) -> None:
    """Raise the first error among outcomes, if there is one."""
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise outcome


def code_of(outcome: object) -> int:
    """The error code of an outcome; 0 for success, -1 for an error that is no broker's."""
    if not isinstance(outcome, KafkaError):
        return 0
    return outcome.code if isinstance(outcome, BrokerResponseError) else -1


def message_of(outcome: object) -> str | None:
    """What an error says; None for success."""
    return str(outcome) if isinstance(outcome, KafkaError) else None


def class_of(outcome: object) -> type[KafkaError]:
    """The class of an error; `NoError` for success."""
    return type(outcome) if isinstance(outcome, KafkaError) else NoError


def text_of(outcome: object) -> str:
    """``OK``, or number, name and text of an error."""
    if not isinstance(outcome, KafkaError):
        return "OK"
    number = f"[Error {outcome.code}] " if isinstance(outcome, BrokerResponseError) else ""
    return f"{number}{type(outcome).__name__}: {outcome}"


def names_of(operations: Collection[AclOperation] | None) -> list[str] | None:
    """What the caller may do, in order of Kafka's numbers; None where the broker does not say."""
    return None if operations is None else [operation.name for operation in sorted(operations)]
