"""The gateway of a node with both roles: to its own controller while that one is active, else to the active one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.gateway.controller_gateway import ControllerGateway, DeniedResources, ForwardedClient
from triokafka.broker_stub.metadata.broker_registration import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.errors import NotControllerError

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import TypeVar

    from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from triokafka.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from triokafka.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from triokafka.protocol.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from triokafka.protocol.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    from triokafka.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
    from triokafka.protocol.api.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from triokafka.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from triokafka.protocol.api.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from triokafka.protocol.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
    from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

    T = TypeVar("T")


class SwitchingControllerGateway:
    """A `ControllerGateway` that uses the node's own controller while it is active.

    An operation that the own controller loses with its leadership is repeated at the next active controller, as after a
    lost connection: the first attempt may have been executed.

    Args:
        local: the node's own controller.
        remote: the active controller on another node.
        is_active: whether the node's own controller is active.
    """

    def __init__(self, local: ControllerGateway, remote: ControllerGateway, *, is_active: Callable[[], bool]) -> None:
        self._local = local
        self._remote = remote
        self._is_active = is_active

    def on_behalf_of(self, client: ForwardedClient) -> SwitchingControllerGateway:
        """Return a gateway whose changes happen in the name of a client."""
        return SwitchingControllerGateway(
            self._local.on_behalf_of(client), self._remote.on_behalf_of(client), is_active=self._is_active
        )

    async def _call(self, operation: Callable[[ControllerGateway], Awaitable[T]]) -> T:
        if self._is_active():
            try:
                return await operation(self._local)
            except NotControllerError:
                pass
        return await operation(self._remote)

    async def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: MutationCharge = no_charge,
    ) -> CreateTopicsResponse:
        """Create topics."""
        return await self._call(lambda to: to.create_topics(request, hidden_configs=hidden_configs, charge=charge))

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, version: int = 6, charge: MutationCharge = no_charge
    ) -> DeleteTopicsResponse:
        """Delete topics."""
        return await self._call(lambda to: to.delete_topics(request, version=version, charge=charge))

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, charge: MutationCharge = no_charge
    ) -> CreatePartitionsResponse:
        """Add partitions to topics."""
        return await self._call(lambda to: to.create_partitions(request, charge=charge))

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect leaders of partitions."""
        return await self._call(lambda to: to.elect_leaders(request))

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Begin and cancel reassignments."""
        return await self._call(lambda to: to.alter_partition_reassignments(request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync sets."""
        return await self._call(lambda to: to.alter_partition(request))

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> AlterConfigsResponse:
        """Replace the whole configuration of resources."""
        return await self._call(lambda to: to.alter_configs(request, denied=denied))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> IncrementalAlterConfigsResponse:
        """Change single configuration keys of resources."""
        return await self._call(lambda to: to.incremental_alter_configs(request, denied=denied))

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """Set and remove client quotas."""
        return await self._call(lambda to: to.alter_client_quotas(request))

    async def create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        """Add ACLs."""
        return await self._call(lambda to: to.create_acls(request))

    async def delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove ACLs."""
        return await self._call(lambda to: to.delete_acls(request))

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Set and remove SCRAM credentials."""
        return await self._call(lambda to: to.alter_user_scram_credentials(request))

    async def create_delegation_token(
        self, request: CreateDelegationTokenRequest, *, requester: str, version: int = 3
    ) -> CreateDelegationTokenResponse:
        """Create a delegation token."""
        return await self._call(lambda to: to.create_delegation_token(request, requester=requester, version=version))

    async def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, *, requester: str
    ) -> RenewDelegationTokenResponse:
        """Let a delegation token expire later."""
        return await self._call(lambda to: to.renew_delegation_token(request, requester=requester))

    async def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, *, requester: str
    ) -> ExpireDelegationTokenResponse:
        """Change when a delegation token expires, or remove it."""
        return await self._call(lambda to: to.expire_delegation_token(request, requester=requester))

    async def update_features(self, request: UpdateFeaturesRequest, *, version: int = 2) -> UpdateFeaturesResponse:
        """Change feature levels."""
        return await self._call(lambda to: to.update_features(request, version=version))

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """Remove the registration of a broker."""
        return await self._call(lambda to: to.unregister_broker(request))

    async def describe_quorum(self, request: DescribeQuorumRequest, *, version: int = 2) -> DescribeQuorumResponse:
        """Describe the quorum of the metadata log."""
        return await self._call(lambda to: to.describe_quorum(request, version=version))

    async def add_raft_voter(self, request: AddRaftVoterRequest, *, version: int = 1) -> AddRaftVoterResponse:
        """Add a voter to the quorum."""
        return await self._call(lambda to: to.add_raft_voter(request, version=version))

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest, *, version: int = 0) -> RemoveRaftVoterResponse:
        """Remove a voter from the quorum."""
        return await self._call(lambda to: to.remove_raft_voter(request, version=version))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """Allocate the next block of producer ids to the broker."""
        return await self._call(lambda to: to.allocate_producer_ids(broker_id, broker_epoch))

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """Register the broker, fenced; return its broker epoch."""
        return await self._call(lambda to: to.register_broker(registration))

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        """Send the broker's heartbeat."""
        return await self._call(lambda to: to.broker_heartbeat(beat))

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Report the log directories of replicas."""
        return await self._call(lambda to: to.assign_replicas_to_dirs(request))

    async def register_controller(self, registration: ControllerRegistration) -> None:
        """Register a controller."""
        await self._call(lambda to: to.register_controller(registration))
