"""The cluster as a whole, and offsets of its partitions by time."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.client.admin.topics import TopicAdmin
from triokafka.client.admin.types import AclOperation, ClusterDescription, Results
from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.api.describe_cluster import DescribeClusterRequest
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.structs import Node, OffsetAndTimestamp, TopicPartition

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
_FENCED_SINCE = 2
_MIN_VERSION_FOR = {MAX_TIMESTAMP: 7}
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_SPECS = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


class ClusterAdmin(TopicAdmin):
    """The part of `AdminClient` about brokers and partition offsets."""

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> ClusterDescription:
        """The brokers and the controller.

        With ``include_fenced_brokers`` also those that serve nobody now (brokers from 4.0 on), and with
        ``include_authorized_operations`` what the caller may do with the cluster (from 2.8 on).
        """

        def build(version: int) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers and version >= _FENCED_SINCE,
            )

        async def ask(left_ms: int) -> ClusterDescription:
            try:
                response = await self._client.send_to_least_loaded(
                    build, api=DescribeClusterRequest, timeout_ms=self._patience(left_ms)
                )
            except UnsupportedVersionError:  # brokers before 2.8
                cluster = await self._client.refresh_metadata(timeout_ms=left_ms)
                nodes = tuple(cluster.nodes.values())
                return ClusterDescription(cluster.cluster_id, cluster.nodes.get(cluster.controller_id), nodes)
            if response.error_code:
                raise self._error(response.error_code, "the cluster", response.error_message)
            nodes = tuple(Node(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
            controller = next((node for node in nodes if node.node_id == response.controller_id), None)
            fenced = frozenset(b.broker_id for b in response.brokers if b.is_fenced)
            allowed = AclOperation.of_bits(response.cluster_authorized_operations)
            return ClusterDescription(response.cluster_id, controller, nodes, fenced, allowed)

        return await self._once(ask, timeout_ms)

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, str | int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        """Look offsets up: ``"earliest"``, ``"latest"``, ``"max_timestamp"``, or the first at or after a time in ms.

        The offset is -1 when no record is that late. Reading a partition that failed raises its error.
        """
        wanted = {tp: _timestamp(spec) for tp, spec in partitions.items()}
        if isolation_level not in _ISOLATION:
            raise ValueError(f"isolation_level={isolation_level!r} is not one of {', '.join(_ISOLATION)}")
        min_version = max([_MIN_VERSION_FOR.get(timestamp, 1) for timestamp in wanted.values()], default=1)
        if isolation_level == "read_committed":
            min_version = max(min_version, 2)

        async def ask(
            node_id: int, items: list[TopicPartition], left_ms: int
        ) -> Mapping[TopicPartition, OffsetAndTimestamp | Exception]:
            topics: dict[str, ListOffsetsTopic] = {}
            for tp in items:
                topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
                topic.partitions.append(
                    ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=wanted[tp])
                )
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=_ISOLATION[isolation_level], topics=list(topics.values())
            )
            response = await self._client.send(node_id, request, timeout_ms=left_ms, min_version=min_version)
            outcomes: dict[TopicPartition, OffsetAndTimestamp | Exception] = {}
            for t in response.topics:
                for p in t.partitions:
                    tp = TopicPartition(t.name, p.partition_index)
                    outcomes[tp] = (
                        self._error(p.error_code, tp)
                        if p.error_code
                        else OffsetAndTimestamp(p.offset, p.timestamp, p.leader_epoch)
                    )
            return outcomes

        async def do_round(
            items: list[TopicPartition], left_ms: int
        ) -> Mapping[TopicPartition, OffsetAndTimestamp | Exception]:
            leaderless: dict[TopicPartition, OffsetAndTimestamp | Exception] = {}
            by_leader = await self._by_leader(items, left_ms, leaderless)
            return leaderless | await self._side_by_side(by_leader, ask, left_ms)

        return await self._each(wanted, do_round, timeout_ms)


def _timestamp(spec: str | int) -> int:
    if isinstance(spec, str):
        if spec not in _SPECS:
            raise ValueError(f"{spec!r} is not an offset to look up: use {', '.join(_SPECS)}, or milliseconds")
        return _SPECS[spec]
    return spec
