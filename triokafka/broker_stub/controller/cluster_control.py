"""Brokers: registration, heartbeats and fencing.

Registrations are records; sessions (the time of each broker's last heartbeat) are soft state of this controller.
Pure: time is an argument, in seconds on the monotonic clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.controller import elections
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import NOBODY
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata.broker_registration import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_FENCE: Final = 1
_UNFENCE: Final = -1


@dataclass(slots=True)
class _Session:
    incarnation_id: uuid.UUID
    last_contact: float
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1


class ClusterControl:
    """Decides about brokers.

    Args:
        session_timeout: how long, in seconds, a broker that is not fenced may be silent.
        topic_config: returns the effective configuration of a topic in an image.
    """

    def __init__(self, session_timeout: float, topic_config: Callable[[MetadataImage, str], LogConfig]) -> None:
        self._cluster_id = ""
        self._session_timeout = session_timeout
        self._topic_config = topic_config
        self._sessions: dict[int, _Session] = {}

    def register(
        self, image: MetadataImage, registration: BrokerRegistration, *, now: float, next_offset: int
    ) -> Outcome[int]:
        """Register a broker, fenced; the response is its epoch, the offset of its registration.

        Registering the same process again keeps its epoch and whether it is fenced.

        Raises:
            InconsistentClusterIdError: the broker belongs to another cluster.
            DuplicateBrokerRegistrationError: another process with this id is alive.
            UnsupportedVersionError: the broker does not support the cluster's feature levels.
        """
        if registration.cluster_id != self._cluster_id:
            raise errors.InconsistentClusterIdError(
                f"broker {registration.broker_id} belongs to cluster {registration.cluster_id}, "
                f"this is {self._cluster_id}"
            )
        before = image.brokers.get(registration.broker_id)
        same = before is not None and before.incarnation_id == registration.incarnation_id
        if before is not None and not same and self._alive(before, now):
            raise errors.DuplicateBrokerRegistrationError(
                f"another process is registered as broker {registration.broker_id} and sent a heartbeat "
                f"less than {self._session_timeout} s ago"
            )
        for name, level in image.features.items():
            low, high = registration.features.get(name, (0, 0))
            if not low <= level <= high:
                raise errors.UnsupportedVersionError(
                    f"broker {registration.broker_id} supports {name} {low} to {high}, the cluster is at {level}"
                )
        epoch = before.broker_epoch if before is not None and same else next_offset
        self._sessions[registration.broker_id] = _Session(registration.incarnation_id, now)
        record = RegisterBrokerRecord(
            broker_id=registration.broker_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in registration.endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in registration.features.items()
            ],
            rack=registration.rack,
            fenced=before.fenced if before is not None and same else True,
            in_controlled_shutdown=before.in_controlled_shutdown if before is not None and same else False,
            log_dirs=list(registration.directories),
        )
        # The partitions of the earlier process get other leaders, or none until this one is unfenced. Either way their
        # leader epochs are new, since the ends of its logs may be lost.
        moved = [] if same else list(self._moves(image, registration.broker_id))
        return Outcome([record, *moved], epoch)

    def heartbeat(
        self, image: MetadataImage, beat: BrokerHeartbeat, *, now: float, committed_offset: int | None = None
    ) -> Outcome[HeartbeatReply]:
        """Process a heartbeat: extend the session, and fence, unfence or release the broker as it asks.

        A broker that has applied ``committed_offset`` (by default, all of ``image``) is caught up.

        Raises:
            BrokerIdNotRegisteredError: no broker with this id is registered.
            StaleBrokerEpochError: it is registered with another epoch: another process took its place.
        """
        broker = image.brokers.get(beat.broker_id)
        if broker is None:
            raise errors.BrokerIdNotRegisteredError(f"broker {beat.broker_id} is not registered")
        if broker.broker_epoch != beat.broker_epoch:
            raise errors.StaleBrokerEpochError(
                f"broker {beat.broker_id} has epoch {broker.broker_epoch}, not {beat.broker_epoch}"
            )
        session = self._sessions.setdefault(beat.broker_id, _Session(broker.incarnation_id, now))
        session.last_contact = now
        session.metadata_offset = beat.metadata_offset
        caught_up = beat.metadata_offset >= (image.offset if committed_offset is None else committed_offset)
        if broker.fenced:
            if beat.want_shut_down:
                return Outcome([], HeartbeatReply(caught_up, is_fenced=True, should_shut_down=True))
            if beat.want_fence or not caught_up:
                return Outcome([], HeartbeatReply(caught_up, is_fenced=True))
            return Outcome(self.unfence(image, broker), HeartbeatReply(caught_up, is_fenced=False))
        if beat.want_fence:
            return Outcome(
                self.fence(image, broker),
                HeartbeatReply(caught_up, is_fenced=True, should_shut_down=beat.want_shut_down),
            )
        if beat.want_shut_down:
            return self._shut_down(image, broker, session, caught_up)
        return Outcome([], HeartbeatReply(caught_up, is_fenced=False))

    def _shut_down(
        self, image: MetadataImage, broker: BrokerImage, session: _Session, caught_up: bool
    ) -> Outcome[HeartbeatReply]:
        """Move leaderships first; release the broker once every other broker has applied the change."""
        if not broker.in_controlled_shutdown:
            moved = self._moves_on_shutdown(image, broker.broker_id)
            records: list[Struct] = [
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
                ),
                *moved,
            ]
            session.controlled_shutdown_offset = image.offset + len(records)
            if moved:
                return Outcome(records, HeartbeatReply(caught_up, is_fenced=False))
            return Outcome(
                [*records, *self.fence(image, broker)],
                HeartbeatReply(caught_up, is_fenced=True, should_shut_down=True),
            )
        others = [
            self._sessions[other.broker_id].metadata_offset
            for other in image.brokers.values()
            if other.active and other.broker_id in self._sessions
        ]
        if self._moves_on_shutdown(image, broker.broker_id) or (
            others and min(others) < session.controlled_shutdown_offset
        ):
            return Outcome([], HeartbeatReply(caught_up, is_fenced=False))
        return Outcome(self.fence(image, broker), HeartbeatReply(caught_up, is_fenced=True, should_shut_down=True))

    def _moves_on_shutdown(self, image: MetadataImage, broker_id: int) -> list[Struct]:
        # This broker leads partitions without other replicas until it stops.
        def clean(topic: str) -> LogConfig:
            return self._topic_config(image, topic)._replace(unclean_leader_election_enable=False)

        changes = elections.broker_fenced(image, broker_id, clean)
        return [
            change
            for change in changes
            if len(image.topics_by_id[change.topic_id].partitions[change.partition_id].replicas) > 1
            and change.leader != NOBODY
        ]

    def fence(self, image: MetadataImage, broker: BrokerImage) -> list[Struct]:
        """Return the records that fence a broker, after those that move its leaderships."""
        return [*self._moves(image, broker.broker_id), _registration_change(broker, _FENCE)]

    def _moves(self, image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
        return elections.broker_fenced(image, broker_id, partial(self._topic_config, image))

    def unfence(self, image: MetadataImage, broker: BrokerImage) -> list[Struct]:
        """Return the records that unfence a broker and elect it for partitions that no other broker can lead."""
        changes = elections.broker_unfenced(image, broker.broker_id, partial(self._topic_config, image))
        return [_registration_change(broker, _UNFENCE), *changes]

    def unregister(self, image: MetadataImage, request: UnregisterBrokerRequest) -> Outcome[UnregisterBrokerResponse]:
        """Remove the registration of a broker that will not come back; other brokers lead its partitions.

        Raises:
            BrokerIdNotRegisteredError: no broker with this id is registered.
        """
        from triokafka.protocol.api.unregister_broker import UnregisterBrokerResponse

        broker = image.brokers.get(request.broker_id)
        if broker is None:
            raise errors.BrokerIdNotRegisteredError(f"Broker ID {request.broker_id} is not currently registered")
        self._sessions.pop(broker.broker_id, None)
        gone = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        return Outcome([*self._moves(image, broker.broker_id), gone], UnregisterBrokerResponse(error_message=None))

    def begin(self, image: MetadataImage, *, now: float, own_id: int, cluster_id: str) -> None:
        """Start as the active controller: give every other unfenced broker a new session.

        This node's own broker ended with its process, and registers again.
        """
        self._cluster_id = cluster_id
        self._sessions = {}
        for broker in image.brokers.values():
            if not broker.fenced and broker.broker_id != own_id:
                self._sessions.setdefault(broker.broker_id, _Session(broker.incarnation_id, now))

    def all_follow(self, offset: int) -> None:
        """Record that every broker has applied the metadata up to ``offset``, since they share this process."""
        for session in self._sessions.values():
            session.metadata_offset = max(session.metadata_offset, offset)

    def resume(self, now: float) -> None:
        """Extend every session: this process was stopped for a while, and could not receive heartbeats."""
        for session in self._sessions.values():
            session.last_contact = max(session.last_contact, now)

    def _alive(self, broker: BrokerImage, now: float) -> bool:
        session = self._sessions.get(broker.broker_id)
        if broker.fenced or session is None:
            return False
        return session.incarnation_id == broker.incarnation_id and session.last_contact + self._session_timeout >= now

    def oldest_session(self, image: MetadataImage) -> tuple[int, float] | None:
        """Return the unfenced broker with the oldest heartbeat, and the end of its session."""
        ends = [
            (session.last_contact + self._session_timeout, broker_id)
            for broker_id, session in self._sessions.items()
            if broker_id in image.brokers and not image.brokers[broker_id].fenced
        ]
        if not ends:
            return None
        at, broker_id = min(ends)
        return broker_id, at

    def fence_stale(self, image: MetadataImage, *, now: float) -> Outcome[int | None]:
        """Fence the broker whose session ended first, if any. One at a time: each call sees the effect of the last."""
        oldest = self.oldest_session(image)
        if oldest is None or oldest[1] >= now:
            return Outcome([], None)
        return Outcome(self.fence(image, image.brokers[oldest[0]]), oldest[0])


def _registration_change(broker: BrokerImage, fenced: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=fenced)
