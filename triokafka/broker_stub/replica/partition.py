"""One partition that this broker hosts: its role, in-sync replicas, high watermark, and log.

State changes are plain method calls without waiting. When a method returns that the high watermark rose, the caller
completes delayed operations. The high watermark is the lowest log end offset of the in-sync replicas, including the
leader; `Partition.follower_fetched` tracks those of the followers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.log.verification import UNVERIFIED_ALLOWED, VerificationGuard
from triokafka.broker_stub.replica.read_result import EpochEnd, LeaderHint, ReadOutcome
from triokafka.structs import Buffer, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.log.appender import AppendInfo
    from triokafka.broker_stub.log.partition_log import PartitionLog
    from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch

UNKNOWN_OFFSET: Final = -1
NO_LEADER: Final = -1

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


@dataclass(slots=True)
class _Follower:
    """The leader's view of a replica on another broker."""

    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_at: float = 0.0


class Partition:
    """A hosted partition.

    Args:
        log: the partition's log on this broker.
        high_watermark: the checkpointed high watermark; clamped to the offsets of the log.
        shares_log: all replicas of the partition are this one log.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        *,
        node_id: int,
        log: PartitionLog,
        high_watermark: int = 0,
        shares_log: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.in_sync_replicas: frozenset[int] = frozenset()
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.is_leader = False
        self._node_id = node_id
        self._shares_log = shares_log
        self._followers: dict[int, _Follower] = {}
        self._leader_epoch_start = 0

    # Roles

    def make_leader(
        self, *, leader_epoch: int, partition_epoch: int, replicas: Collection[int], in_sync_replicas: Collection[int]
    ) -> bool:
        """Make this broker the leader; return True unless it led in this epoch already.

        In a new epoch, the log end offsets of followers are unknown, so the high watermark waits for each in-sync
        follower.
        """
        is_new = leader_epoch != self.leader_epoch or not self.is_leader
        self._describe(leader_epoch, partition_epoch, replicas, in_sync_replicas)
        self.leader_id = self._node_id
        self.is_leader = True
        known = self._followers
        self._followers = {
            replica: _Follower() if is_new else known.get(replica, _Follower())
            for replica in self.replicas
            if replica != self._node_id and not self._shares_log
        }
        if is_new:
            self._leader_epoch_start = self.log.log_end_offset
        return is_new

    def make_follower(
        self, *, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: Collection[int]
    ) -> bool:
        """Make this broker a follower; return True when the leader or its epoch is new, so that fetching must
        restart.
        """
        is_new = leader_epoch != self.leader_epoch or leader_id != self.leader_id
        self._describe(leader_epoch, partition_epoch, replicas, ())
        self.leader_id = leader_id
        self.is_leader = False
        self._followers = {}
        return is_new

    def _describe(
        self, leader_epoch: int, partition_epoch: int, replicas: Collection[int], in_sync_replicas: Collection[int]
    ) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.in_sync_replicas = frozenset(in_sync_replicas)

    @property
    def leader_hint(self) -> LeaderHint:
        """Return the leader and epoch known to this broker."""
        return LeaderHint(self.leader_id, self.leader_epoch)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the first record of an open transaction, or the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Check that this broker leads in the epoch that the client sent (-1: none).

        Raises:
            NotLeaderForPartitionError: another broker leads.
            FencedLeaderEpochError: the client's metadata is older than the broker's.
            UnknownLeaderEpochError: the client's metadata is newer than the broker's.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise errors.FencedLeaderEpochError(
                    f"{self.topic_partition}: leader epoch {current_leader_epoch} is older than {self.leader_epoch}"
                )
            raise errors.UnknownLeaderEpochError(
                f"{self.topic_partition}: leader epoch {current_leader_epoch} is newer than {self.leader_epoch}"
            )
        if not self.is_leader:
            raise errors.NotLeaderForPartitionError(f"{self.topic_partition}: the leader is broker {self.leader_id}")

    # Writing

    @property
    def enough_replicas(self) -> bool:
        """Whether the in-sync replicas reach ``min.insync.replicas``, or the number of replicas if that is lower."""
        in_sync = len(self.in_sync_replicas)
        if in_sync >= self.log.config.min_insync_replicas:
            return True
        return in_sync >= max(len(self.replicas), 1)

    def append(
        self,
        batches: Buffer | PrevalidatedBatch,
        *,
        required_acks: int,
        now_ms: int,
        from_client: bool = True,
        guard: VerificationGuard | None = UNVERIFIED_ALLOWED,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append as the leader. The caller then calls `advance_high_watermark`. Arguments as `LogAppender`.

        Raises:
            NotEnoughReplicasError: too few replicas are in sync for acks=all; nothing was written.
            BrokerResponseError: this broker does not lead, or the log rejects the batches.
        """
        self.require_leader()
        if required_acks == -1 and not self.enough_replicas:
            raise errors.NotEnoughReplicasError(
                f"{self.topic_partition}: {len(self.in_sync_replicas)} replicas are in sync, "
                f"min.insync.replicas requires {self.log.config.min_insync_replicas}"
            )
        return self.log.append_as_leader(
            batches,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            from_client=from_client,
            guard=guard,
            transaction_version=transaction_version,
        )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """See `ProducerStates.begin_verification`.

        Raises:
            NotLeaderForPartitionError: another broker leads.
        """
        self.require_leader()
        return self.log.producers.begin_verification(
            producer_id, epoch, sequence, bumps_epochs=bumps_epochs, now_ms=now_ms
        )

    def advance_high_watermark(self) -> bool:
        """Raise the high watermark to the lowest log end offset of the in-sync replicas; return whether it rose.

        With ``flush.messages``, records that wait for a flush on this broker do not count.
        """
        if not self.is_leader:
            return False
        lowest = self.log.settled_offset
        for replica in self.in_sync_replicas:
            follower = self._followers.get(replica)
            if follower is not None and follower.log_end_offset < lowest:
                lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def require_follower(self, replica_id: int, current_leader_epoch: int = -1) -> None:
        """Check a fetch of another broker like `require_leader`; that broker must also have a replica.

        Raises:
            UnknownLeaderEpochError, NotLeaderForPartitionError: this broker does not know its replica yet, and the
                follower must retry. The first is for requests with a leader epoch, the second for those without.
        """
        self.require_leader(current_leader_epoch)
        if replica_id not in self._followers:
            error = errors.UnknownLeaderEpochError if current_leader_epoch >= 0 else errors.NotLeaderForPartitionError
            raise error(
                f"{self.topic_partition}: broker {replica_id} has no replica in leader epoch {self.leader_epoch}"
            )

    def follower_fetched(self, replica_id: int, fetch_offset: int, now: float) -> bool:
        """Process a follower's fetch from ``fetch_offset``: it has all records before; return whether the high
        watermark rose.

        Raises:
            NotLeaderForPartitionError: see `require_follower`.
        """
        self.require_follower(replica_id)
        follower = self._followers[replica_id]
        follower.log_end_offset = fetch_offset
        if fetch_offset >= self.log.log_end_offset:
            follower.caught_up_at = now
        return self.advance_high_watermark()

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to ``offset`` (-1: the high watermark) and return the low watermark.

        Raises:
            PolicyViolationError: the topic's ``cleanup.policy`` does not include ``delete``.
            OffsetOutOfRangeError: ``offset`` is beyond the high watermark.
        """
        self.require_leader()
        if not self.log.config.deletes:
            raise errors.PolicyViolationError(f"{self.topic_partition}: cleanup.policy does not include delete")
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise errors.OffsetOutOfRangeError(
                f"{self.topic_partition}: records up to {offset} cannot be deleted, the high watermark is "
                f"{self.high_watermark}"
            )
        if target > self.log.log_start_offset:
            self.log.advance_log_start_offset(target)
        return self.log.log_start_offset

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        follower: bool = False,
        read_committed: bool = False,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        may_block: bool = True,
    ) -> ReadOutcome:
        """Read for a fetch, below the high watermark unless for a follower. Errors are raised.

        Args:
            may_block: True to wait for the disk if necessary and return bytes; False to return a slice of the file
                where possible.

        Raises:
            ColdReadError: without ``may_block``, data is not in the page cache.
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            BrokerResponseError: this broker is not the leader, or not in that epoch.
        """
        self.require_leader(current_leader_epoch)
        log = self.log
        high_watermark = self.high_watermark
        last_stable_offset = log.last_stable_offset(high_watermark)
        log_start_offset, log_end_offset = log.log_start_offset, log.log_end_offset
        if last_fetched_epoch >= 0:
            diverging = self.diverging_epoch(offset, last_fetched_epoch)
            if diverging is not None:
                return ReadOutcome(0, high_watermark, last_stable_offset, log_start_offset, b"", diverging)
        if follower:
            up_to = log_end_offset
        else:
            up_to = last_stable_offset if read_committed else high_watermark
        if not log_start_offset <= offset <= log_end_offset:
            raise errors.OffsetOutOfRangeError(
                f"{self.topic_partition} holds offsets {log_start_offset} to {log_end_offset}, not {offset}"
            )
        outcome = ReadOutcome(0, high_watermark, last_stable_offset, log_start_offset)
        if offset < up_to and (max_bytes > 0 or min_one_batch):
            read = log.read if may_block else log.read_to_send
            found = read(offset, max_bytes, up_to_offset=up_to, min_one_batch=min_one_batch)
            outcome.records = found.records
            if read_committed and len(found.records):
                outcome.aborted = [
                    (aborted.producer_id, aborted.first_offset)
                    for aborted in log.aborted_transactions(offset, found.end_offset)
                ]
        return outcome

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        """Return the largest known epoch up to ``leader_epoch``, and its end offset; (-1, -1) when there is none
        (KIP-320).
        """
        if leader_epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(leader_epoch, self.log.log_end_offset)
        epoch, end_offset = self.log.leader_epochs.end_offset_for(leader_epoch, self.log.log_end_offset)
        return EpochEnd(epoch, end_offset)

    def offset_for(self, timestamp: int, *, read_committed: bool, follower: bool = False) -> OffsetAndTimestamp | None:
        """Look up an offset for ListOffsets, by special timestamp (`EARLIEST`, …) or milliseconds; None if not found.
        Raises:
            OffsetNotAvailableError: the followers have not caught up with a new leader, so its high watermark may be
                too low.
        """
        log = self.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return OffsetAndTimestamp(log.log_start_offset, -1, self._epoch_at(log.log_start_offset))
        if follower:
            end = log.log_end_offset
        else:
            end = self.last_stable_offset if read_committed else self.high_watermark
            if end < min(self._leader_epoch_start, log.log_end_offset):
                raise errors.OffsetNotAvailableError(
                    f"{self.topic_partition}: the followers have not caught up with the new leader"
                )
        if timestamp == LATEST:
            return OffsetAndTimestamp(end, -1, self.leader_epoch)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return None
        if timestamp == MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp(end)
        else:
            found = log.offset_for_timestamp(timestamp, end)
        return None if found is None else OffsetAndTimestamp(*found)

    def _epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at ``offset``; -1 when it is unknown."""
        return self.log.leader_epochs.epoch_for_offset(offset)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return the epoch and offset to which a follower or consumer must truncate if its last record is not in this
        log.
        """
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.end_offset == UNKNOWN_OFFSET or end.epoch == -1:
            raise errors.OffsetOutOfRangeError(
                f"{self.topic_partition} has no leader epoch {last_fetched_epoch} or lower"
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None
