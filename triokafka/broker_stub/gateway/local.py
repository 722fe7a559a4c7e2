"""The gateway of a broker whose node also runs the active controller: it puts every change into the event queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.controller import (
    Controller,
    acl_control,
    client_quotas,
    elect_leaders,
    feature_updates,
    producer_ids,
    scram_control,
)
from triokafka.broker_stub.gateway.gateway_interface import DeniedResources
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.lifecycle_values import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.protocol.message import Request, Response

if TYPE_CHECKING:
    from triokafka.broker_stub.gateway.gateway_interface import ForwardedClient
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
    from triokafka.protocol.api.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
    from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

R = TypeVar("R", bound=Response)


class LocalControllerGateway:
    """A `ControllerGateway` to the controller of this process.

    Args:
        client: the client whose requests these are; None for the broker's own requests.
    """

    def __init__(self, controller: Controller, *, client: ForwardedClient | None = None) -> None:
        self._controller = controller
        self._client = client
        self._configuration = controller.state.configuration
        self._submit = controller.submit
        self._topic_config = controller.state.configuration.effective.topic_config_of
        self._world = controller.world

    def on_behalf_of(self, client: ForwardedClient) -> LocalControllerGateway:
        """Return a gateway that executes the requests of a client, which the caller has authorized."""
        return LocalControllerGateway(self._controller, client=client)

    async def send(self, request: Request[R]) -> R:
        """Execute a request."""
        response: R = await _OPERATIONS[type(request).__name__](self, request)
        return response

    def _version_of(self, request: Request[Any]) -> int:
        return request.versions.max if self._client is None else self._client.header.api_version

    @property
    def _requester(self) -> str:
        return ANONYMOUS if self._client is None else self._client.principal

    # Topics and partitions

    async def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: MutationCharge = no_charge,
    ) -> CreateTopicsResponse:
        """See `TopicControl.create_topics`."""
        control = self._controller.state.topics
        return await self._submit(
            "CreateTopics",
            lambda image: control.create_topics(image, request, hidden_configs=hidden_configs, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, version: int = 6, charge: MutationCharge = no_charge
    ) -> DeleteTopicsResponse:
        """See `TopicControl.delete_topics`."""
        control = self._controller.state.topics
        return await self._submit(
            "DeleteTopics",
            lambda image: control.delete_topics(image, request, version=version, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, charge: MutationCharge = no_charge
    ) -> CreatePartitionsResponse:
        """See `TopicControl.create_partitions`."""
        control = self._controller.state.topics
        return await self._submit(
            "CreatePartitions",
            lambda image: control.create_partitions(image, request, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def _elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """See `elect_leaders.elect_leaders`. Without any partition, the time limit is ignored."""
        return await self._submit(
            "ElectLeaders",
            lambda image: elect_leaders.elect_leaders(image, request, self._topic_config(image)),
            timeout_ms=None if request.topic_partitions == [] else request.timeout_ms,
        )

    async def _alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """See `reassignments.alter_reassignments`. Without any partition, the time limit is ignored."""
        from triokafka.broker_stub.controller.reassignments import alter_reassignments

        return await self._submit(
            "AlterPartitionReassignments",
            lambda image: alter_reassignments(image, request, self._topic_config(image)),
            timeout_ms=request.timeout_ms if request.topics else None,
        )

    async def _list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """See `reassignments.list_reassignments`. A time limit of 0 or less is ignored, as by Kafka's controller."""
        from triokafka.broker_stub.controller.reassignments import list_reassignments

        return await self._submit(
            "ListPartitionReassignments",
            lambda image: list_reassignments(image, request),
            timeout_ms=request.timeout_ms if request.timeout_ms > 0 else None,
        )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """See `alter_partition.alter_partition`."""
        from triokafka.broker_stub.controller.alter_partition import alter_partition

        return await self._submit(
            "AlterPartition", lambda image: alter_partition(image, request, self._topic_config(image))
        )

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """See `directory_assignment.assign_replicas_to_directories`."""
        from triokafka.broker_stub.controller.directory_assignment import assign_replicas_to_directories

        return await self._submit(
            "AssignReplicasToDirs",
            lambda image: assign_replicas_to_directories(image, request, self._topic_config(image)),
        )

    # Configuration

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> AlterConfigsResponse:
        """See `ConfigurationControl.alter_configs`."""
        control = self._configuration
        return await self._submit("AlterConfigs", lambda image: control.alter_configs(image, request, denied=denied))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: DeniedResources | None = None
    ) -> IncrementalAlterConfigsResponse:
        """See `ConfigurationControl.incremental_alter_configs`."""
        control = self._configuration
        return await self._submit(
            "IncrementalAlterConfigs",
            lambda image: control.incremental_alter_configs(image, request, denied=denied),
        )

    async def _alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """See `client_quotas.alter_client_quotas`."""
        return await self._submit("AlterClientQuotas", lambda image: client_quotas.alter_client_quotas(image, request))

    async def _create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        """See `acl_control.create_acls`."""
        new_id = self._world.uuid
        return await self._submit("CreateAcls", lambda image: acl_control.create_acls(image, request, new_id=new_id))

    async def _delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """See `acl_control.delete_acls`."""
        return await self._submit("DeleteAcls", lambda image: acl_control.delete_acls(image, request))

    async def _alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """See `scram_control.alter_user_scram_credentials`."""
        return await self._submit(
            "AlterUserScramCredentials", lambda image: scram_control.alter_user_scram_credentials(image, request)
        )

    async def _create_delegation_token(self, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
        """See `TokenControl.create`."""
        tokens, world = self._controller.state.tokens, self._world
        return await self._submit(
            "CreateDelegationToken",
            lambda image: tokens.create(
                image,
                request,
                requester=self._requester,
                version=self._version_of(request),
                now_ms=world.wall_ms(),
                new_id=world.uuid,
            ),
        )

    async def _renew_delegation_token(self, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
        """See `TokenControl.renew`."""
        tokens, world = self._controller.state.tokens, self._world
        return await self._submit(
            "RenewDelegationToken",
            lambda image: tokens.renew(image, request, requester=self._requester, now_ms=world.wall_ms()),
        )

    async def _expire_delegation_token(self, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
        """See `TokenControl.expire`."""
        tokens, world = self._controller.state.tokens, self._world
        return await self._submit(
            "ExpireDelegationToken",
            lambda image: tokens.expire(image, request, requester=self._requester, now_ms=world.wall_ms()),
        )

    # The cluster

    async def _update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """See `feature_updates.update_features`. As in Kafka, the time limit is ignored."""
        return await self._submit(
            "UpdateFeatures",
            lambda image: feature_updates.update_features(
                image,
                request,
                self._controller.metadata.kraft_version,
                version=self._version_of(request),
                min_insync_replicas=self._controller.config.text(features.MIN_INSYNC_REPLICAS) or "1",
                support=feature_updates.FeatureSupport(
                    self._controller.config.node_id, self._controller.metadata.raft.voters.ids
                ),
                upgrade_kraft_version=lambda level, dry_run: self._controller.metadata.raft.upgrade_kraft_version(
                    level, validate_only=dry_run
                ),
            ),
        )

    async def _unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """See `BrokerControl.unregister`."""
        control = self._controller.state.brokers
        return await self._submit("UnregisterBroker", lambda image: control.unregister(image, request))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """See `producer_ids.allocate_producer_ids`."""
        return await self._submit(
            "AllocateProducerIds",
            lambda image: producer_ids.allocate_producer_ids(image, broker_id, broker_epoch),
        )

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """See `BrokerControl.register`."""
        state = self._controller.state
        return await self._submit(
            "RegisterBroker",
            lambda image: state.brokers.register(
                image, registration, now=self._world.now(), next_offset=image.offset + 1
            ),
        )

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        """See `BrokerControl.heartbeat`."""
        state = self._controller.state
        broker = state.committed.brokers.get(beat.broker_id)
        is_stale = broker is None or broker.broker_epoch != beat.broker_epoch
        sessions = state.brokers.sessions
        with nullcontext() if broker is None or is_stale else sessions.heartbeat_waits(broker, self._world.now):
            return await self._submit(
                "BrokerHeartbeat",
                lambda image: state.brokers.heartbeat(image, beat, now=self._world.now(), next_offset=image.offset + 1),
            )

    async def _describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """See `RaftClient.describe_quorum`."""
        return self._controller.metadata.raft.describe_quorum(request, version=self._version_of(request))

    async def register_controller(self, registration: ControllerRegistration) -> None:
        """See `BrokerControl.register_controller`."""
        control = self._controller.state.brokers
        await self._submit("RegisterController", lambda image: control.register_controller(image, registration))

    # The quorum

    async def _add_raft_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        """See `RaftClient.add_voter`."""
        return await self._controller.metadata.raft.add_voter(request)

    async def _remove_raft_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        """See `RaftClient.remove_voter`."""
        return await self._controller.metadata.raft.remove_voter(request)


_OPERATIONS: Final[Mapping[str, Callable[[LocalControllerGateway, Any], Awaitable[Any]]]] = {
    "ElectLeadersRequest": LocalControllerGateway._elect_leaders,
    "AlterPartitionReassignmentsRequest": LocalControllerGateway._alter_partition_reassignments,
    "ListPartitionReassignmentsRequest": LocalControllerGateway._list_partition_reassignments,
    "AlterClientQuotasRequest": LocalControllerGateway._alter_client_quotas,
    "CreateAclsRequest": LocalControllerGateway._create_acls,
    "DeleteAclsRequest": LocalControllerGateway._delete_acls,
    "AlterUserScramCredentialsRequest": LocalControllerGateway._alter_user_scram_credentials,
    "CreateDelegationTokenRequest": LocalControllerGateway._create_delegation_token,
    "RenewDelegationTokenRequest": LocalControllerGateway._renew_delegation_token,
    "ExpireDelegationTokenRequest": LocalControllerGateway._expire_delegation_token,
    "UpdateFeaturesRequest": LocalControllerGateway._update_features,
    "UnregisterBrokerRequest": LocalControllerGateway._unregister_broker,
    "DescribeQuorumRequest": LocalControllerGateway._describe_quorum,
    "AddRaftVoterRequest": LocalControllerGateway._add_raft_voter,
    "RemoveRaftVoterRequest": LocalControllerGateway._remove_raft_voter,
}
