"""The request context: the metadata of a request, and the parts of the broker for its handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.auto_topic_creation import AutoTopicCreation
from triokafka.broker_stub.request.client_quotas import QuotaKind
from triokafka.broker_stub.request.handler_slots import Slot
from triokafka.broker_stub.request.services import BrokerServices, ControllerServices, Services
from triokafka.errors import IllegalStateError, ThrottlingQuotaExceededError
from triokafka.protocol.api import API_NAMES
from triokafka.protocol.frames import RequestHeader
from triokafka.protocol.repeated_requests import KnownRequest
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from triokafka.world import World

if TYPE_CHECKING:  # imported when the first group or transactional id is used: a broker starts without them
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator

T = TypeVar("T")


@dataclass(slots=True)
class RequestContext:
    """The metadata of a request, and the parts of the broker that its handler uses.

    ``now`` is the world's monotonic clock when work on the request began, in seconds; ``received_at`` is when the
    request arrived. ``listener`` is the name of the listener that the client connected to. ``size`` is the request's
    size in bytes, header included.

    A handler that finds a quota exceeded sets ``throttle_ms``: the response carries it, and the broker does not read
    from the connection for as long. ``parked_seconds`` is the time that the request waited. With ``counts_waits``, the
    dispatcher counts all waits of the handler; otherwise `park` and `without_slot` count theirs. ``follower`` marks a
    fetch of another broker. A handler that may answer for very many partitions, groups or keys counts them in
    ``items``.

    ``token_authenticated`` says that the client used a delegation token, and ``forwarded`` that the request came in an
    Envelope.

    ``let_go`` may be called once nothing has a view of the request's frame: the connection then holds no memory for it
    while the request waits. ``known`` is set when the connection has sent the same request before, with other records.
    """

    header: RequestHeader
    services: Services
    principal: str
    listener: str
    peer: tuple[str, int]
    now: float
    slot: Slot | None = None
    size: int = 0
    received_at: float = 0.0
    parked_seconds: float = 0.0
    counts_waits: bool = False
    token_authenticated: bool = False
    let_go: Callable[[], None] | None = None
    known: KnownRequest | None = None
    forwarded: bool = False
    throttle_ms: int = 0
    follower: bool = False
    items: int = 0

    @property
    def version(self) -> int:
        """Version of the request, and so of the response."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client id of the request; empty if null."""
        return self.header.client_id or ""

    # The parts of the broker

    @property
    def world(self) -> World:
        """The broker's access to time, network and storage."""
        return self.services.world

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        return self.services.node_id

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration with its dynamic changes."""
        return self.services.config.current

    @property
    def metadata(self) -> MetadataCache:
        """The broker's own view of the cluster, which may lag behind the controller's."""
        return self.services.metadata

    @property
    def broker(self) -> BrokerServices:
        """The parts of the broker that serves this listener.

        Raises:
            IllegalStateError: a controller serves it. The handlers of the broker's own APIs are not in its table.
        """
        services = self.services
        if not isinstance(services, BrokerServices):
            raise IllegalStateError(f"the listener {self.listener} belongs to a controller")
        return services

    @property
    def controller(self) -> ControllerServices:
        """The parts of the controller that serves this listener.

        Raises:
            IllegalStateError: a broker serves it. The handlers of the controller's own APIs are not in its table.
        """
        services = self.services
        if not isinstance(services, ControllerServices):
            raise IllegalStateError(f"the listener {self.listener} belongs to a broker")
        return services

    @property
    def is_on_controller(self) -> bool:
        """Whether a controller serves the listener."""
        return isinstance(self.services, ControllerServices)

    @property
    def replicas(self) -> ReplicaManager:
        """The partitions that this broker hosts."""
        return self.broker.replicas

    @property
    def logs(self) -> LogManager:
        """The logs in this broker's data directories."""
        return self.broker.logs

    @property
    def groups(self) -> GroupCoordinator:
        """The groups that this broker coordinates."""
        return self.broker.groups.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transactional ids that this broker coordinates."""
        return self.broker.transactions.coordinator

    @property
    def topic_creation(self) -> AutoTopicCreation:
        """Automatic creation of topics."""
        return self.broker.topic_creation

    @property
    def faults(self) -> Faults:
        """The faults that a test has armed."""
        return self.services.faults

    # Quotas

    @property
    def user(self) -> str:
        """The principal's name, as quotas know it."""
        return self.principal.partition(":")[2]

    def count_towards(self, kind: QuotaKind, amount: float) -> int:
        """Count towards a quota of the client; return the throttle time in ms for the response (KIP-219)."""
        services = self.services
        limited = services.quotas.limited
        if not limited or kind not in limited:
            return 0
        throttle_ms = services.quotas.record(kind, self.user, self.client_id, amount, services.world.now())
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return throttle_ms

    def charge_mutations(self, *, strict: bool) -> Callable[[int], None]:
        """Return the function that the controller calls with the number of partitions to create or delete (KIP-599).

        The function raises `ThrottlingQuotaExceededError` if the client's quota is exhausted and ``strict`` is true.
        ``strict`` is true in request versions whose response may contain that error.
        """

        def charge(partitions: int) -> None:
            quotas, now = self.services.quotas, self.services.world.now()
            allowed, throttle_ms = quotas.record_mutations(self.user, self.client_id, partitions, now, strict=strict)
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            if not allowed:
                raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")

        return charge

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it in group descriptions."""
        return f"/{self.peer[0]}"

    def denied(self, operation: AclOperation, resource_type: ResourceType, name: str, *, audit: bool = True) -> bool:
        """Whether the client lacks the permission. The item's error is then `authorizer.denial`.

        Without ``audit``, a denial is not logged: the client did not name the resource, or another permission may do.
        """
        services = self.services
        if services.allows_all:
            return False
        principal, host, authorizer = self.principal, self.peer[0], services.authorizer
        allowed = authorizer.allows(principal, host, operation, resource_type, name)
        if allowed or audit:
            services.audit.log(
                principal,
                host,
                operation,
                resource_type,
                name,
                allowed=allowed,
                request=API_NAMES[self.header.api_key],
                rule=lambda: authorizer.rule(principal, host, operation, resource_type, name),
            )
        return not allowed

    def denied_for_cluster(self, operation: AclOperation, *, audit: bool = True) -> bool:
        """Whether the client lacks the permission on the cluster; ``audit`` as in `denied`."""
        return self.denied(operation, ResourceType.CLUSTER, CLUSTER_NAME, audit=audit)

    def cluster_operations(self) -> int:
        """Return the client's permitted operations on the cluster as a bit field; 0 if it may not describe it."""
        if self.denied_for_cluster(AclOperation.DESCRIBE):
            return 0
        return self.allowed_operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def allowed_somewhere(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client has the permission on any resource of the type."""
        authorizer = self.services.authorizer
        return authorizer.allows_somewhere(self.principal, self.peer[0], operation, resource_type)

    def allowed_operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the client's permitted operations on a resource as a bit field."""
        return self.services.authorizer.allowed_operations(self.principal, self.peer[0], resource_type, name)

    def gateway_without_slot(self) -> ControllerGateway:
        """Release the handler slot; return the active controller, for a change on behalf of the client.

        The request waits for the controller, and the controller for its quorum. Without a majority of the controllers,
        changes would otherwise hold all slots until they time out.
        """
        self.yield_slot()
        return self.services.gateway.on_behalf_of(self)

    def yield_slot(self) -> None:
        """Release the handler slot before the request waits for data, replication or group members."""
        if self.slot is not None:
            self.slot.release()

    @asynccontextmanager
    async def without_slot(self) -> AsyncIterator[None]:
        """Release the handler slot for the block, in which the request waits for another broker; then wait for a slot.

        Brokers that held their slots while they wait for each other could all have none left.
        """
        self.yield_slot()
        parked_at = self.world.now()
        yield
        if self.slot is not None:
            await self.slot.resume()
        self._count_wait(parked_at)

    async def park(self, operation: DelayedOperation) -> None:
        """Wait until a delayed operation is complete, without holding a handler slot."""
        self.yield_slot()
        parked_at = self.world.now()
        await operation.wait()
        self._count_wait(parked_at)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread, whose time counts as work on the request."""
        began_at = self.world.now()
        result = await self.world.run_in_thread(function, *args)
        if self.counts_waits:
            self.parked_seconds -= self.world.now() - began_at
        return result

    def _count_wait(self, since: float) -> None:
        if not self.counts_waits:
            self.parked_seconds += self.world.now() - since
