"""Brokers: registration, heartbeats, fencing, controlled shutdown, log directories; and registration of controllers.

Pure: a method takes the image, the request and the time, and returns records and a response. Only the sessions are soft
state (`BrokerSessions`): times of heartbeats and reported offsets, which are never in the log.

A registered broker is fenced, active, or in controlled shutdown. A fenced broker leads nothing, is in no in-sync set
(except as the last member), and gets no leadership until it has applied the metadata up to its registration.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.controller import broker_failover, controlled_shutdown
from triokafka.broker_stub.controller.broker_sessions import BrokerSession, BrokerSessions
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import TopicConfig
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage, is_reserved_directory
from triokafka.broker_stub.metadata.lifecycle_values import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from triokafka.broker_stub.metadata.snapshots import registration_record
from triokafka.protocol.message import Struct
from triokafka.protocol.stored import cluster_metadata as stored

if TYPE_CHECKING:
    from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_FENCE: Final = 1
_UNFENCE: Final = -1


class BrokerControl:
    """Decides about brokers.

    Args:
        session_timeout: how long, in seconds, a broker that is not fenced may be silent.
        topic_config: returns the effective configuration of a topic in an image.
    """

    def __init__(self, session_timeout: float, topic_config: Callable[[MetadataImage, str], LogConfig]) -> None:
        self._cluster_id = ""
        self._topic_config = topic_config
        self.sessions = BrokerSessions(session_timeout)

    # Registration

    def register(
        self, image: MetadataImage, registration: BrokerRegistration, *, now: float, next_offset: int
    ) -> Outcome[int]:
        """Register a broker, fenced; the response is its epoch, the offset of its registration.

        Registering the same process again keeps its epoch and whether it is fenced. A new process takes the place of
        the former one: the partitions of that one get other leaders. If it ended without a clean shutdown, its replicas
        are not eligible leaders either (KIP-966).

        Raises:
            InconsistentClusterIdError: the broker belongs to another cluster.
            DuplicateBrokerRegistrationError: another process with this id is alive.
            InvalidRegistrationError: the log directories are invalid, or another broker's; the features are missing.
            UnsupportedVersionError: the broker does not support the cluster's feature levels.
        """
        if registration.cluster_id != self._cluster_id:
            raise errors.InconsistentClusterIdError(
                f"broker {registration.broker_id} belongs to cluster {registration.cluster_id}, "
                f"not to this one, {self._cluster_id}"
            )
        before = image.brokers.get(registration.broker_id)
        same = before is not None and before.incarnation_id == registration.incarnation_id
        leaves = before is not None and before.in_controlled_shutdown  # it has handed over its leaderships
        if before is not None and not same and not leaves and self.sessions.alive(before, now):
            raise errors.DuplicateBrokerRegistrationError(
                f"another process is registered as broker {registration.broker_id} and sent a heartbeat "
                f"less than {self.sessions.timeout} s ago"
            )
        _check_directories(image, registration)
        _check_features(image, registration)
        self.sessions.start(registration.broker_id, registration.incarnation_id, now)
        registered = BrokerImage(
            registration.broker_id,
            before.broker_epoch if before is not None and same else next_offset,
            registration.incarnation_id,
            registration.endpoints,
            registration.features,
            registration.rack,
            fenced=before.fenced if before is not None and same else True,
            in_controlled_shutdown=before.in_controlled_shutdown if before is not None and same else False,
            directories=registration.directories if features.assigns_directories(image) else (),
        )
        moved = [] if same else list(self._moves_of_former(image, registration, before))
        return Outcome([*moved, registration_record(registered)], registered.broker_epoch)

    def _moves_of_former(
        self, image: MetadataImage, registration: BrokerRegistration, former: BrokerImage | None
    ) -> Iterator[stored.PartitionChangeRecord]:
        """Yield the changes after the end of the former process of a broker.

        The partitions get other leaders, or none until the new process is unfenced. Either way their leader epochs are
        new.
        """
        clean = former is not None and registration.previous_broker_epoch == former.broker_epoch
        if features.has_eligible_leader_replicas(image) and not clean:
            return broker_failover.broker_ended_unclean(image, registration.broker_id, self._config_of(image))
        return self._moves(image, registration.broker_id)

    def register_controller(self, image: MetadataImage, registration: ControllerRegistration) -> Outcome[None]:
        """Register a controller with its listeners and features (KIP-919).

        Raises:
            UnsupportedVersionError: ``metadata.version`` is below 3.7.
        """
        if not features.registers_controllers(image):
            raise errors.UnsupportedVersionError(
                "The current MetadataVersion is too old to support controller registrations."
            )
        record = stored.RegisterControllerRecord(
            controller_id=registration.controller_id,
            incarnation_id=registration.incarnation_id,
            zk_migration_ready=False,
            end_points=[
                stored.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in registration.endpoints
            ],
            features=[
                stored.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in registration.features.items()
            ],
        )
        return Outcome([] if image.controllers.get(record.controller_id) == record else [record], None)

    def unregister(self, image: MetadataImage, request: UnregisterBrokerRequest) -> Outcome[UnregisterBrokerResponse]:
        """Remove the registration of a broker that will not come back; other brokers lead its partitions.

        Raises:
            BrokerIdNotRegisteredError: no broker with this id is registered.
        """
        from triokafka.protocol.api.unregister_broker import UnregisterBrokerResponse

        broker = image.brokers.get(request.broker_id)
        if broker is None:
            raise errors.BrokerIdNotRegisteredError(f"Broker ID {request.broker_id} is not currently registered")
        self.sessions.remove(broker.broker_id)
        gone = stored.UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        return Outcome([*self._moves(image, broker.broker_id), gone], UnregisterBrokerResponse(error_message=None))

    # Heartbeats

    def heartbeat(
        self, image: MetadataImage, beat: BrokerHeartbeat, *, now: float, next_offset: int | None = None
    ) -> Outcome[HeartbeatReply]:
        """Process a heartbeat: extend the session, and fence, unfence or release the broker as it asks.

        A broker that has applied its own registration is caught up. ``next_offset`` is that of the next record, by
        default the one after ``image``.

        Raises:
            BrokerIdNotRegisteredError: no broker with this id is registered.
            StaleBrokerEpochError: it is registered with another epoch: another process took its place.
        """
        broker = check_broker_epoch(image, beat.broker_id, beat.broker_epoch)
        session = self.sessions.touch(broker, beat.metadata_offset, now)
        before = [*self._lost_directories(image, broker, beat.offline_directories)]
        cordoned = beat.cordoned_directories
        if (
            cordoned is not None
            and features.cordons_directories(image)
            and set(cordoned) != set(broker.cordoned_directories or ())
        ):
            before.append(
                stored.BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=list(cordoned)
                )
            )
        next_offset = (image.offset + 1 if next_offset is None else next_offset) + len(before)
        if before:
            image = _after(image, before)
            broker = image.brokers[broker.broker_id]
        caught_up = beat.metadata_offset >= broker.broker_epoch
        after, reply = self._next_state(image, broker, session, beat, caught_up, next_offset)
        return Outcome([*before, *after], reply)

    def _next_state(
        self,
        image: MetadataImage,
        broker: BrokerImage,
        session: BrokerSession,
        beat: BrokerHeartbeat,
        caught_up: bool,
        next_offset: int,
    ) -> tuple[Sequence[Struct], HeartbeatReply]:
        if broker.fenced:
            session.controlled_shutdown_offset = -1
            if beat.want_shut_down:
                return [], HeartbeatReply(caught_up, is_fenced=True, should_shut_down=True)
            if beat.want_fence or not caught_up:
                return [], HeartbeatReply(caught_up, is_fenced=True)
            return self.unfence(image, broker), HeartbeatReply(caught_up, is_fenced=False)
        if beat.want_fence:
            reply = HeartbeatReply(caught_up, is_fenced=True, should_shut_down=beat.want_shut_down)
            return self.fence(image, broker), reply
        if beat.want_shut_down or broker.in_controlled_shutdown:
            moved = controlled_shutdown.leader_moves(image, broker.broker_id, self._config_of(image))
            lowest = self.sessions.lowest_active_offset(image)
            records = controlled_shutdown.records_until_stopped(broker, session, moved, lowest, next_offset)
            if records is not None:
                return records, HeartbeatReply(caught_up, is_fenced=False)
            reply = HeartbeatReply(caught_up, is_fenced=True, should_shut_down=True)
            return self.fence(image, broker), reply
        return [], HeartbeatReply(caught_up, is_fenced=False)

    def _lost_directories(
        self, image: MetadataImage, broker: BrokerImage, offline: Iterable[uuid.UUID]
    ) -> Iterator[Struct]:
        """Yield the records for log directories that have failed since the last heartbeat (KIP-858).

        The replicas in them leave the in-sync sets, and other brokers lead their partitions.
        """
        lost = [directory for directory in dict.fromkeys(offline) if directory in broker.directories]
        if not lost or not features.assigns_directories(image):
            return
        for directory in lost:
            yield from broker_failover.directory_lost(image, broker.broker_id, directory, self._config_of(image))
        yield stored.BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            log_dirs=[directory for directory in broker.directories if directory not in lost],
        )

    # Fencing

    def fence(self, image: MetadataImage, broker: BrokerImage) -> list[Struct]:
        """Return the records that fence a broker, after those that move its leaderships."""
        return [*self._moves(image, broker.broker_id), _registration_change(broker, _FENCE)]

    def unfence(self, image: MetadataImage, broker: BrokerImage) -> list[Struct]:
        """Return the records that unfence a broker and elect it for partitions that no other broker can lead."""
        changes = broker_failover.broker_unfenced(image, broker.broker_id, self._config_of(image))
        return [_registration_change(broker, _UNFENCE), *changes]

    def _moves(self, image: MetadataImage, broker_id: int) -> Iterator[stored.PartitionChangeRecord]:
        return broker_failover.broker_fenced(image, broker_id, self._config_of(image))

    def _config_of(self, image: MetadataImage) -> TopicConfig:
        return partial(self._topic_config, image)

    # Sessions

    def begin(
        self,
        image: MetadataImage,
        *,
        now: float,
        cluster_id: str,
        own_id: int | None = None,
        silent: tuple[int, float] | None = None,
    ) -> None:
        """Start as the active controller: every unfenced broker gets a new session.

        ``own_id`` is this node, if its process has just started: its broker ended with the process before, and may
        register again at once. ``silent`` is the node that led the quorum before, and the seconds since this node
        heard from it: its broker, if it has both roles, was as silent.
        """
        self._cluster_id = cluster_id
        self.sessions.begin(image, now=now, ended=own_id, silent=silent)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Return the registration of a broker; reject one with another epoch: another process replaced it.

    Raises:
        BrokerIdNotRegisteredError: no broker has this id.
        StaleBrokerEpochError: the broker is registered with another epoch.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise errors.BrokerIdNotRegisteredError(f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise errors.StaleBrokerEpochError(f"broker {broker_id} has epoch {broker.broker_epoch}, not {broker_epoch}")
    return broker


def _check_directories(image: MetadataImage, registration: BrokerRegistration) -> None:
    if not features.assigns_directories(image):
        return
    directories = registration.directories
    if not directories:
        raise errors.InvalidRegistrationError("No directories specified in request")
    if any(is_reserved_directory(directory) for directory in directories):
        raise errors.InvalidRegistrationError("Reserved directory ID in request")
    if len(set(directories)) < len(directories):
        raise errors.InvalidRegistrationError("Duplicate directory ID in request")
    for broker in image.brokers.values():
        shared = set(directories) & set(broker.directories)
        if shared and broker.broker_id != registration.broker_id:
            raise errors.InvalidRegistrationError(
                f"Broker {broker.broker_id} is already registered with directory {min(shared)}"
            )


def _check_features(image: MetadataImage, registration: BrokerRegistration) -> None:
    supported = registration.features
    if features.METADATA_VERSION not in supported:
        raise errors.InvalidRegistrationError("Request features do not contain 'metadata.version'")
    for name in (*supported, *(name for name in image.features if name not in supported)):
        level = image.features.get(name, 0)
        if name == features.METADATA_VERSION:
            level = features.metadata_version(image.features)
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            raise errors.UnsupportedVersionError(
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive."
            )


def _after(image: MetadataImage, records: Sequence[Struct]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.image(image.offset + len(records), image.epoch)


def _registration_change(broker: BrokerImage, fenced: int) -> stored.BrokerRegistrationChangeRecord:
    return stored.BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=fenced
    )
