"""What can be asked of the controller: each operation is a pure function of the image, handed to the event queue.

The work is done by those who decide (``replication``, ``configuration``, ``cluster``, ``elections``, …), the commit by
``event_queue``. `Operations` is the part of `Controller` that others call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import elections, feature_updates
from triokafka.broker_stub.controller.configuration import ConfigurationControl
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.hand_over import hand_over
from triokafka.broker_stub.controller.outcome import Charge, Outcome, free_of_charge
from triokafka.broker_stub.controller.partition_change import TopicConfig
from triokafka.broker_stub.controller.state import ControllerState
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.broker_registration import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.metadata.producer_id_block import ProducerIdBlock
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from triokafka.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from triokafka.protocol.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from triokafka.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResult
    from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from triokafka.protocol.api.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

Denials = Mapping[tuple[int, str], ItemError]


class Operations:
    """Every operation on the cluster.

    Every awaited method waits until its change is committed and published; when it is cancelled, the change may still
    happen. Each raises `KafkaStorageError` when the metadata log cannot be written (nothing has changed then),
    `RequestTimedOutError` when the request's time was over before its turn, and `NotControllerError` once the
    controller is closed.
    """

    def __init__(self, world: World, config: BrokerConfig) -> None:
        self._world = world
        self._config = config
        self._state: ControllerState | None = None
        self._queue: EventQueue | None = None
        self._kraft_version = 0

    def _started(self) -> ControllerState:
        if self._state is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._state

    def _running(self) -> EventQueue:
        if self._queue is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._queue

    def _topic_config(self, image: MetadataImage) -> TopicConfig:
        return partial(self._started().configuration.topic_config, image)

    # Topics and partitions

    async def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        hidden_configs: frozenset[str] = frozenset(),
        charge: Charge = free_of_charge,
    ) -> CreateTopicsResponse:
        """Create topics; see `ReplicationControl.create_topics`."""
        control = self._started().replication
        return await self._running().submit(
            "CreateTopics",
            lambda image: control.create_topics(image, request, hidden_configs=hidden_configs, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, version: int = 6, charge: Charge = free_of_charge
    ) -> DeleteTopicsResponse:
        """Delete topics; see `ReplicationControl.delete_topics`."""
        control = self._started().replication
        return await self._running().submit(
            "DeleteTopics",
            lambda image: control.delete_topics(image, request, version=version, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, charge: Charge = free_of_charge
    ) -> CreatePartitionsResponse:
        """Add partitions; see `ReplicationControl.create_partitions`."""
        control = self._started().replication
        return await self._running().submit(
            "CreatePartitions",
            lambda image: control.create_partitions(image, request, charge=charge),
            timeout_ms=request.timeout_ms,
        )

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect leaders; see `elections.elect_leaders`. For no partitions at all, the time limit means nothing."""
        return await self._running().submit(
            "ElectLeaders",
            lambda image: elections.elect_leaders(image, request, self._topic_config(image)),
            timeout_ms=None if request.topic_partitions == [] else request.timeout_ms,
        )

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Begin and cancel reassignments; see `reassignments.alter_reassignments`.

        For no partitions at all, the time limit means nothing.
        """
        from triokafka.broker_stub.controller.reassignments import alter_reassignments

        return await self._running().submit(
            "AlterPartitionReassignments",
            lambda image: alter_reassignments(image, request, self._topic_config(image)),
            timeout_ms=request.timeout_ms if request.topics else None,
        )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync sets as their leaders ask; see `in_sync.alter_partition`."""
        from triokafka.broker_stub.controller.in_sync import alter_partition

        return await self._running().submit(
            "AlterPartition", lambda image: alter_partition(image, request, self._topic_config(image))
        )

    async def balance_leaders(self) -> int:
        """Make preferred replicas leaders again where they can be; returns how many."""

        def compute(image: MetadataImage) -> Outcome[int]:
            records = elections.preferred_leaders(image, self._topic_config(image))
            return Outcome(records, len(records))

        return await self._running().submit("BalanceLeaders", compute)

    # Configuration

    # A broker that shares this controller answers for its own configuration: it is ``by``.

    async def alter_configs(
        self,
        request: AlterConfigsRequest,
        *,
        denied: Denials | None = None,
        by: ConfigurationControl | None = None,
    ) -> AlterConfigsResponse:
        """Replace configuration; see `ConfigurationControl.alter_configs`."""
        control = self._started().configuration if by is None else by
        return await self._running().submit(
            "AlterConfigs", lambda image: control.alter_configs(image, request, denied=denied)
        )

    async def incremental_alter_configs(
        self,
        request: IncrementalAlterConfigsRequest,
        *,
        denied: Denials | None = None,
        by: ConfigurationControl | None = None,
    ) -> IncrementalAlterConfigsResponse:
        """Change configuration; see `ConfigurationControl.incremental_alter_configs`."""
        control = self._started().configuration if by is None else by
        return await self._running().submit(
            "IncrementalAlterConfigs",
            lambda image: control.incremental_alter_configs(image, request, denied=denied),
        )

    def describe_configs(
        self,
        request: DescribeConfigsRequest,
        *,
        denied: Denials | None = None,
        by: ConfigurationControl | None = None,
    ) -> Iterator[DescribeConfigsResult]:
        """Show configuration from the committed image of now, resource by resource."""
        from triokafka.broker_stub.controller.describe import describe_configs

        state = self._started()
        control = state.configuration if by is None else by
        return describe_configs(state.committed, request, control, denied=denied)

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """Change quotas; see `ClientQuotaControl.alter`."""
        control = self._started().client_quotas
        return await self._running().submit("AlterClientQuotas", lambda image: control.alter(image, request))

    # The cluster

    async def update_features(self, request: UpdateFeaturesRequest, *, version: int = 2) -> UpdateFeaturesResponse:
        """Change feature levels; see `feature_updates.update_features`. As in Kafka, the time limit is ignored."""
        return await self._running().submit(
            "UpdateFeatures",
            lambda image: feature_updates.update_features(
                image,
                request,
                self._kraft_version,
                version=version,
                min_insync_replicas=self._config.text(features.MIN_INSYNC_REPLICAS) or "1",
            ),
        )

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """Forget a broker; see `ClusterControl.unregister`."""
        control = self._started().cluster
        return await self._running().submit("UnregisterBroker", lambda image: control.unregister(image, request))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for a broker."""
        control = self._started().producer_ids
        return await self._running().submit(
            "AllocateProducerIds", lambda image: control.allocate(image, broker_id, broker_epoch)
        )

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """Register a broker, fenced; returns its epoch. See `ClusterControl.register`."""
        state = self._started()
        return await self._running().submit(
            "RegisterBroker",
            lambda image: state.cluster.register(
                image, registration, now=self._world.now(), next_offset=state.next_offset
            ),
        )

    async def broker_heartbeat(self, beat: BrokerHeartbeat) -> HeartbeatReply:
        """Hear of a broker; see `ClusterControl.heartbeat`."""
        state = self._started()
        return await self._running().submit(
            "BrokerHeartbeat",
            lambda image: state.cluster.heartbeat(
                image, beat, now=self._world.now(), committed_offset=state.committed.offset
            ),
        )

    async def everybody_in_sync(self) -> int:
        """Take every replica that is up into the in-sync sets; see `in_sync.everybody_in_sync`."""
        from triokafka.broker_stub.controller.in_sync import everybody_in_sync

        return await self._running().submit(
            "EverybodyInSync", lambda image: everybody_in_sync(image, self._topic_config(image))
        )

    async def hand_over(self, topic: str, partition: int, to: int | None = None) -> int:
        """Have a broker lead a partition in a new epoch; returns which. See `hand_over.hand_over`."""
        return await self._running().submit("HandOver", lambda image: hand_over(image, topic, partition, to))

    async def fence_broker(self, broker_id: int) -> None:
        """Fence a broker that is known to be gone; one that is not registered, or fenced already, is fine."""
        cluster = self._started().cluster

        def fence(image: MetadataImage) -> Outcome[None]:
            broker = image.brokers.get(broker_id)
            return Outcome([] if broker is None or broker.fenced else cluster.fence(image, broker), None)

        await self._running().submit("FenceBroker", fence)

    def all_follow(self, offset: int) -> None:
        """See `ClusterControl.all_follow`."""
        self._started().cluster.all_follow(offset)

    async def fence_stale_broker(self) -> int | None:
        """Fence the broker that was silent for too long, if there is one; returns which."""
        control = self._started().cluster
        return await self._running().submit(
            "FenceStaleBroker", lambda image: control.fence_stale(image, now=self._world.now())
        )
