"""Requests to the active controller, wherever it is: find it, connect, and try again when it has moved."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.broker_stub.gateway.gateway_interface import NodeStopsError
from triokafka.network.node_channel import NodeChannel
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.world import World

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_FIRST_BACKOFF: Final = 0.020
_MAX_BACKOFF: Final = 0.500


class Purpose(enum.Enum):
    """What a request is for. Each purpose has a connection of its own, as in Apache Kafka's brokers.

    The controller answers the requests of a connection in order: a heartbeat must not wait behind the creation of a
    thousand topics, nor end with the connection of a client's request.
    """

    LIFECYCLE = "registration and heartbeats"
    REPLICAS = "other requests of the broker itself"
    CLIENTS = "requests of clients, and of the broker on behalf of one"


class ControllerChannel:
    """Sends requests to the active controller.

    The leader of the metadata quorum is the active controller. There is one connection for each `Purpose`, to the node
    that leads now; a request in flight to a former leader is sent again to the next one. Whether the former one
    executed it is unknown.

    Use: construct, run `run` in a nursery, and call `leader_changed` when the quorum has another leader.

    Args:
        find: returns the address of the quorum's leader; None while there is none.
        connect: makes a channel to a node; this object runs and closes it.
        timeout_ms: the time limit of a request without one of its own, retries included.
    """

    def __init__(
        self,
        world: World,
        *,
        find: Callable[[], Node | None],
        connect: Callable[[Node], NodeChannel],
        timeout_ms: float,
    ) -> None:
        self._world = world
        self._find = find
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._channels: dict[Purpose, NodeChannel] = {}
        self._backoff = Backoff(_FIRST_BACKOFF, _MAX_BACKOFF)
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._began = trio.Event()
        self._ended = False

    async def run(self) -> None:
        """Serve the connections until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._began.set()
                await trio.sleep_forever()
        finally:
            self._nursery, self._ended = None, True
            for purpose in Purpose:
                self._close(purpose)
            self.leader_changed()
            self._began.set()

    def leader_changed(self) -> None:
        """Look for the leader again: end the connections to a former one, and wake the requests that wait for one."""
        node = self._find()
        for purpose, channel in list(self._channels.items()):
            if node is not None and channel.node != node:
                self._close(purpose)
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _close(self, purpose: Purpose) -> None:
        channel = self._channels.pop(purpose, None)
        if channel is not None:
            channel.close()

    def _channel_to(self, node: Node, purpose: Purpose) -> NodeChannel:
        channel = self._channels.get(purpose)
        if channel is None or channel.node != node:
            self._close(purpose)
            if self._nursery is None:
                raise NodeStopsError("this node is stopping")
            channel = self._channels[purpose] = self._connect(node)
            self._nursery.start_soon(channel.run)
        return channel

    async def send(
        self,
        request: Request[R] | Callable[[int], Request[R]],
        purpose: Purpose,
        *,
        api: type[Request[R]] | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
        is_refusal: Callable[[R], bool] = lambda response: False,
    ) -> R:
        """Send a request to the active controller and return its response.

        Waits for a leader, a connection and the response, at most ``timeout_ms`` in all. A connection that fails, and a
        response for which ``is_refusal`` is true because the node is no longer the active controller, lead to another
        attempt after a back-off. If cancelled, the controller may have executed the request.

        A connection without a response within the time limit ends. The limit of a client is the exception: however
        short it is, the connection stays for the requests of others, until a response is overdue by the limit of the
        constructor.

        Raises:
            RequestTimedOutError: no answer in time; the message has the last failure. The controller may have executed
                the request.
            UnsupportedVersionError: the controller does not serve the request.
            NodeStopsError: this node stops.
        """
        limit = (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        give_up_at = self._world.now() + limit
        failure: object = "the metadata quorum has no leader"
        failures = 0
        with trio.move_on_after(limit):
            await self._began.wait()
        while not self._ended and (left := give_up_at - self._world.now()) > 0:
            node, changed = self._find(), self._changed
            if node is not None:
                try:
                    channel = self._channel_to(node, purpose)
                    response = await self._ask(channel, request, purpose, api, max_version, left)
                except (errors.KafkaConnectionError, errors.RequestTimedOutError, errors.ProtocolError) as error:
                    failure = error
                else:
                    if not is_refusal(response):
                        return response
                    failure = f"node {node.node_id} is not the active controller"
            failures += 1
            wait = self._backoff.delay(failures, self._world.random.random())
            with trio.move_on_after(min(wait, max(0.0, give_up_at - self._world.now()))):
                await changed.wait()
                if self._find() != node:
                    failures = 0
        if self._ended:
            raise NodeStopsError("this node is stopping")
        raise errors.RequestTimedOutError(
            f"the active controller did not answer within {limit * 1000:.0f} ms: {failure}"
        )

    async def _ask(
        self,
        channel: NodeChannel,
        request: Request[R] | Callable[[int], Request[R]],
        purpose: Purpose,
        api: type[Request[R]] | None,
        max_version: int | None,
        limit: float,
    ) -> R:
        """Send a request over a channel and wait for its response, at most ``limit`` seconds."""
        if purpose is not Purpose.CLIENTS:
            return await channel.send(request, api=api, max_version=max_version, timeout_ms=limit * 1000)
        with trio.move_on_after(limit):
            timeout_ms = max(limit * 1000, self._timeout_ms)
            return await channel.send(request, api=api, max_version=max_version, timeout_ms=timeout_ms)
        failure = "" if channel.error is None else f"; last failure: {channel.error}"
        raise errors.RequestTimedOutError(f"{channel.name} has not answered yet{failure}")
