"""Deleting the records of partitions before an offset."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.errors import NotLeaderForPartitionError
from triokafka.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from triokafka.structs import TopicPartition


class RecordAdmin:
    """The part of `AdminClient` about records."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def delete_records(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        leader_id: int | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete the records of partitions before an offset (-1: all). Returns the new log start offsets.

        The requests go to the leaders, or with ``leader_id`` all to that broker; then a partition that it does not lead
        fails.

        Raises:
            BrokerNotAvailableError: the cluster has no broker ``leader_id``.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, …: one partition could not be changed; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[TopicPartition], call: CallRouting) -> Mapping[TopicPartition, int | Exception]:
            outcomes: dict[TopicPartition, int | Exception] = {}
            for node, partitions in (await call.by_leader(items, outcomes, leader_id)).items():
                topics: dict[str, DeleteRecordsTopic] = {}
                for tp in partitions:
                    topic = topics.setdefault(tp.topic, DeleteRecordsTopic(name=tp.topic, partitions=[]))
                    topic.partitions.append(DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp]))
                request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=call.left_ms)
                response = await call.to_node(node, request)
                for t in response.topics:
                    for p in t.partitions:
                        tp = TopicPartition(t.name, p.partition_index)
                        outcomes[tp] = self._retries.error(p.error_code, tp) or p.low_watermark
            return outcomes

        final = () if leader_id is None else (NotLeaderForPartitionError,)
        return await self._retries.change(offsets, do_round, timeout_ms, final=final)
