"""All partitions of one broker: acts on image changes, appends, reads, and completes what waits for either.

Everything looks a partition up and lets it do the work, with an outcome per partition, so that one failure never spoils
the others. What exists and who leads is in ``hosted_partitions``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.log.page_cache import ColdReadError
from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch, needs_prevalidation
from triokafka.broker_stub.purgatory.delayed_operation import monotonic_ms
from triokafka.broker_stub.replica.delayed import AppendOutcome, Awaited, DelayedFetch, DelayedProduce
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions, LeadershipChange
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.read_result import LeaderHint, ReadOutcome
from triokafka.broker_stub.work_budget import BUDGET, WorkBudget
from triokafka.named_tuple import NamedTuple
from triokafka.structs import Buffer, TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from triokafka.broker_stub.log.config import LogConfig
    from triokafka.network.fetch_sessions.fetch_session_cache import WantedPartition

__all__ = ["FetchParameters", "LeadershipChange", "ReplicaManager"]

logger = logging.getLogger(__name__)

_COLD_READS: Final = 8
"""How often a fetch goes to the disk for a part of what it needs before it waits for the rest of it at once."""


_DAMAGES_REPORTED: Final = 100
"""Damaged places of one log that are reported; more would say nothing new."""


class FetchParameters(NamedTuple):
    """What holds for a whole fetch. ``replica_id`` is -1 for a consumer."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool

    @property
    def follower(self) -> bool:
        """Whether another broker asks (0 is a valid id)."""
        return self.replica_id >= 0


class ReplicaManager(HostedPartitions):
    """The partitions that this broker hosts.

    Args:
        produce_purge_interval, fetch_purge_interval: see `Purgatory` (``producer.purgatory.purge.interval.requests``
            and its sibling).
        shares_logs: other brokers use the same logs. Every replica of a partition is then the one log, so that all are
            in sync, and a log goes with its topic, not with a replica.
    """

    # Writing

    def batches_to_prevalidate(
        self, entries: Mapping[TopicPartition, Buffer | PrevalidatedBatch]
    ) -> dict[TopicPartition, tuple[Buffer, LogConfig]]:
        """Those of a client's batches that `prevalidate` should look at before they are appended."""
        found = {}
        for topic_partition, data in entries.items():
            if isinstance(data, PrevalidatedBatch):
                continue
            partition = self._partitions.get(topic_partition)
            if partition is not None and needs_prevalidation(data, config := partition.log.config):
                found[topic_partition] = data, config
        return found

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer | PrevalidatedBatch],
        *,
        required_acks: int,
    ) -> dict[TopicPartition, AppendOutcome]:
        """Append what a client sent to every partition as its leader; each has its own outcome.

        Clients may not write to internal topics.
        """
        if required_acks not in (-1, 0, 1):
            code = errors.InvalidRequiredAcksError.code
            return {key: AppendOutcome(error_code=code) for key in entries}
        now_ms = self._world.wall_ms()
        outcomes: dict[TopicPartition, AppendOutcome] = {}
        for topic_partition, batches in entries.items():
            outcomes[topic_partition] = self._append_one(topic_partition, batches, required_acks, now_ms)
        return outcomes

    def _append_one(
        self, topic_partition: TopicPartition, batches: Buffer | PrevalidatedBatch, required_acks: int, now_ms: int
    ) -> AppendOutcome:
        partition = self._partitions.get(topic_partition)
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise errors.InvalidTopicError(f"{topic_partition.topic} is internal: clients may not write to it")
            if partition is None:
                partition = self.partition(topic_partition)
            info = partition.append(batches, required_acks=required_acks, now_ms=now_ms)
        except errors.BrokerResponseError as error:
            self.traffic.refused()
            log_start_offset = partition.log.log_start_offset if partition is not None else -1
            return AppendOutcome(
                error_code=error.code,
                log_start_offset=log_start_offset,
                error_message=str(error) or None,
                record_errors=getattr(error, "record_errors", ()),
            )
        except OSError as error:
            logger.error("appending to %s failed: %s", topic_partition, error)
            self.traffic.refused()
            return AppendOutcome(error_code=errors.KafkaStorageError.code, error_message=f"the disk failed: {error}")
        size = len(batches.data if isinstance(batches, PrevalidatedBatch) else batches)
        self.traffic.appended(size, info.last_offset - info.first_offset + 1)
        self.appended(partition)
        return AppendOutcome(
            base_offset=info.first_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
            flushing=partition.log.settled_offset <= info.last_offset,
        )

    def append_internal(self, topic_partition: TopicPartition, batches: Buffer) -> int:
        """Append the broker's own records as with acks=all, and return the offset after the last one.

        Raises:
            BrokerResponseError: this broker does not lead the partition, or the log refuses; nothing was appended.
        """
        partition = self.partition(topic_partition)
        info = partition.append(batches, required_acks=-1, now_ms=self._world.wall_ms(), from_client=False)
        self.appended(partition)
        return info.last_offset + 1

    def appended(self, partition: Partition) -> None:
        """Tell those who wait that the log of ``partition`` grew, and raise its high watermark if that suffices."""
        topic_partition = partition.topic_partition
        if partition.advance_high_watermark():
            if self._listeners:
                self._high_watermark_rose(partition)
            self.produce_purgatory.check_and_complete(topic_partition)
        self.fetch_purgatory.check_and_complete(topic_partition)

    def delay_produce(
        self, outcomes: Mapping[TopicPartition, AppendOutcome], timeout_ms: int, *, required_acks: int = -1
    ) -> DelayedProduce | None:
        """Wait for the in-sync replicas of what was appended; None when nothing needs to be waited for.

        With ``required_acks`` 1 it is the leader's own disk that is waited for.
        """
        if required_acks == -1:
            for key, outcome in outcomes.items():
                if not outcome.error_code and not self._committed(key, outcome):
                    break
            else:
                return None
        pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        operation = DelayedProduce(max(timeout_ms, 0), outcomes, self.partition, required_acks=required_acks)
        self.produce_purgatory.try_complete_else_watch(operation, pending, monotonic_ms(self._world))
        return None if operation.completed else operation

    def _committed(self, topic_partition: TopicPartition, outcome: AppendOutcome) -> bool:
        partition = self._partitions.get(topic_partition)
        return (
            partition is not None
            and partition.is_leader
            and partition.high_watermark > outcome.last_offset
            and partition.enough_replicas
        )

    # Reading

    async def read(
        self,
        wanted: Sequence[tuple[TopicPartition, WantedPartition]],
        parameters: FetchParameters,
        *,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        """Read partitions in order under one byte budget. Returns outcomes, bytes read, and whether to answer at once.

        The first partition with data may exceed the limits by its first batch, so that a reader always gets on.
        Waits only where something must come from the disk first; a thread does that, and then all is read again. Of
        very many partitions, others have their turn in between.
        """
        for _ in range(_COLD_READS):
            try:
                return await self._read(wanted, parameters, may_block=False)
            except ColdReadError as cold:
                before_waiting()
                await self._world.run_in_thread(cold.warm)
        return await self._read(wanted, parameters, may_block=True)  # memory is too short to keep it for a moment

    async def _read(
        self, wanted: Sequence[tuple[TopicPartition, WantedPartition]], parameters: FetchParameters, *, may_block: bool
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        budget = parameters.max_bytes
        total = 0
        urgent = False
        cold: list[ColdReadError] = []
        failed = 0
        outcomes: dict[TopicPartition, ReadOutcome] = {}
        follower, read_committed = parameters.follower, parameters.read_committed
        work = WorkBudget() if len(wanted) > BUDGET else None
        for topic_partition, request in wanted:
            if work is not None:
                await work.spend()
            try:
                partition = self._partitions.get(topic_partition) or self.partition(topic_partition)
                if follower:
                    partition.require_follower(parameters.replica_id, request.current_leader_epoch)
                outcome = partition.read(
                    request.fetch_offset,
                    min(budget, request.max_bytes),
                    min_one_batch=not total,
                    follower=follower,
                    read_committed=read_committed,
                    current_leader_epoch=request.current_leader_epoch,
                    last_fetched_epoch=request.last_fetched_epoch,
                    may_block=may_block,
                )
                if follower and outcome.diverging_epoch is None:
                    # Only now: an offset that is not in the log, or is another record's there, tells nothing of what
                    # the follower has.
                    self._follower_fetches(partition, parameters.replica_id, request.fetch_offset)
            except ColdReadError as error:
                # The others are looked at, too: one visit to the disk for all that fits. How much this one has is not
                # known, so it counts in full.
                cold.append(error)
                budget -= request.max_bytes
                if budget <= 0:
                    break
                continue
            except errors.BrokerResponseError as error:
                outcomes[topic_partition] = self._failed_read(topic_partition, error)
                urgent = True
                failed += 1
                continue
            except OSError as error:
                logger.error("reading %s failed: %s", topic_partition, error)
                outcomes[topic_partition] = ReadOutcome(errors.KafkaStorageError.code)
                urgent = True
                failed += 1
                continue
            outcomes[topic_partition] = outcome
            size = len(outcome.records)
            total += size
            budget = max(budget - size, 0)
            if outcome.diverging_epoch is not None:
                urgent = True
        if cold:
            raise ColdReadError(partial(_warm, cold))
        self.traffic.fetches += len(outcomes)
        self.traffic.failed_fetches += failed
        return outcomes, total, urgent

    def delay_fetch(
        self, wanted: Sequence[tuple[TopicPartition, WantedPartition]], parameters: FetchParameters
    ) -> DelayedFetch | None:
        """Wait until a fetch has enough to answer; None when it has by now. The caller then reads again."""
        awaited = [
            Awaited(
                key,
                request.fetch_offset,
                request.max_bytes,
                request.current_leader_epoch,
                request.last_fetched_epoch,
            )
            for key, request in wanted
        ]
        operation = DelayedFetch(
            parameters.max_wait_ms,
            awaited,
            self.partition,
            min_bytes=parameters.min_bytes,
            follower=parameters.follower,
            read_committed=parameters.read_committed,
        )
        keys = [key for key, _ in wanted]
        self.fetch_purgatory.try_complete_else_watch(operation, keys, monotonic_ms(self._world))
        return None if operation.completed else operation

    def _follower_fetches(self, partition: Partition, replica_id: int, fetch_offset: int) -> None:
        if partition.follower_fetched(replica_id, fetch_offset, self._world.now()):
            self._high_watermark_rose(partition)
            self._complete_waiting(partition.topic_partition)

    def _failed_read(self, topic_partition: TopicPartition, error: errors.BrokerResponseError) -> ReadOutcome:
        outcome = ReadOutcome(error.code)
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if isinstance(error, errors.CorruptRecordError):
                self._report_damage(partition, str(error))
            if isinstance(error, errors.NotLeaderForPartitionError | errors.FencedLeaderEpochError):
                outcome.leader_hint = partition.leader_hint
        elif isinstance(error, errors.NotLeaderForPartitionError):
            known = self._image.partition(*topic_partition)
            if known is not None:
                outcome.leader_hint = LeaderHint(known.leader, known.leader_epoch)
        return outcome

    @staticmethod
    def _report_damage(partition: Partition, damage: str) -> None:
        """Log damage that a reader has met, once for each place: consumers fetch it again and again."""
        reported = partition.log.reported_damage
        if damage not in reported and len(reported) < _DAMAGES_REPORTED:
            reported.add(damage)
            logger.error("%s is damaged, and readers get CORRUPT_MESSAGE: %s", partition.topic_partition, damage)

    def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> int:
        """See `Partition.delete_records_before`; completes what waits on the partition."""
        if topic_partition.topic in INTERNAL_TOPICS:
            raise errors.InvalidTopicError(f"records of the internal topic {topic_partition.topic} cannot be deleted")
        low_watermark = self.partition(topic_partition).delete_records_before(offset)
        self.fetch_purgatory.check_and_complete(topic_partition)
        return low_watermark


def _warm(cold: Iterable[ColdReadError]) -> None:
    for error in cold:
        error.warm()
