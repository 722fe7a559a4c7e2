"""The request context: what an API handler knows besides the request itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triokafka.broker_stub.authorizer import CLUSTER_NAME
from triokafka.broker_stub.request.quotas import QuotaKind
from triokafka.errors import ThrottlingQuotaExceededError
from triokafka.protocol.frames import RequestHeader
from triokafka.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker
    from triokafka.broker_stub.network.handler_slots import Slot
    from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
    from triokafka.protocol.repeated_requests import KnownRequest
    from triokafka.world import World


@dataclass(slots=True)
class RequestContext:
    """What a handler knows besides the request itself.

    ``now`` is the broker's monotonic clock when work on the request began, in seconds, and ``received_at`` when it was
    here; ``listener`` the name of the listener that the client connected to; ``size`` the request's bytes, header
    included. A handler that finds a quota exceeded sets ``throttle_ms``: the answer will say so, and the connection is
    not read for as long. ``parked_seconds`` of its time were spent waiting; without ``counts_time`` all of it may have
    been. ``follower`` marks a fetch of another broker. ``items`` is how many partitions, groups or keys the answer
    tells of, where these may be very many: the handler counts them. ``let_go``, where it is given, may be called when
    nothing has a view of the request's frame any more: the connection then holds no memory for it while the request
    waits. ``known`` is there when the same was asked on the connection before, with other records.
    """

    header: RequestHeader
    broker: Broker
    principal: str
    listener: str
    peer: tuple[str, int]
    now: float
    slot: Slot | None = None
    size: int = 0
    throttle_ms: int = 0
    parked_seconds: float = 0.0
    counts_time: bool = True
    received_at: float = 0.0
    follower: bool = False
    items: int = 0
    let_go: Callable[[], None] | None = None
    known: KnownRequest | None = None

    @property
    def version(self) -> int:
        """Version of the request, and so of the response."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """What the client calls itself; empty when it does not say."""
        return self.header.client_id or ""

    @property
    def world(self) -> World:
        """The broker's door to the outside."""
        return self.broker.world

    @property
    def user(self) -> str:
        """The principal's name, as quotas know it."""
        return self.principal.partition(":")[2]

    def count_towards(self, kind: QuotaKind, amount: float) -> int:
        """Count towards a quota of the client; how many ms it must be silent, which the answer then says (KIP-219)."""
        broker = self.broker
        if not broker.quotas.limits(kind):
            return 0
        throttle_ms = broker.quotas.record(kind, self.user, self.client_id, amount, broker.world.now())
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return throttle_ms

    def charge_mutations(self, *, strict: bool) -> Callable[[int], None]:
        """What the controller is to call with the number of partitions that it is about to create or delete (KIP-599).

        It raises `ThrottlingQuotaExceededError` where the client's quota is used up and ``strict``, as it is in
        versions of a request whose answer knows that error.
        """

        def charge(partitions: int) -> None:
            quotas, now = self.broker.quotas, self.broker.world.now()
            allowed, throttle_ms = quotas.record_mutations(self.user, self.client_id, partitions, now, strict=strict)
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            if not allowed:
                raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")

        return charge

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it in group descriptions."""
        return f"/{self.peer[0]}"

    def denied(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may not do this; the answer for the item is then `authorizer.denial`'s error."""
        dispatcher = self.broker.dispatcher
        return not dispatcher.allows_all and not dispatcher.authorizer.allows(
            self.principal, self.peer[0], operation, resource_type, name
        )

    def denied_for_cluster(self, operation: AclOperation) -> bool:
        """Whether the client may not do this to the cluster as a whole."""
        return self.denied(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def cluster_operations(self) -> int:
        """What the client may do to the cluster, as responses carry it: nothing to see for who may not describe it."""
        if self.denied_for_cluster(AclOperation.DESCRIBE):
            return 0
        return self.allowed_operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def allowed_somewhere(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this to any resource of the type."""
        authorizer = self.broker.dispatcher.authorizer
        return authorizer.allows_somewhere(self.principal, self.peer[0], operation, resource_type)

    def allowed_operations(self, resource_type: ResourceType, name: str) -> int:
        """What the client may do to a resource, as the bit field that responses carry."""
        return self.broker.dispatcher.authorizer.allowed_operations(self.principal, self.peer[0], resource_type, name)

    def yield_slot(self) -> None:
        """Give the handler slot back: from here on the request waits for something other than work."""
        if self.slot is not None:
            self.slot.release()

    async def park(self, operation: DelayedOperation) -> None:
        """Wait until a delayed operation is complete, without holding a handler slot."""
        self.yield_slot()
        parked_at = self.world.now()
        await operation.wait()
        self.parked_seconds += self.world.now() - parked_at
