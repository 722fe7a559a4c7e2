"""Applying one partition of a leader's Fetch response on a follower: append, truncate, look up, wait or stop.

Nothing here waits. Every step is guarded by the leader epoch of the request: after a change of the role or the leader,
a result changes nothing.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

from triokafka import errors
from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState, FetchPosition, FetchResult
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.protocol.api.fetch import PartitionData
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_OUT_OF_RANGE: Final = errors.OffsetOutOfRangeError.code
_FENCED: Final = errors.FencedLeaderEpochError.code
_EXPECTED: Final = frozenset(
    error.code
    for error in (
        errors.UnknownLeaderEpochError,
        errors.NotLeaderForPartitionError,
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.InconsistentTopicIdError,
    )
)
"""Errors while metadata spreads: the leader or this broker does not know of a change yet."""
_REPEAT_SECONDS: Final = 60.0
"""The shortest interval between two log lines about the same failure of a partition."""


class NextStep(enum.Enum):
    """The fetcher's next step for a partition."""

    CONTINUE = "continue"
    LOOK_UP = "look up the offsets of the leader"


class FollowerLog:
    """The logs of the partitions that one fetcher follows, as its Fetch responses change them.

    Args:
        wall_ms: the wall clock.
        throttle: counts the bytes of a partition towards the follower's replication quota.
    """

    def __init__(
        self,
        state: FetcherState,
        hosted: HostedPartitions,
        traffic: ReplicaTraffic,
        *,
        node_id: int,
        wall_ms: Callable[[], int],
        throttle: Callable[[TopicPartition, int], None] = lambda topic_partition, size: None,
    ) -> None:
        self._state = state
        self._hosted = hosted
        self._traffic = traffic
        self._node_id = node_id
        self._wall_ms = wall_ms
        self._throttle = throttle
        self._reported: dict[TopicPartition, tuple[str, float]] = {}

    def apply(self, result: FetchResult, now: float) -> NextStep:
        """Apply the result of one partition.

        A partition that fails is delayed, and the others are not affected: with bad bytes from the leader or a disk
        that is full, the next fetch may succeed.
        """
        topic_partition, sent, data = result
        position = self._state.position(topic_partition, sent)
        if position is None:
            return NextStep.CONTINUE
        code = data.error_code
        try:
            if not code:
                if data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
                    self._truncate(position, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                else:
                    self._append(position, data)
                return NextStep.CONTINUE
            if code == _OUT_OF_RANGE:
                return NextStep.LOOK_UP
            if code == _FENCED:
                # The leader has a newer epoch; this broker's metadata will have it too, and then fetching starts again.
                self._state.remove(topic_partition)
                logger.info("%s: leader epoch %d is over, waiting for metadata", topic_partition, position.leader_epoch)
                return NextStep.CONTINUE
            answer = f"{topic_partition}: the leader answers a fetch with {errors.for_code(code).__name__}"
            if code in _EXPECTED:
                logger.info("%s", answer)
                self._state.delay_for_metadata(topic_partition, now)
                return NextStep.CONTINUE
            self._report(topic_partition, answer, now)
        except errors.FencedLeaderEpochError:
            self._state.remove(topic_partition)
            return NextStep.CONTINUE
        except (errors.KafkaError, OSError) as error:
            sentence = f"{topic_partition}: replicating from offset {sent.fetch_offset} failed: {error}"
            if isinstance(error, errors.CorruptRecordError):
                leader = position.partition.leader_id
                sentence += (
                    f". The replica of the leader, broker {leader}, may be damaged: compare the replicas with "
                    f"`triokafka verify-replicas`, and let an intact one in sync lead"
                )
            self._report(topic_partition, sentence, now)
            self._hosted.append_failed(topic_partition, error)
            if position.partition.log.usable:
                position.resume()
        self._state.delay(topic_partition, now)
        return NextStep.CONTINUE

    def _report(self, topic_partition: TopicPartition, sentence: str, now: float) -> None:
        """Log a failure that every fetch may repeat: once a minute while it is the same."""
        before = self._reported.get(topic_partition)
        if before is None or before[0] != sentence or now - before[1] >= _REPEAT_SECONDS:
            self._reported[topic_partition] = sentence, now
            logger.error("%s", sentence)

    def _append(self, position: FetchPosition, data: PartitionData) -> None:
        partition = position.partition
        partition.require_following(position.leader_epoch)
        records = data.records
        size = len(records) if records else 0
        if size and records is not None:
            info = partition.append_as_follower(records, leader_epoch=position.leader_epoch, now_ms=self._wall_ms())
            if info.first_offset < 0:
                raise errors.CorruptRecordError(f"{size} bytes from the leader contain no complete batch")
            self._traffic.replicated(size, reassigning=self._node_id in partition.adding_replicas)
            self._throttle(partition.topic_partition, size)
        self._reported.pop(partition.topic_partition, None)
        self._hosted.followed(partition, data.high_watermark, data.log_start_offset)
        lag = max(0, data.high_watermark - partition.log.log_end_offset)
        self._state.advanced(partition.topic_partition, lag=lag, with_records=size > 0)

    def _truncate(self, position: FetchPosition, leader_epoch: int, leader_end: int) -> None:
        """Truncate to where this log and the leader's agree, as far as one response shows; the next fetch shows more.

        ``leader_epoch`` is the leader's largest epoch up to the one that this log ends with, ``leader_end`` its end.
        """
        partition = position.partition
        log = partition.log
        end = log.log_end_offset
        if leader_end < 0:
            offset = partition.high_watermark
        elif leader_epoch < 0:
            offset = min(leader_end, end)
        else:
            own_epoch, own_end = log.leader_epochs.end_offset_for(leader_epoch, end)
            if own_epoch < 0:
                offset = min(leader_end, end)
            elif own_epoch != leader_epoch:
                # This log has an older epoch only, which the leader may end earlier: truncate to the end of that epoch,
                # and ask about it with the next fetch (KIP-279).
                offset = min(own_end, end)
            else:
                offset = min(own_end, leader_end, end)
        logger.info(
            "%s: truncating from offset %d to %d, where the leader's log differs",
            partition.topic_partition,
            end,
            offset,
        )
        partition.truncate_as_follower(offset, leader_epoch=position.leader_epoch, now_ms=self._wall_ms())
        position.resume()

    def needs_leader_start(self, position: FetchPosition, leader_end: int) -> bool:
        """Process the leader's log end offset after OFFSET_OUT_OF_RANGE; return whether its start decides.

        A leader that ends earlier was elected uncleanly: this log is truncated to that end.
        """
        partition = position.partition
        if leader_end >= partition.log.log_end_offset:
            return True
        logger.warning(
            "%s: truncating to %d, the end of the leader's log; this log ended at %d",
            partition.topic_partition,
            leader_end,
            partition.log.log_end_offset,
        )
        if leader_end < partition.log.log_start_offset:
            partition.restart_as_follower(leader_end, leader_epoch=position.leader_epoch, now_ms=self._wall_ms())
        else:
            partition.truncate_as_follower(leader_end, leader_epoch=position.leader_epoch, now_ms=self._wall_ms())
        position.resume()
        return False

    def begin_at_leader_start(self, position: FetchPosition, leader_start: int) -> None:
        """Process the leader's log start offset after OFFSET_OUT_OF_RANGE.

        When this log ends before it, the records in between are gone everywhere, and the log begins again there.
        """
        partition = position.partition
        if leader_start > partition.log.log_end_offset:
            logger.warning(
                "%s: the log ended at offset %d, but the leader's begins at %d: starting again there",
                partition.topic_partition,
                partition.log.log_end_offset,
                leader_start,
            )
            partition.restart_as_follower(leader_start, leader_epoch=position.leader_epoch, now_ms=self._wall_ms())
        position.resume()
