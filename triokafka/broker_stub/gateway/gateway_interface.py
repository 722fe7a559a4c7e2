"""`ControllerGateway`: all requests of a broker to the active controller.

API handlers, topic creation, producer ids and the broker's lifecycle use it, and do not import the controller. To read
metadata, a broker uses its own `MetadataCache`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.metadata.lifecycle_values import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.errors import NotControllerError
from triokafka.protocol.frames import RequestHeader
from triokafka.protocol.message import Request, Response
from triokafka.world import World

if TYPE_CHECKING:  # messages are imported when a handler first needs them: a broker starts without any of them
    from triokafka.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from triokafka.protocol.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

R = TypeVar("R", bound=Response)

DeniedResources = Mapping[tuple[int, str], ItemError]
"""Configuration resources (type, name) that the client may not change, with the error to answer for each."""


class NodeStopsError(NotControllerError):
    """This node stops: no later attempt of it reaches the controller."""


class ForwardedClient(Protocol):
    """The client of a request that a broker may have to forward: a `RequestContext`."""

    header: RequestHeader
    """The header of the client's request."""
    principal: str
    """The client's principal."""
    token_authenticated: bool
    """Whether the client used a delegation token (KIP-48)."""
    peer: tuple[str, int]
    """The client's address."""
    size: int
    """The size of the client's request in bytes."""

    @property
    def world(self) -> World:
        """The world that the broker runs in."""


class ControllerGateway(Protocol):
    """Changes the cluster, and describes its quorum.

    Every method waits until its change is committed and published on this node. If cancelled, the change may still
    happen.

    Raises, in every method:
        NotControllerError: the controller has stopped or lost its leadership; the change may have been lost. Retry.
        KafkaStorageError: the metadata log cannot be written; nothing has changed. RequestTimedOutError: the request's
        ``timeout_ms`` ended before the controller began; nothing has changed.
    """

    def on_behalf_of(self, client: ForwardedClient) -> ControllerGateway:
        """Return a gateway whose changes happen in the name of a client."""

    async def send(self, request: Request[R]) -> R:
        """Let the controller answer a request, in the version of the client's request or else in the newest.

        It answers ElectLeaders (KIP-460), AlterPartitionReassignments and ListPartitionReassignments (KIP-455),
        AlterClientQuotas (KIP-546), CreateAcls and DeleteAcls, AlterUserScramCredentials (KIP-554),
        CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken (KIP-48), UpdateFeatures (KIP-584),
        UnregisterBroker, DescribeQuorum (KIP-595), AddRaftVoter and RemoveRaftVoter (KIP-853). Each of several items
        in a request succeeds or fails independently.
        """

    async def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: MutationCharge = no_charge,
    ) -> CreateTopicsResponse:
        """Create topics. The response omits the configuration of the topics in ``hidden_configs``."""

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, version: int = 6, charge: MutationCharge = no_charge
    ) -> DeleteTopicsResponse:
        """Delete topics."""

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, charge: MutationCharge = no_charge
    ) -> CreatePartitionsResponse:
        """Add partitions to topics."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync sets, on behalf of the leaders of the partitions (KIP-497)."""

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> AlterConfigsResponse:
        """Replace the whole configuration of resources."""

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> IncrementalAlterConfigsResponse:
        """Change single configuration keys of resources (KIP-339)."""

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Allocate the next block of producer ids to a broker.

        Raises:
            StaleBrokerEpochError: the broker is not registered with this epoch.
        """

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """Register a broker, fenced; return its broker epoch."""

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        """Send a broker's heartbeat."""

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Report the log directories of a broker's replicas; each replica succeeds or fails independently.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: the broker is not registered with this epoch.
        """

    async def register_controller(self, registration: ControllerRegistration) -> None:
        """Register a controller.

        Raises:
            UnsupportedVersionError: ``metadata.version`` is below 3.7.
        """
