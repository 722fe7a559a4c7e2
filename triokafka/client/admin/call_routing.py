"""Routing of the admin client: which broker gets each request of a call: the controller, a coordinator, a leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import trio

from triokafka import errors
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)

GROUP: Final = 0
"""The key type of groups in requests for a coordinator."""
_SHARE_OF_TIME: Final = 0.9
_CONTROLLER_PATIENCE_MS: Final = 1_000
"""How long to wait for a connection to the controller before another broker is asked."""


@dataclass
class ControllerRoute:
    """How the calls of one admin client reach the controller.

    Attributes:
        unreachable: the node that no call could connect to as the controller, until a broker does not forward to it.
            Later calls do not wait for it again.
        at_controllers: the client is connected to the controllers (KIP-919), of which the active one answers.
    """

    at_controllers: bool
    unreachable: int | None = None


class CallRouting:
    """Routes the requests of one call of an admin client, of one or more attempts.

    Attributes:
        left_ms: the rest of the call's time limit when the present attempt began.
        waited_for_controller: the present attempt ended while it waited for the response of the controller.
    """

    def __init__(self, client: NetworkClient, route: ControllerRoute, request_timeout_ms: float) -> None:
        self._client = client
        self._route = route
        self._request_timeout_ms = request_timeout_ms
        self.left_ms = 0
        self.waited_for_controller = False

    def begin_attempt(self, left_ms: int) -> None:
        """Begin an attempt, which may take ``left_ms``."""
        self.left_ms = left_ms
        self.waited_for_controller = False

    async def to_any(self, request: Request[R] | Callable[[int], Request[R]], **more: Any) -> R:
        """Send to any broker, or to the active controller. ``more`` are arguments of `NetworkClient.send`."""
        if self._route.at_controllers:
            return await self.to_controller(request, **more)
        return await self._client.send_to_least_loaded(request, timeout_ms=self._patience(), **more)

    async def to_node(self, node_id: int, request: Request[R] | Callable[[int], Request[R]], **more: Any) -> R:
        """Send to one broker. ``more`` are arguments of `NetworkClient.send`."""
        return await self._client.send(node_id, request, timeout_ms=self._patience(), **more)

    async def to_controller(self, request: Request[R] | Callable[[int], Request[R]], **more: Any) -> R:
        """Send to the controller, or in a KRaft cluster to the broker that metadata names; any of them forwards it.

        Metadata may name a broker that hangs until its session ends. After a connection error, other brokers are asked
        instead, until one of them does not forward the request.
        """
        cluster = self._client.cluster
        if cluster.controller_id not in cluster.nodes:
            cluster = await self.refresh_metadata()
        if cluster.controller_id not in cluster.nodes:
            if self._route.at_controllers:
                raise errors.NotControllerError(f"none of the controllers {sorted(cluster.nodes)} is active")
            return await self.to_any(request, **more)
        try:
            if cluster.controller_id == self._route.unreachable:
                return await self.to_any(request, **more)
            return await self.to_node(
                cluster.controller_id, request, connect_timeout_ms=_CONTROLLER_PATIENCE_MS, **more
            )
        except errors.KafkaConnectionError:
            if not self._route.at_controllers:
                self._route.unreachable = cluster.controller_id
            self._client.request_metadata_update()
            raise
        except trio.Cancelled:
            self.waited_for_controller = True
            raise

    async def to_coordinator(self, group_id: str, request: Request[R] | Callable[[int], Request[R]], **more: Any) -> R:
        """Send to the group's coordinator; after a connection error the next attempt looks it up again."""
        self._need_brokers()
        node = await self._client.find_coordinator(group_id, GROUP, timeout_ms=self._patience())
        try:
            return await self.to_node(node.node_id, request, **more)
        except errors.KafkaConnectionError:
            self._client.forget_coordinator(group_id, GROUP)
            raise

    def _need_brokers(self) -> None:
        """Raise `UnsupportedEndpointTypeError` if the client knows only controllers."""
        if self._route.at_controllers:
            raise errors.UnsupportedEndpointTypeError(
                "this call needs brokers, and the client was given controllers (bootstrap_controllers)"
            )

    def _patience(self) -> float:
        return min(self.left_ms, self._request_timeout_ms)

    async def refresh_metadata(self) -> Cluster:
        """Fetch and return the cluster's current metadata."""
        return await self._client.refresh_metadata(timeout_ms=self.left_ms)

    async def node(self, node_id: int) -> Node:
        """Return a broker of the cluster. Raises `BrokerNotAvailableError`, which is final, when there is none."""
        nodes = self._client.cluster.nodes
        if node_id not in nodes:
            nodes = (await self.refresh_metadata()).nodes
        if node_id not in nodes:
            there = ", ".join(map(str, sorted(nodes))) or "none"
            raise errors.BrokerNotAvailableError(
                f"broker {node_id} is not in the cluster, which has the brokers: {there}"
            )
        return nodes[node_id]

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        failed: MutableMapping[TopicPartition, Any],
        node_id: int | None = None,
    ) -> dict[int, list[TopicPartition]]:
        """Group partitions by the id of their leader; those without a leader get an error in ``failed``.

        With ``node_id`` all are grouped under that broker.
        """
        self._need_brokers()
        if node_id is not None:
            return {(await self.node(node_id)).node_id: list(partitions)}
        partitions = list(partitions)
        left_ms = self.left_ms
        # One request for all of them; the loop finds the missing ones.
        with suppress(errors.UnknownTopicOrPartitionError):
            topics = dict.fromkeys(tp.topic for tp in partitions)
            await self._client.metadata_for(topics, timeout_ms=left_ms, wait_for_creation=False)
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            try:
                cluster = await self._client.metadata_for([tp.topic], timeout_ms=left_ms, wait_for_creation=False)
            except errors.UnknownTopicOrPartitionError as error:
                failed[tp] = error
                continue
            if cluster.partition(tp) is None:
                cluster = await self.refresh_metadata()
            if cluster.partition(tp) is None:
                failed[tp] = errors.UnknownTopicOrPartitionError.of_partition(f"{tp}: the topic has no such partition")
            elif (leader := cluster.leader_for(tp)) < 0:
                failed[tp] = errors.LeaderNotAvailableError(f"{tp} has no leader at the moment")
                self._client.request_metadata_update()
            else:
                by_node.setdefault(leader, []).append(tp)
        return by_node

    async def side_by_side(
        self,
        parts: Mapping[int, list[K]],
        do_part: Callable[[int, list[K], CallRouting], Awaitable[Mapping[K, V | Exception]]],
    ) -> dict[K, V | Exception]:
        """Do parts of the items at several brokers concurrently; a failed part fails only its own items.

        A broker that does not answer gets a little less than the whole time, so that the others' answers are not lost.
        The parts are the end of an attempt.
        """
        outcomes: dict[K, V | Exception] = {}
        patience_ms = max(1, round(min(self.left_ms * _SHARE_OF_TIME, self._request_timeout_ms)))
        self.left_ms = patience_ms

        async def do(node_id: int, items: list[K]) -> None:
            error: Exception = errors.KafkaTimeoutError(f"broker {node_id} did not answer within {patience_ms} ms")
            with trio.move_on_after(patience_ms / 1000):
                try:
                    outcomes.update(await do_part(node_id, items, self))
                    return
                except errors.UnencodableValueError:
                    raise
                except errors.KafkaError as failure:
                    error = failure
            outcomes.update(dict.fromkeys(items, error))

        async with trio.open_nursery() as nursery:
            for node_id, items in parts.items():
                nursery.start_soon(do, node_id, items)
        return outcomes

    async def at_coordinators(
        self,
        group_ids: list[str],
        do_part: Callable[[Node, list[str], CallRouting], Awaitable[Mapping[str, V | Exception]]],
        *,
        key_type: int = GROUP,
    ) -> dict[str, V | Exception]:
        """Do groups at their coordinators. One request looks up all of them, and again after a connection error."""
        self._need_brokers()
        outcomes: dict[str, V | Exception] = {}
        nodes: dict[int, Node] = {}
        parts: dict[int, list[str]] = {}
        found = await self._client.find_coordinators(group_ids, key_type, timeout_ms=self._patience())
        for group_id, coordinator in found.items():
            if isinstance(coordinator, Node):
                nodes[coordinator.node_id] = coordinator
                parts.setdefault(coordinator.node_id, []).append(group_id)
            else:
                outcomes[group_id] = coordinator

        async def do_node(node_id: int, items: list[str], call: CallRouting) -> Mapping[str, V | Exception]:
            try:
                return await do_part(nodes[node_id], items, call)
            except errors.KafkaConnectionError:
                for group_id in items:
                    self._client.forget_coordinator(group_id, key_type)
                raise

        return outcomes | await self.side_by_side(parts, do_node)
