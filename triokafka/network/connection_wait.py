"""The wait for a connection that takes a request. Starts attempts to connect when the back-off allows.

All senders of one client share it; a cancelled wait does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from triokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
)
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.broker_channel import BrokerChannel, ChannelState, copied_failure
from triokafka.network.connection import Connection
from triokafka.network.known_brokers import KnownBrokers
from triokafka.world import World

_CLOCK_STEP: Final = 0.001  # a wait must not end a rounding error early
_PATIENCE: Final = 1.0
"""Seconds that a connection attempt to one broker may take before another broker is tried beside it."""


class ConnectionWait:
    """Waits for connections to brokers, which tasks of ``tasks`` make.

    ``check_usable`` raises if there will be no more connections. ``on_lost`` is called after a failed attempt or the
    end of a connection. Times are seconds.
    """

    def __init__(
        self,
        brokers: KnownBrokers,
        world: World,
        tasks: BackgroundTasks,
        *,
        check_usable: Callable[[], None],
        on_lost: Callable[[BrokerChannel], None],
    ) -> None:
        self._brokers = brokers
        self._world = world
        self._tasks = tasks
        self._check_usable = check_usable
        self._on_lost = on_lost

    def start(self, channel: BrokerChannel) -> None:
        """Start a connection attempt, if the back-off allows it and none is in progress."""
        if channel.may_connect(self._world.now()):
            channel.begin()
            self._tasks.start(self._serve, channel, name=f"kafka connection to {channel.name}")

    async def _serve(self, channel: BrokerChannel) -> None:
        await channel.run()
        self._on_lost(channel)

    async def connection_to(
        self, node_id: int, purpose: str, limit: float, *, checked: bool = False
    ) -> tuple[BrokerChannel, Connection]:
        """Return a connection that takes a request now. The caller must submit it before its next checkpoint.

        With ``checked`` a ping tests the connection first. A dead connection costs a part of
        `connections_max_silence_ms`; then a new one is made.

        Raises:
            KafkaConnectionError: none within ``limit``, or the present attempt has failed.
            UnsupportedVersionError, BrokerResponseError: the broker refused this client.
            NodeNotReadyError: the broker is unknown.
        """
        give_up_at = self._world.now() + limit
        while True:
            channel, connection = await self._any_connection_to(node_id, purpose, limit)
            if not checked:
                return channel, connection
            try:
                await connection.check()
            except KafkaConnectionError:
                limit = give_up_at - self._world.now()
                if limit <= 0:
                    raise
                continue
            await connection.wait_for_slot()
            if connection.error is None and connection is channel.connection:
                return channel, connection

    async def _any_connection_to(self, node_id: int, purpose: str, limit: float) -> tuple[BrokerChannel, Connection]:
        self._check_usable()
        channel = self._brokers.channel(node_id, purpose)
        connection = channel.connection
        if connection is not None and channel.is_ready(self._world.now()):
            return channel, connection
        # The failure of a present attempt or connection is this caller's failure as well; earlier failures are not.
        ended = connection is not None and connection.error is not None
        attempt = None if channel.state is ChannelState.DISCONNECTED or ended else channel.attempts
        with trio.move_on_after(limit):
            while True:
                self._check_usable()
                connection = channel.connection
                if connection is not None and connection.error is None:
                    await connection.wait_for_slot()
                    if connection.error is None and connection is channel.connection:
                        self._check_usable()
                        return channel, connection
                    continue
                if channel.state is ChannelState.DISCONNECTED:
                    if attempt is not None and channel.attempts >= attempt and channel.error is not None:
                        raise copied_failure(channel.error)
                    if channel.may_connect(self._world.now()):
                        self.start(channel)
                        attempt = channel.attempts
                # Do not wait for a connection that has just ended: its channel will report that next.
                changed = channel.changed
                with trio.move_on_after(max(0.0, channel.delay(self._world.now()))):
                    await changed.wait()
        raise KafkaConnectionError(
            f"no connection to {channel.name} within {limit * 1000:.0f} ms"
            + (f"; last failure: {channel.error}" if channel.error is not None else "")
        )

    async def connection_to_any(self, limit: float, *, checked: bool = False) -> tuple[BrokerChannel, Connection]:
        """Like `connection_to`, for the least loaded broker; if one is unreachable, or slow to connect, try the next.

        An attempt that is slow goes on beside the next one.

        Raises `KafkaConnectionError`, with every address tried, if there is none within ``limit``.
        """
        give_up_at = self._world.now() + limit
        while True:
            self._check_usable()
            left = give_up_at - self._world.now()
            if left <= 0:
                raise KafkaConnectionError(self._brokers.why_unreachable())
            node_id = self._brokers.least_loaded()
            if node_id is None:
                await trio.sleep(min(self._brokers.shortest_delay(), left) + _CLOCK_STEP)
                continue
            try:
                return await self.connection_to(node_id, "", min(left, _PATIENCE), checked=checked)
            except (KafkaConnectionError, NodeNotReadyError):
                continue
