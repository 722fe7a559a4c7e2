"""The cluster as a whole: its brokers, its features and the quorum of its metadata log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.partition_types import (
    FeatureDescription,
    FeatureRange,
    FeatureUpdate,
    QuorumDescription,
    QuorumReplica,
)
from triokafka.client.admin.retries import AdminRetries, failure_of
from triokafka.client.admin.types import ClusterDescription, Results
from triokafka.errors import UnsupportedVersionError
from triokafka.network.controllers import BROKERS, CONTROLLERS, FIRST_WITH_CONTROLLERS
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, PartitionData, ReplicaState, TopicData
from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest
from triokafka.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from triokafka.security.acl import AclOperation
from triokafka.structs import Node, TopicPartition

_FENCED_SINCE: Final = 2
_FEATURES_SINCE: Final = 3
_METADATA_LOG: Final = "__cluster_metadata"
_NO_ID: Final = uuid.UUID(int=0)


class ClusterAdmin:
    """The part of `AdminClient` about the cluster."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> ClusterDescription:
        """Return the brokers and the controller; of a client of controllers, these and the active one of them.

        ``include_fenced_brokers`` adds brokers that are registered but not in service (brokers from 4.0 on), and
        ``include_authorized_operations`` the operations that the caller may perform on the cluster (from 2.8 on).
        """

        at_controllers = self._retries.at_controllers

        def build(version: int) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                endpoint_type=CONTROLLERS if at_controllers else BROKERS,
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers and version >= _FENCED_SINCE,
            )

        async def ask(call: CallRouting) -> ClusterDescription:
            try:
                since = FIRST_WITH_CONTROLLERS if at_controllers else None
                response = await call.to_any(build, api=DescribeClusterRequest, min_version=since)
            except UnsupportedVersionError:  # brokers before 2.8
                if at_controllers:
                    raise
                cluster = await call.refresh_metadata()
                nodes = tuple(cluster.nodes.values())
                return ClusterDescription(cluster.cluster_id, cluster.nodes.get(cluster.controller_id), nodes)
            self._retries.check(response.error_code, "the cluster", response.error_message)
            nodes = tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
            controller = next((node for node in nodes if node.node_id == response.controller_id), None)
            fenced = frozenset(b.broker_id for b in response.brokers if b.is_fenced)
            allowed = AclOperation.of_bits(response.cluster_authorized_operations)
            return ClusterDescription(response.cluster_id, controller, nodes, fenced, allowed)

        return await self._retries.once(ask, timeout_ms)

    async def describe_features(
        self, *, node_id: int | None = None, timeout_ms: float | None = None
    ) -> FeatureDescription:
        """Return the finalized levels of the cluster's features, and those the responding broker supports (KIP-584).

        ``node_id`` chooses the broker, or the controller if the client is connected to controllers.
        """

        async def ask(call: CallRouting) -> FeatureDescription:
            request = ApiVersionsRequest(client_software_name="triokafka", client_software_version="admin")
            if node_id is None:
                response = await call.to_any(request, min_version=_FEATURES_SINCE)
            else:
                node = await call.node(node_id)
                response = await call.to_node(node.node_id, request, min_version=_FEATURES_SINCE)
            self._retries.check(response.error_code, "features")
            return FeatureDescription(
                finalized={
                    f.name: FeatureRange(f.min_version_level, f.max_version_level) for f in response.finalized_features
                },
                supported={f.name: FeatureRange(f.min_version, f.max_version) for f in response.supported_features},
                epoch=response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
            )

        return await self._retries.once(ask, timeout_ms)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set the levels of features, all or none (brokers from 3.3 on).

        Raises:
            InvalidUpdateVersionError, FeatureUpdateFailedError, ClusterAuthorizationFailedError: no level has changed;
                an `ExceptionGroup` if several were refused.
        """
        wanted = {
            name: update if isinstance(update, FeatureUpdate) else FeatureUpdate(update)
            for name, update in updates.items()
        }

        async def ask(call: CallRouting) -> None:
            request = UpdateFeaturesRequest(
                timeout_ms=call.left_ms,
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=u.level, upgrade_type=u.upgrade_type)
                    for name, u in wanted.items()
                ],
                validate_only=validate_only,
            )
            response = await call.to_controller(request, min_version=1)
            self._retries.check(response.error_code, "features", response.error_message)
            failed = {
                r.feature: error
                for r in response.results
                if (error := self._retries.error(r.error_code, f"feature {r.feature}", r.error_message)) is not None
            }
            if failed:
                raise failure_of(Results({name: None for name in wanted if name not in failed}, failed))

        await self._retries.once(ask, timeout_ms)

    async def describe_metadata_quorum(self, *, timeout_ms: float | None = None) -> QuorumDescription:
        """Return the leader, the voters and the observers of the metadata quorum (KIP-595)."""

        async def ask(call: CallRouting) -> QuorumDescription:
            request = DescribeQuorumRequest(
                topics=[TopicData(topic_name=_METADATA_LOG, partitions=[PartitionData(partition_index=0)])]
            )
            response = await call.to_any(request)
            self._retries.check(response.error_code, "the quorum", response.error_message)
            found = response.topics[0].partitions[0]
            metadata = TopicPartition(_METADATA_LOG, 0)
            if (error := self._retries.error(found.error_code, metadata, found.error_message)) is not None:
                raise failure_of(Results({}, {metadata: error}))
            nodes = {
                node.node_id: tuple(Node(node.node_id, listener.host, listener.port) for listener in node.listeners)
                for node in response.nodes
            }
            return QuorumDescription(
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                tuple(_replica(state) for state in found.current_voters),
                tuple(_replica(state) for state in found.observers),
                nodes,
                {
                    node.node_id: {listener.name: (listener.host, listener.port) for listener in node.listeners}
                    for node in response.nodes
                },
            )

        return await self._retries.once(ask, timeout_ms)

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: uuid.UUID,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Add a controller to the voters of the metadata quorum (KIP-853); wait until the change is committed.

        The controller must run already, as an observer that has caught up.

        Args:
            voter_id: the controller's node id.
            directory_id: the id of the directory that holds its metadata log.
            listeners: host and port of its controller listeners, by listener name.
            cluster_id: refuse the change in another cluster than this one.

        Raises:
            DuplicateVoterError: it votes already.
            UnsupportedVersionError: the voters are fixed (``controller.quorum.voters``).
            RequestTimedOutError: the controller did not catch up in time, or the change was not committed in time.
        """
        from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest, Listener

        async def ask(call: CallRouting) -> None:
            request = AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=call.left_ms,
                voter_id=voter_id,
                voter_directory_id=directory_id,
                listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in listeners.items()],
            )
            response = await call.to_controller(request)
            self._retries.check(response.error_code, f"voter {voter_id}", response.error_message)

        await self._retries.once(ask, timeout_ms)

    async def remove_raft_voter(
        self, voter_id: int, directory_id: uuid.UUID, *, cluster_id: str | None = None, timeout_ms: float | None = None
    ) -> None:
        """Remove a controller from the voters of the metadata quorum (KIP-853); wait until the change is committed.

        Raises:
            VoterNotFoundError: no voter has this id and directory.
            UnsupportedVersionError: the voters are fixed (``controller.quorum.voters``).
        """
        from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest

        async def ask(call: CallRouting) -> None:
            request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
            response = await call.to_controller(request)
            self._retries.check(response.error_code, f"voter {voter_id}", response.error_message)

        await self._retries.once(ask, timeout_ms)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Remove the registration of a broker that will not return.

        Raises:
            BrokerIdNotRegisteredError: there is no such broker.
        """

        async def ask(call: CallRouting) -> None:
            response = await call.to_controller(UnregisterBrokerRequest(broker_id=broker_id))
            self._retries.check(response.error_code, f"broker {broker_id}", response.error_message)

        await self._retries.once(ask, timeout_ms)


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        None if state.replica_directory_id == _NO_ID else state.replica_directory_id,
        state.log_end_offset,
        None if state.last_fetch_timestamp < 0 else state.last_fetch_timestamp,
        None if state.last_caught_up_timestamp < 0 else state.last_caught_up_timestamp,
    )
