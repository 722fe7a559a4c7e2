"""The heartbeat sessions of brokers at the active controller. Soft state: a new controller begins with new sessions.

Pure. Times are seconds on the world's monotonic clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage


@dataclass(slots=True)
class BrokerSession:
    """The session of one broker's process: its last heartbeat, and the metadata that it has applied.

    ``controlled_shutdown_offset`` is the offset that all active brokers must have applied before it may stop; -1 while
    it does not want to. ``ended`` says that its process is known to have ended, although its session has not.
    ``unanswered`` is the number of its heartbeats that wait for their answer.
    """

    incarnation_id: uuid.UUID
    last_contact: float
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1
    ended: bool = False
    unanswered: int = 0


class BrokerSessions:
    """The sessions of all brokers.

    Args:
        timeout: how long, in seconds, a broker that is not fenced may be silent.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._sessions: dict[int, BrokerSession] = {}

    def begin(
        self, image: MetadataImage, *, now: float, ended: int | None, silent: tuple[int, float] | None = None
    ) -> None:
        """Give every unfenced broker a new session, and forget all others.

        ``ended`` is a broker whose registered process is known to have ended, so that a new one may register at once.
        ``silent`` is a broker that sent nothing for so many seconds: its session began then, but at most half a timeout
        ago, so that a broker which was only cut off from this node has time for a heartbeat.
        """
        self._sessions = {
            broker.broker_id: BrokerSession(broker.incarnation_id, now, ended=broker.broker_id == ended)
            for broker in image.brokers.values()
            if not broker.fenced
        }
        session = None if silent is None else self._sessions.get(silent[0])
        if silent is not None and session is not None:
            session.last_contact = now - min(silent[1], self.timeout / 2)

    def start(self, broker_id: int, incarnation_id: uuid.UUID, now: float) -> None:
        """Begin the session of a broker that registers; one that registers again keeps its metadata offset."""
        before = self._sessions.get(broker_id)
        session = BrokerSession(incarnation_id, now)
        if before is not None and before.incarnation_id == incarnation_id:
            session.metadata_offset = before.metadata_offset
            session.controlled_shutdown_offset = before.controlled_shutdown_offset
        self._sessions[broker_id] = session

    def touch(self, broker: BrokerImage, metadata_offset: int, now: float) -> BrokerSession:
        """Record a heartbeat and return the session."""
        session = self._sessions.get(broker.broker_id)
        if session is None or session.incarnation_id != broker.incarnation_id:
            session = self._sessions[broker.broker_id] = BrokerSession(broker.incarnation_id, now)
        session.last_contact, session.metadata_offset, session.ended = now, metadata_offset, False
        return session

    @contextmanager
    def answering(self, broker: BrokerImage | None, now: Callable[[], float]) -> Iterator[None]:
        """Keep the session of a broker alive while its heartbeat waits for the answer.

        The answer follows changes that were made before, as of thousands of topics, and the broker sends the next
        heartbeat after it.
        """
        session = None if broker is None else self._sessions.get(broker.broker_id)
        if broker is None or session is None or session.incarnation_id != broker.incarnation_id:
            yield
            return
        session.unanswered += 1
        try:
            yield
            session.last_contact = max(session.last_contact, now())
        finally:
            session.unanswered -= 1

    def remove(self, broker_id: int) -> None:
        """Forget a broker that was unregistered."""
        self._sessions.pop(broker_id, None)

    def alive(self, broker: BrokerImage, now: float) -> bool:
        """Whether the registered process of a broker has a valid session. Fenced brokers have none."""
        session = self._sessions.get(broker.broker_id)
        if broker.fenced or session is None or session.ended:
            return False
        return session.incarnation_id == broker.incarnation_id and (
            session.unanswered > 0 or session.last_contact + self.timeout >= now
        )

    def last_contacts(self) -> dict[int, float]:
        """Return the time of the last heartbeat of each broker, for metrics."""
        return {broker_id: session.last_contact for broker_id, session in self._sessions.items()}

    def oldest(self, image: MetadataImage) -> tuple[int, float] | None:
        """Return the unfenced broker with the oldest heartbeat, and the end of its session.

        A broker whose heartbeat waits for its answer has none.
        """
        ends = [
            (session.last_contact + self.timeout, broker_id)
            for broker_id, session in self._sessions.items()
            if broker_id in image.brokers and not image.brokers[broker_id].fenced and not session.unanswered
        ]
        if not ends:
            return None
        at, broker_id = min(ends)
        return broker_id, at

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """Return the metadata offset that all active brokers have applied; None without an active broker."""
        offsets = [
            self._sessions[broker.broker_id].metadata_offset
            for broker in image.brokers.values()
            if broker.active and broker.broker_id in self._sessions
        ]
        return min(offsets, default=None)

    def resume(self, now: float) -> None:
        """Extend every session: this process was stopped for a while, and could not receive heartbeats."""
        for session in self._sessions.values():
            session.last_contact = max(session.last_contact, now)
