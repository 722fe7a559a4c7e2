"""The heartbeat sessions of brokers at the active controller. Soft state: a new controller begins with new sessions.

A broker whose heartbeat waits for an answer is not silent: the controller may be busy with changes before it, for
longer than a session. Its session goes on from the answer.

Pure. Times are seconds on the world's monotonic clock.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage


@dataclass(slots=True)
class BrokerSession:
    """The session of one broker's process: its last heartbeat, and the metadata that it has applied.

    ``controlled_shutdown_offset`` is the offset that all active brokers must have applied before it may stop; -1 while
    it does not want to. ``ended`` says that its process is known to have ended, although its session has not.
    """

    incarnation_id: uuid.UUID
    last_contact: float
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1
    ended: bool = False


class BrokerSessions:
    """The sessions of all brokers.

    Args:
        timeout: how long, in seconds, a broker that is not fenced may be silent.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._sessions: dict[int, BrokerSession] = {}
        self._unanswered: Counter[int] = Counter()

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
    def heartbeat_waits(self, broker: BrokerImage, now: Callable[[], float]) -> Iterator[None]:
        """Keep the session of a broker during the block, in which its heartbeat waits for the answer.

        An exception is an answer that does not extend the session.
        """
        broker_id = broker.broker_id
        self._unanswered[broker_id] += 1
        try:
            yield
            session = self._sessions.get(broker_id)
            if session is not None and session.incarnation_id == broker.incarnation_id:
                session.last_contact = max(session.last_contact, now())
        finally:
            self._unanswered[broker_id] -= 1
            if not self._unanswered[broker_id]:
                del self._unanswered[broker_id]

    def remove(self, broker_id: int) -> None:
        """Forget a broker that was unregistered."""
        self._sessions.pop(broker_id, None)

    def alive(self, broker: BrokerImage, now: float) -> bool:
        """Whether the registered process of a broker has a valid session. Fenced brokers have none."""
        session = self._sessions.get(broker.broker_id)
        if broker.fenced or session is None or session.ended:
            return False
        return session.incarnation_id == broker.incarnation_id and session.last_contact + self.timeout >= now

    def last_contacts(self) -> dict[int, float]:
        """Return the time of the last heartbeat of each broker, for metrics."""
        return {broker_id: session.last_contact for broker_id, session in self._sessions.items()}

    def oldest(self, image: MetadataImage) -> tuple[int, float] | None:
        """Return the unfenced broker with the oldest heartbeat, and the end of its session.

        Leaves out brokers whose heartbeats wait for an answer.
        """
        ends = [
            (session.last_contact + self.timeout, broker_id)
            for broker_id, session in self._sessions.items()
            if broker_id in image.brokers and not image.brokers[broker_id].fenced and broker_id not in self._unanswered
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
