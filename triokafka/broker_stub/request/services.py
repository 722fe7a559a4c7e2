"""The parts of a broker, and of a controller, that API handlers use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from triokafka.broker_stub.authorization_audit import AuthorizationAudit
from triokafka.broker_stub.authorizer import AllowAll, Authorizer
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.current_config import CurrentConfig
from triokafka.broker_stub.coordinators.coordinator_entry import CoordinatorEntry
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.coordinators.transaction_verifier import TransactionVerifier
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.prevalidation import PrevalidationSlots
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.producer_ids import ProducerIds
from triokafka.broker_stub.replica.read_result import ReadOutcome
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.auto_topic_creation import AutoTopicCreation
from triokafka.broker_stub.request.client_quotas import ClientQuotas
from triokafka.broker_stub.request.handler_slots import Slot
from triokafka.broker_stub.telemetry.client_telemetry import ClientTelemetry, TelemetryLimits
from triokafka.world import World

if TYPE_CHECKING:  # imported when first used: a broker starts without them
    from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers
    from triokafka.broker_stub.raft.raft_client import RaftClient
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache
    from triokafka.protocol.api.envelope import EnvelopeRequest, EnvelopeResponse


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts that the handlers of every listener use, on a broker and on a controller.

    ``cluster_id`` is a function: the cluster's id is known once the metadata log was read. ``advertised`` has the
    versions that ApiVersions reports, by API key. ``allows_all`` is True without access control, which makes
    `RequestContext.denied` fast. ``now`` is the world's `World.loop_clock`.
    """

    node_id: int
    world: World
    config: CurrentConfig
    cluster_id: Callable[[], str]
    metadata: MetadataCache
    configuration: EffectiveConfiguration
    gateway: ControllerGateway
    quotas: ClientQuotas
    authorizer: Authorizer
    faults: Faults
    advertised: Mapping[int, range]
    now: Callable[[], float] = field(init=False)
    audit: AuthorizationAudit = field(init=False)
    allows_all: bool = field(init=False)
    telemetry: ClientTelemetry = field(init=False)

    def __post_init__(self) -> None:
        self.now = self.world.loop_clock()
        self.allows_all = isinstance(self.authorizer, AllowAll)
        self.audit = AuthorizationAudit(self.world.now)
        config = self.config.current
        self.telemetry = ClientTelemetry(
            TelemetryLimits(
                clients=config.telemetry_max_clients,
                series=config.telemetry_max_series_per_client,
                bytes=config.telemetry_store_max_bytes,
            )
        )


@dataclass(slots=True, kw_only=True)
class BrokerServices(Services):
    """The parts that only the handlers of a broker's listeners use.

    ``fetch_sessions`` and ``partition_markers`` are functions: they are imported with the first request that needs
    them. ``check_stores`` checks that the listeners could use the key stores and trust stores of a configuration; None
    without TLS. ``telemetry_reader`` is held while a thread reads a push of a client.
    """

    replicas: ReplicaManager
    logs: LogManager
    prevalidation_slots: PrevalidationSlots
    fetch_sessions: Callable[[], FetchSessionCache[ReadOutcome]]
    groups: CoordinatorEntry[GroupCoordinator]
    transactions: CoordinatorEntry[TransactionCoordinator]
    transaction_verifier: TransactionVerifier
    partition_markers: Callable[[], PartitionMarkers]
    coordinators: CoordinatorRegistry
    producer_ids: ProducerIds
    topic_creation: AutoTopicCreation
    check_stores: Callable[[BrokerConfig], None] | None = None
    telemetry_reader: trio.Lock = field(init=False, default_factory=trio.Lock)


class EnvelopeArrival(Protocol):
    """How an Envelope arrived: a `RequestContext`. The request inside is answered in the same handler slot."""

    @property
    def listener(self) -> str:
        """The name of the listener."""
        ...

    @property
    def now(self) -> float:
        """The time, in seconds of the monotonic clock, at which the handler began."""
        ...

    @property
    def received_at(self) -> float:
        """The time at which the request was complete."""
        ...

    @property
    def slot(self) -> Slot | None:
        """The handler slot that the request holds."""
        ...


@dataclass(slots=True, kw_only=True)
class ControllerServices(Services):
    """The parts that only the handlers of a controller's listeners use.

    ``quorum`` returns the node's client of the metadata quorum, which exists once the node has opened its metadata log.
    ``answer_envelope`` answers the requests that brokers forward.
    """

    quorum: Callable[[], RaftClient]
    answer_envelope: Callable[[EnvelopeRequest, EnvelopeArrival], Awaitable[EnvelopeResponse]]
