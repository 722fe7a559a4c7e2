"""What all areas of the admin client share: its life, where requests go, and when they are tried again."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

import trio

from triokafka.client.admin.arguments import check_public_methods, checked
from triokafka.client.admin.types import Results
from triokafka.client.config import AdminOptions
from triokafka.client.keywords import AdminKeywords
from triokafka.errors import (
    BrokerNotAvailableError,
    BrokerResponseError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotControllerError,
    NotCoordinatorError,
    UnansweredItemError,
    UnencodableValueError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
    in_words,
)
from triokafka.network.backoff import Backoff
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node, TopicPartition
from triokafka.trio_context import require_trio
from triokafka.world import World
from triokafka.world.system import RealWorld

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)

Round = Callable[[list[K], int], Awaitable[Mapping[K, V | Exception]]]
"""Does the given items once, within the given milliseconds; for each the outcome or its error."""

_NUMBERS: Final[WeakKeyDictionary[World, itertools.count[int]]] = WeakKeyDictionary()
_GROUP: Final = 0
_SHARE_OF_TIME: Final = 0.9
_FINAL: Final = (UnknownTopicOrPartitionError, UnknownTopicIdError)


class AdminBase:
    """The part of `AdminClient` that its areas build on."""

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminKeywords]) -> None:
        self.options = AdminOptions.parse(options)
        self._world = world if world is not None else RealWorld()
        number = next(_NUMBERS.setdefault(self._world, itertools.count(1)))
        self._client = NetworkClient(
            self.options.network(client_id=f"triokafka-admin-{number}", allow_auto_create_topics=False),
            world=self._world,
        )
        self._backoff = Backoff(self.options.retry_backoff_ms / 1000, self.options.retry_backoff_max_ms / 1000)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_public_methods(cls)

    async def __aenter__(self) -> Self:
        require_trio("AdminClient")
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)

    # ---------------------------------------------------------------- trying again

    async def _each(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> Results[K, V]:
        """Do the items, and those that failed with a retriable error again, until all are done or time is over.

        Errors of the ``final`` kinds are not tried again, and that a topic does not exist is none either: who manages
        topics wants to know.
        """
        self._client.check_usable()
        pending = list(dict.fromkeys(items))
        done: dict[K, V] = {}
        failed: dict[K, Exception] = {}
        limit = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        give_up_at = self._world.now() + limit / 1000
        failures = 0
        whole: Exception | None = None
        while pending:
            left_ms = max(1, round((give_up_at - self._world.now()) * 1000))
            outcomes: Mapping[K, V | Exception] = {}
            overall: Exception | None = None
            whole = None
            with trio.move_on_after(left_ms / 1000):
                try:
                    outcomes = await do_round(pending, left_ms)
                    overall = UnansweredItemError("the broker's answer does not mention this item")
                except UnencodableValueError:
                    raise  # the argument is wrong, and not the cluster
                except KafkaError as error:
                    overall = whole = error
            if overall is None:
                overall = whole = KafkaTimeoutError(f"not done within {limit:.0f} ms: {self._client.why_unreachable()}")
            again: list[K] = []
            for item in pending:
                outcome = outcomes.get(item, overall)
                if not isinstance(outcome, Exception):
                    done[item] = outcome
                    failed.pop(item, None)
                    continue
                if not isinstance(outcome, KafkaTimeoutError) or item not in failed:
                    failed[item] = outcome  # what went wrong says more than that time is over
                if isinstance(outcome, KafkaError) and outcome.retriable and not isinstance(outcome, _FINAL + final):
                    again.append(item)
            failures += 1
            delay = self._backoff.delay(failures, self._world.random.random())
            if self._world.now() + delay >= give_up_at:
                break
            pending = again
            if pending:
                await trio.sleep(delay)
        return Results(done, failed, whole if all(error is whole for error in failed.values()) else None)

    async def _change(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> dict[K, V]:
        """As `_each`, for calls that change something: failures are raised once all items were tried."""
        results = await self._each(items, do_round, timeout_ms, final=final)
        if results.errors:
            raise failure_of(results)
        return dict(results)

    async def _once(self, do: Callable[[int], Awaitable[V]], timeout_ms: float | None) -> V:
        """One thing to do, tried again while it fails with a retriable error."""

        async def do_round(items: list[None], left_ms: int) -> Mapping[None, V | Exception]:
            return {None: await do(left_ms)}

        results: Results[None, V] = await self._each([None], do_round, timeout_ms)
        return results[None]

    # ---------------------------------------------------------------- where requests go

    async def _any(self, request: Request[R], left_ms: float, *, min_version: int | None = None) -> R:
        return await self._client.send_to_least_loaded(
            request, timeout_ms=self._patience(left_ms), min_version=min_version
        )

    def _patience(self, left_ms: float) -> float:
        return min(left_ms, self.options.request_timeout_ms)

    async def _controller(
        self, request: Request[R], left_ms: float, *, min_version: int | None = None, max_version: int | None = None
    ) -> R:
        """Send to the controller, which any broker of a KRaft cluster stands in for."""
        cluster = self._client.cluster
        if cluster.controller_id not in cluster.nodes:
            cluster = await self._client.refresh_metadata(timeout_ms=left_ms)
        if cluster.controller_id not in cluster.nodes:
            return await self._client.send_to_least_loaded(
                request, timeout_ms=self._patience(left_ms), min_version=min_version, max_version=max_version
            )
        try:
            return await self._client.send(
                cluster.controller_id,
                request,
                timeout_ms=self._patience(left_ms),
                min_version=min_version,
                max_version=max_version,
            )
        except KafkaConnectionError:
            self._client.request_metadata_update()
            raise

    @checked
    async def assume_coordinator(
        self, group_ids: Iterable[str], node_id: int, *, timeout_ms: float | None = None
    ) -> None:
        """Take this broker for the coordinator of these groups, instead of looking it up for the next call.

        If it answers that it is not, it is looked up after all.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """

        async def ask(left_ms: int) -> None:
            node = await self._node(node_id, left_ms)
            for group_id in group_ids:
                self._client.assume_coordinator(group_id, node, _GROUP)

        await self._once(ask, timeout_ms)

    async def _node(self, node_id: int, left_ms: float) -> Node:
        """A broker of the cluster; that there is none of that id is final (`BrokerNotAvailableError`)."""
        nodes = self._client.cluster.nodes
        if node_id not in nodes:
            nodes = (await self._client.refresh_metadata(timeout_ms=left_ms)).nodes
        if node_id not in nodes:
            there = ", ".join(map(str, sorted(nodes))) or "none"
            raise BrokerNotAvailableError(f"there is no broker {node_id} now; those of the cluster are: {there}")
        return nodes[node_id]

    async def _coordinator(
        self, group_id: str, request: Request[R] | Callable[[int], Request[R]], left_ms: float, **more: Any
    ) -> R:
        """Send to the group's coordinator; one that moved is looked up again next time."""
        node = await self._client.find_coordinator(group_id, _GROUP, timeout_ms=self._patience(left_ms))
        try:
            return await self._client.send(node.node_id, request, timeout_ms=self._patience(left_ms), **more)
        except KafkaConnectionError:
            self._client.forget_coordinator(group_id, _GROUP)
            raise

    async def _side_by_side(
        self,
        parts: Mapping[int, list[K]],
        do_part: Callable[[int, list[K], int], Awaitable[Mapping[K, V | Exception]]],
        left_ms: int,
    ) -> dict[K, V | Exception]:
        """Do parts of the items at several brokers at the same time; one that fails fails only its own items.

        A silent broker is given up a little before time is over, so that what the others answered is not lost with it.
        """
        outcomes: dict[K, V | Exception] = {}
        patience_ms = max(1, round(self._patience(left_ms * _SHARE_OF_TIME)))

        async def do(node_id: int, items: list[K]) -> None:
            error: Exception = KafkaTimeoutError(f"broker {node_id} did not answer within {patience_ms} ms")
            with trio.move_on_after(patience_ms / 1000):
                try:
                    outcomes.update(await do_part(node_id, items, patience_ms))
                    return
                except UnencodableValueError:
                    raise
                except KafkaError as failure:
                    error = failure
            outcomes.update(dict.fromkeys(items, error))

        async with trio.open_nursery() as nursery:
            for node_id, items in parts.items():
                nursery.start_soon(do, node_id, items)
        return outcomes

    async def _at_coordinators(
        self,
        group_ids: list[str],
        ask: Callable[[Node, list[str], int], Awaitable[Mapping[str, V | Exception]]],
        left_ms: int,
    ) -> dict[str, V | Exception]:
        """Do groups at their coordinators, looked up all at once; one that moved is looked up again next time."""
        outcomes: dict[str, V | Exception] = {}
        nodes: dict[int, Node] = {}
        parts: dict[int, list[str]] = {}
        found = await self._client.find_coordinators(group_ids, _GROUP, timeout_ms=self._patience(left_ms))
        for group_id, coordinator in found.items():
            if isinstance(coordinator, Node):
                nodes[coordinator.node_id] = coordinator
                parts.setdefault(coordinator.node_id, []).append(group_id)
            else:
                outcomes[group_id] = coordinator

        async def do_part(node_id: int, items: list[str], patience_ms: int) -> Mapping[str, V | Exception]:
            try:
                return await ask(nodes[node_id], items, patience_ms)
            except KafkaConnectionError:
                for group_id in items:
                    self._client.forget_coordinator(group_id, _GROUP)
                raise

        return outcomes | await self._side_by_side(parts, do_part, left_ms)

    def _error(self, code: int, item: object, message: str | None = None) -> BrokerResponseError:
        """The error of one item; notes what it says about where to send the next request."""
        kind = for_code(code)
        error = kind(f"{item}: {message or in_words(kind)}")
        if isinstance(error, NotControllerError) or error.invalid_metadata:
            self._client.request_metadata_update()
        return error

    def _group_error(
        self, code: int, group_id: str, message: str | None = None, *, part: object = None
    ) -> BrokerResponseError:
        """The error of a group, or of some ``part`` of it; as `_error`."""
        item = f"group {group_id!r}" if part is None else f"group {group_id!r}, {part}"
        error = self._error(code, item, message)
        if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError)):
            self._client.forget_coordinator(group_id, _GROUP)
        return error


def failure_of(results: Results[Any, Any]) -> Exception:
    """The error that failed items are told with, or a group of several; its ``outcomes`` are those of all items."""
    # What fails as a whole is one error, however many items were asked for.
    errors = list({id(error): error for error in results.errors.values()}.values())
    failure = errors[0]
    if len(errors) > 1:
        failure = ExceptionGroup(f"{len(results.errors)} of {len(results)} items failed", errors)
    failure.outcomes = results  # type: ignore[attr-defined]
    return failure


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Numbers of partitions by topic, in the order in which they come."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
