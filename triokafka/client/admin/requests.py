"""The request-sending core of the admin client: destinations, retries and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import trio

from triokafka.backoff import Backoff
from triokafka.client.admin.types import Results
from triokafka.client.config import AdminOptions
from triokafka.errors import (
    BrokerNotAvailableError,
    BrokerResponseError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    UnansweredItemError,
    UnencodableValueError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointTypeError,
    for_code,
    in_words,
)
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node, TopicPartition
from triokafka.world import World

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)

Round = Callable[[list[K], int], Awaitable[Mapping[K, V | Exception]]]
"""Does the given items once, within the given milliseconds; returns the outcome or the error of each."""

_GROUP: Final = 0
_SHARE_OF_TIME: Final = 0.9
_CONTROLLER_PATIENCE_MS: Final = 1_000
"""How long to wait for a connection to the controller before another broker is asked."""
_FINAL: Final = (UnknownTopicOrPartitionError, UnknownTopicIdError)


class AdminRequests:
    """Sends the requests of one admin client to the right brokers, until they succeed or their time is over.

    With ``at_controllers`` the client is connected to the controllers (KIP-919), of which the active one answers.
    """

    def __init__(self, client: NetworkClient, options: AdminOptions, world: World) -> None:
        self._client = client
        self._world = world
        self._default_timeout_ms = options.default_api_timeout_ms
        self._request_timeout_ms = options.request_timeout_ms
        self.at_controllers = bool(options.bootstrap_controllers)
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
        self._unreachable_controller: int | None = None
        self._waited_for_controller = False

    # ---------------------------------------------------------------- retries

    async def each(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> Results[K, V]:
        """Do the items, and retry those that failed with a retriable error, until all are done or the time is over.

        Errors of the ``final`` kinds are not retried. Nor is an unknown topic, which an administrator must see.
        """
        self._client.check_usable()
        pending = list(dict.fromkeys(items))
        done: dict[K, V] = {}
        failed: dict[K, Exception] = {}
        limit = self._default_timeout_ms if timeout_ms is None else timeout_ms
        give_up_at = self._world.now() + limit / 1000
        failures = 0
        whole: Exception | None = None
        while pending:
            left_ms = max(1, round((give_up_at - self._world.now()) * 1000))
            outcomes: Mapping[K, V | Exception] = {}
            overall: Exception | None = None
            whole = None
            self._waited_for_controller = False
            with trio.move_on_after(left_ms / 1000):
                try:
                    outcomes = await do_round(pending, left_ms)
                    overall = UnansweredItemError("the broker's answer does not mention this item")
                except UnencodableValueError:
                    raise  # the argument is wrong, not the cluster
                except KafkaError as error:
                    overall = whole = error
            if overall is None:
                overall = whole = KafkaTimeoutError(f"not done within {limit:.0f} ms: {self._why_late()}")
            again: list[K] = []
            for item in pending:
                outcome = outcomes.get(item, overall)
                if not isinstance(outcome, Exception):
                    done[item] = outcome
                    failed.pop(item, None)
                    continue
                if self._says_more(outcome, failed.get(item)):
                    failed[item] = outcome
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

    async def change(
        self,
        items: Iterable[K],
        do_round: Round[K, V],
        timeout_ms: float | None,
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> dict[K, V]:
        """Do as `each`, for calls that change something: raise the failures after all items were tried."""
        results = await self.each(items, do_round, timeout_ms, final=final)
        if results.errors:
            raise failure_of(results)
        return dict(results)

    async def once(self, do: Callable[[int], Awaitable[V]], timeout_ms: float | None) -> V:
        """Do one operation, and retry it while it fails with a retriable error."""

        async def do_round(items: list[None], left_ms: int) -> Mapping[None, V | Exception]:
            return {None: await do(left_ms)}

        results: Results[None, V] = await self.each([None], do_round, timeout_ms)
        return results[None]

    def countdown(self, timeout_ms: float | None) -> Callable[[], float]:
        """Return a function for the rest of a call's time limit, in milliseconds, for calls of several steps."""
        limit = self._default_timeout_ms if timeout_ms is None else timeout_ms
        ends_at = self._world.now() + limit / 1000
        return lambda: max(1.0, (ends_at - self._world.now()) * 1000)

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes of the client's world."""
        return self._world.random_bytes(count)

    # ---------------------------------------------------------------- destinations

    async def to_any(self, request: Request[R] | Callable[[int], Request[R]], left_ms: float, **more: Any) -> R:
        """Send to any broker, or to the active controller. ``more`` are arguments of `NetworkClient.send`."""
        if self.at_controllers:
            return await self.to_controller(request, left_ms, **more)
        return await self._client.send_to_least_loaded(request, timeout_ms=self._patience(left_ms), **more)

    async def to_node(
        self, node_id: int, request: Request[R] | Callable[[int], Request[R]], left_ms: float, **more: Any
    ) -> R:
        """Send to one broker. ``more`` are arguments of `NetworkClient.send`."""
        return await self._client.send(node_id, request, timeout_ms=self._patience(left_ms), **more)

    async def to_controller(self, request: Request[R] | Callable[[int], Request[R]], left_ms: float, **more: Any) -> R:
        """Send to the controller, or in a KRaft cluster to the broker that metadata names; any of them forwards it.

        Metadata may name a broker that hangs until its session ends. After a connection error, other brokers are asked
        instead, until one of them does not forward the request.
        """
        cluster = self._client.cluster
        if cluster.controller_id not in cluster.nodes:
            cluster = await self.refresh_metadata(left_ms)
        if cluster.controller_id not in cluster.nodes:
            if self.at_controllers:
                raise NotControllerError(f"none of the controllers {sorted(cluster.nodes)} is active")
            return await self.to_any(request, left_ms, **more)
        try:
            if cluster.controller_id == self._unreachable_controller:
                return await self.to_any(request, left_ms, **more)
            return await self.to_node(
                cluster.controller_id, request, left_ms, connect_timeout_ms=_CONTROLLER_PATIENCE_MS, **more
            )
        except KafkaConnectionError:
            if not self.at_controllers:
                self._unreachable_controller = cluster.controller_id
            self._client.request_metadata_update()
            raise
        except trio.Cancelled:
            self._waited_for_controller = True
            raise

    async def to_coordinator(
        self, group_id: str, request: Request[R] | Callable[[int], Request[R]], left_ms: float, **more: Any
    ) -> R:
        """Send to the group's coordinator; after a connection error the next call looks it up again."""
        self._need_brokers()
        node = await self._client.find_coordinator(group_id, _GROUP, timeout_ms=self._patience(left_ms))
        try:
            return await self.to_node(node.node_id, request, left_ms, **more)
        except KafkaConnectionError:
            self._client.forget_coordinator(group_id, _GROUP)
            raise

    def _need_brokers(self) -> None:
        """Raise `UnsupportedEndpointTypeError` if the client knows only controllers."""
        if self.at_controllers:
            raise UnsupportedEndpointTypeError(
                "this call needs brokers, and the client was given controllers (bootstrap_controllers)"
            )

    def _patience(self, left_ms: float) -> float:
        return min(left_ms, self._request_timeout_ms)

    def assume_coordinator(self, group_id: str, node: Node) -> None:
        """Use ``node`` as the group's coordinator until it answers that it is not."""
        self._client.assume_coordinator(group_id, node, _GROUP)

    async def refresh_metadata(self, left_ms: float) -> Cluster:
        """Fetch and return the cluster's current metadata."""
        return await self._client.refresh_metadata(timeout_ms=left_ms)

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers of the last metadata, by id."""
        return self._client.cluster.nodes

    async def node(self, node_id: int, left_ms: float) -> Node:
        """Return a broker of the cluster. Raises `BrokerNotAvailableError`, which is final, when there is none."""
        nodes = self.nodes
        if node_id not in nodes:
            nodes = (await self.refresh_metadata(left_ms)).nodes
        if node_id not in nodes:
            there = ", ".join(map(str, sorted(nodes))) or "none"
            raise BrokerNotAvailableError(f"broker {node_id} is not in the cluster, which has the brokers: {there}")
        return nodes[node_id]

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        left_ms: float,
        failed: MutableMapping[TopicPartition, Any],
        node_id: int | None = None,
    ) -> dict[int, list[TopicPartition]]:
        """Group partitions by the id of their leader; those without a leader get an error in ``failed``.

        With ``node_id`` all are grouped under that broker.
        """
        self._need_brokers()
        if node_id is not None:
            return {(await self.node(node_id, left_ms)).node_id: list(partitions)}
        partitions = list(partitions)
        with suppress(UnknownTopicOrPartitionError):  # one request for all of them; the loop finds the missing ones
            topics = dict.fromkeys(tp.topic for tp in partitions)
            await self._client.metadata_for(topics, timeout_ms=left_ms, wait_for_creation=False)
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            try:
                cluster = await self._client.metadata_for([tp.topic], timeout_ms=left_ms, wait_for_creation=False)
            except UnknownTopicOrPartitionError as error:
                failed[tp] = error
                continue
            if cluster.partition(tp) is None:
                cluster = await self.refresh_metadata(left_ms)
            if cluster.partition(tp) is None:
                failed[tp] = UnknownTopicOrPartitionError(f"{tp}: the topic has no such partition")
            elif (leader := cluster.leader_for(tp)) < 0:
                failed[tp] = LeaderNotAvailableError(f"{tp} has no leader at the moment")
                self._client.request_metadata_update()
            else:
                by_node.setdefault(leader, []).append(tp)
        return by_node

    async def side_by_side(
        self,
        parts: Mapping[int, list[K]],
        do_part: Callable[[int, list[K], int], Awaitable[Mapping[K, V | Exception]]],
        left_ms: int,
    ) -> dict[K, V | Exception]:
        """Do parts of the items at several brokers concurrently; a failed part fails only its own items.

        A broker that does not answer gets a little less than the whole time, so that the others' answers are not lost.
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

    async def at_coordinators(
        self,
        group_ids: list[str],
        ask: Callable[[Node, list[str], int], Awaitable[Mapping[str, V | Exception]]],
        left_ms: int,
        *,
        key_type: int = _GROUP,
    ) -> dict[str, V | Exception]:
        """Do groups at their coordinators. One request looks up all of them, and again after a connection error."""
        self._need_brokers()
        outcomes: dict[str, V | Exception] = {}
        nodes: dict[int, Node] = {}
        parts: dict[int, list[str]] = {}
        found = await self._client.find_coordinators(group_ids, key_type, timeout_ms=self._patience(left_ms))
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
                    self._client.forget_coordinator(group_id, key_type)
                raise

        return outcomes | await self.side_by_side(parts, do_part, left_ms)

    def forget_coordinator(self, key: str, key_type: int) -> None:
        """Look the coordinator up again next time."""
        self._client.forget_coordinator(key, key_type)

    def wall_ms(self) -> int:
        """The present time, in ms since the epoch."""
        return self._world.wall_ms()

    # ---------------------------------------------------------------- errors

    def _says_more(self, outcome: object, earlier: object) -> bool:
        """Whether the outcome of a round is reported instead of an earlier one.

        A timeout does not replace the reason of an earlier failure, unless that was a connection, and since then the
        request has reached a broker that waits for the active controller.
        """
        if not isinstance(outcome, KafkaTimeoutError) or earlier is None:
            return True
        return self._waited_for_controller and not isinstance(earlier, BrokerResponseError)

    def _why_late(self) -> str:
        why = self._client.why_unreachable()
        if self._waited_for_controller:
            why += ". The request is for the active controller: check that a majority of the controllers runs"
        return why

    def error(self, code: int, item: object, message: str | None = None) -> BrokerResponseError | None:
        """Return the error of one item, None when ``code`` is 0. Stale metadata is refreshed before the next try."""
        if not code:
            return None
        kind = for_code(code)
        error = kind(f"{item}: {message or in_words(kind)}")
        if isinstance(error, NotControllerError):
            self._unreachable_controller = None
        if isinstance(error, NotControllerError) or error.invalid_metadata:
            self._client.request_metadata_update()
        return error

    def check(self, code: int, item: object, message: str | None = None) -> None:
        """Raise the `error` of one item, if there is one."""
        error = self.error(code, item, message)
        if error is not None:
            raise error

    def group_error(
        self, code: int, group_id: str, message: str | None = None, *, part: object = None
    ) -> BrokerResponseError | None:
        """Return the `error` of a group, or of some ``part`` of it. A coordinator that moved is looked up again."""
        item = f"group {group_id!r}" if part is None else f"group {group_id!r}, {part}"
        error = self.error(code, item, message)
        if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError)):
            self._client.forget_coordinator(group_id, _GROUP)
        return error


def failure_of(results: Results[Any, Any]) -> Exception:
    """Return the error of the failed item, or a group of several errors; ``outcomes`` has the results of all items."""
    # A request that failed as a whole is one error, however many items it had.
    errors = list({id(error): error for error in results.errors.values()}.values())
    failure = errors[0]
    if len(errors) > 1:
        failure = ExceptionGroup(f"{len(results.errors)} of {len(results)} items failed", errors)
    failure.outcomes = results  # type: ignore[attr-defined]
    return failure


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group the numbers of partitions by topic, in their given order."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
