"""One partition that this broker hosts: its role, in-sync replicas, high watermark, and log.

State changes are plain method calls without waiting. When a method returns that the high watermark rose, the caller
completes delayed operations. The high watermark of a leader is the lowest log end offset of the maximal in-sync set and
of the followers that are about to join it; `Partition.follower_fetched` tracks those of the followers. A follower takes
the high watermark from the leader's responses.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED, VerificationGuard
from triokafka.broker_stub.replica.follower_state import UNKNOWN_OFFSET, FollowerState
from triokafka.broker_stub.replica.in_sync_replicas import InSyncReplicas, IsrProposal, Registrations
from triokafka.broker_stub.replica.read_result import EpochEnd, LeaderHint, ReadOutcome
from triokafka.structs import Buffer, TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.log.appender import AppendInfo
    from triokafka.broker_stub.log.partition_log import PartitionLog
    from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch

logger = logging.getLogger(__name__)

NO_LEADER: Final = -1
_NEVER: Final = float("-inf")


class Partition:
    """A hosted partition.

    Args:
        log: the partition's log on this broker.
        high_watermark: the checkpointed high watermark; clamped to the offsets of the log.
        registrations: decides which followers may join the in-sync set; None lets all in.
        lag_seconds: ``replica.lag.time.max.ms``: a follower that was caught up so recently holds back the high
            watermark before it joins.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        *,
        node_id: int,
        log: PartitionLog,
        high_watermark: int = 0,
        registrations: Registrations | None = None,
        lag_seconds: float = 30.0,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: frozenset[int] = frozenset()
        self.isr = InSyncReplicas(registrations, lag_seconds)
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.is_leader = False
        self._node_id = node_id
        self.followers: dict[int, FollowerState] = {}
        """The leader's view of each follower, by broker id; empty on a follower."""
        self._leader_epoch_start = 0
        self._time = 0.0

    # Roles

    def make_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        in_sync_replicas: Collection[int],
        adding_replicas: Collection[int] = (),
        now: float = 0.0,
    ) -> bool:
        """Make this broker the leader; return True unless it led in this epoch already.

        In a new epoch, the log end offsets of followers are unknown, so the high watermark waits for each in-sync
        follower. A state with an older partition epoch than the present one changes nothing: the controller has
        answered AlterPartition before this broker's image contains the change. A state with the present epoch leaves a
        proposal in flight, which is based on it and may still be committed.
        """
        is_new = leader_epoch != self.leader_epoch or not self.is_leader
        if not is_new and partition_epoch < self.partition_epoch:
            return False
        may_be_committed = not is_new and self.isr.in_flight is not None and partition_epoch == self.partition_epoch
        self._time = max(self._time, now)
        self.log.changes.notify()  # first, because the end of a rest in a fetch session notes a follower's last fetch
        known = {} if is_new else self.followers
        for replica in self.isr.committed.difference(in_sync_replicas).intersection(known):
            # The controller removed it, as when its log directory failed: it is caught up again when it fetches.
            known[replica].caught_up_at = _NEVER
        self._describe(leader_epoch, partition_epoch, replicas, adding_replicas)
        if not may_be_committed:
            self.isr.commit(in_sync_replicas)
        self.leader_id = self._node_id
        self.is_leader = True
        self.followers = {
            # In-sync followers get the whole lag time to fetch from the new leader.
            replica: known.get(replica) or FollowerState(caught_up_at=now if replica in self.isr.committed else _NEVER)
            for replica in self.replicas
            if replica != self._node_id
        }
        if is_new:
            self._leader_epoch_start = self.log.log_end_offset
            # Before the first record of the epoch, so that followers find where older epochs end (KIP-279).
            self.log.leader_epochs.assign(leader_epoch, self._leader_epoch_start)
        return is_new

    def make_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        adding_replicas: Collection[int] = (),
    ) -> bool:
        """Make this broker a follower; return True when the leader or its epoch is new, so that fetching must
        restart.
        """
        is_new = leader_epoch != self.leader_epoch or leader_id != self.leader_id or self.is_leader
        self._describe(leader_epoch, partition_epoch, replicas, adding_replicas)
        self.isr.commit(())
        self.leader_id = leader_id
        self.is_leader = False
        self.followers = {}
        self.log.changes.notify()
        return is_new

    def _describe(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        adding_replicas: Collection[int],
    ) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.adding_replicas = frozenset(adding_replicas)

    @property
    def in_sync_replicas(self) -> frozenset[int]:
        """The committed in-sync set; empty on a follower, which does not track it."""
        return self.isr.committed

    @property
    def leader_hint(self) -> LeaderHint:
        """Return the leader and epoch known to this broker."""
        return LeaderHint(self.leader_id, self.leader_epoch)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the first record of an open transaction, or the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def high_watermark_lags(self) -> bool:
        """Whether the followers have not caught up with a new leader, so that its high watermark may be too low."""
        return self.high_watermark < min(self._leader_epoch_start, self.log.log_end_offset)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """Check that this broker leads in the epoch that the client sent (-1: none).

        Raises:
            NotLeaderForPartitionError: another broker leads.
            FencedLeaderEpochError: the client's metadata is older than the broker's.
            UnknownLeaderEpochError: the client's metadata is newer than the broker's.
        """
        if current_leader_epoch >= 0:
            self.require_epoch(current_leader_epoch)
        if not self.is_leader:
            leader = f"broker {self.leader_id} leads" if self.leader_id >= 0 else "the partition has no leader now"
            raise errors.NotLeaderForPartitionError(f"{self.topic_partition}: this broker does not lead: {leader}")

    def require_epoch(self, current_leader_epoch: int) -> None:
        """Check the leader epoch that a client sent (-1: none). Raises as `require_leader`."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise errors.FencedLeaderEpochError(
                    f"{self.topic_partition}: leader epoch {current_leader_epoch} is older than {self.leader_epoch}"
                )
            raise errors.UnknownLeaderEpochError(
                f"{self.topic_partition}: leader epoch {current_leader_epoch} is newer than {self.leader_epoch}"
            )

    # Writing

    @property
    def under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than ``min.insync.replicas`` requires; the leader takes no acks=all.

        All replicas are enough, also when they are fewer than that.
        """
        in_sync = len(self.isr.committed)
        return not in_sync or (in_sync < len(self.replicas) and in_sync < self.log.config.min_insync_replicas)

    @property
    def at_min_isr(self) -> bool:
        """Whether just as many replicas are in sync as ``min.insync.replicas`` requires."""
        return len(self.isr.committed) == min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))

    @property
    def enough_replicas(self) -> bool:
        """Whether the maximal in-sync set reaches ``min.insync.replicas``, so that committed records are safe."""
        in_sync = len(self.isr.maximal)
        return in_sync >= len(self.replicas) or in_sync >= self.log.config.min_insync_replicas

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
            NotEnoughReplicasError: too few replicas are in sync for acks=all; nothing was written. A batch that is in
                the log is not a reason: its producer has lost the answer, and waits for the commit.
            BrokerResponseError: this broker does not lead, or the log rejects the batches.
        """
        self.require_leader()
        refusal = None
        if required_acks == -1 and self.under_min_isr:
            refusal = errors.NotEnoughReplicasError(
                f"{self.topic_partition}: {len(self.isr.committed)} replicas are in sync, "
                f"min.insync.replicas requires {self.log.config.min_insync_replicas}"
            )
        return self.log.append_as_leader(
            batches,
            leader_epoch=self.leader_epoch,
            led_since=self._leader_epoch_start,
            now_ms=now_ms,
            from_client=from_client,
            guard=guard,
            transaction_version=transaction_version,
            refusal=refusal,
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

    def advance_high_watermark(self, now: float | None = None) -> bool:
        """Raise the high watermark as far as the replicas allow; return whether it rose.

        It waits for the maximal in-sync set, and for followers that are caught up and about to join it. It does not
        rise while fewer replicas are in sync than ``min.insync.replicas`` requires (KIP-966). With ``flush.messages``,
        records that wait for a flush on this broker do not count. Without ``now``, the newest time of any call counts.
        """
        if not self.is_leader:
            return False
        lowest = self.log.settled_offset
        if self.followers:
            if self.under_min_isr:
                return False
            if now is not None and now > self._time:
                self._time = now
            isr, end = self.isr, self.log.log_end_offset
            maximal = isr.maximal
            for replica, follower in self.followers.items():
                if follower.log_end_offset < lowest and (
                    replica in maximal
                    or (follower.is_caught_up(end, self._time, isr.lag_seconds) and isr.may_join(replica, follower))
                ):
                    lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        self.log.changes.notify()
        return True

    def _set_high_watermark(self, offset: int) -> None:
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.log.changes.notify()

    def use_log(self, log: PartitionLog) -> None:
        """Use ``log``, which has the same records, from now on."""
        before, self.log = self.log, log
        before.changes.notify()

    def require_follower(self, replica_id: int, current_leader_epoch: int = -1) -> None:
        """Check a fetch of another broker like `require_leader`; that broker must also have a replica.

        Raises:
            UnknownLeaderEpochError, NotLeaderForPartitionError: this broker does not know its replica yet, and the
                follower must retry. The first is for requests with a leader epoch, the second for those without.
        """
        self.require_leader(current_leader_epoch)
        if replica_id not in self.followers:
            error = errors.UnknownLeaderEpochError if current_leader_epoch >= 0 else errors.NotLeaderForPartitionError
            raise error(
                f"{self.topic_partition}: broker {replica_id} has no replica in leader epoch {self.leader_epoch}"
            )

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, now: float, *, log_start_offset: int = -1, broker_epoch: int = -1
    ) -> bool:
        """Process a follower's fetch from ``fetch_offset``: it has all records before; return whether the high
        watermark rose.

        Raises:
            NotLeaderForPartitionError: see `require_follower`; or an earlier process of that broker sent the fetch
                (KIP-903).
        """
        self.require_follower(replica_id)
        registrations = self.isr.registrations
        if broker_epoch >= 0 and registrations is not None:
            registered = registrations.broker_epoch(replica_id)
            if registered is not None and broker_epoch < registered:
                raise errors.NotLeaderForPartitionError(
                    f"{self.topic_partition}: broker {replica_id} fetched with the broker epoch {broker_epoch}, and is "
                    f"registered with {registered}"
                )
        if self.followers[replica_id].fetched(
            fetch_offset, log_start_offset, self.log.log_end_offset, broker_epoch=broker_epoch, now=now
        ):
            self.log.changes.notify()
        return self.advance_high_watermark(now)

    # The in-sync set

    def propose_expansion(self, replica_id: int) -> IsrProposal | None:
        """Propose that a follower joins; None if it may not, or has joined. See `InSyncReplicas.propose_expansion`."""
        if replica_id in self.isr.committed:
            return None
        # Below the start of the leader's epoch, a follower's records may diverge from the leader's although they are
        # below the high watermark that this leader knows.
        complete_at = max(self.high_watermark, self._leader_epoch_start)
        return self.isr.propose_expansion(
            replica_id,
            self.followers,
            complete_at,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )

    def propose_shrink(self, now: float) -> IsrProposal | None:
        """Propose that lagging followers leave; None if there are none. See `InSyncReplicas.propose_shrink`."""
        self._time = max(self._time, now)
        end = self.log.log_end_offset
        return self.isr.propose_shrink(
            self.followers, end, now, leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch
        )

    def isr_committed(self, proposal: IsrProposal, *, partition_epoch: int, in_sync_replicas: Collection[int]) -> bool:
        """Apply the controller's answer to a proposal; return False when something newer has superseded it."""
        if self.isr.in_flight is not proposal or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr.commit(in_sync_replicas)
        self.log.changes.notify()
        return True

    def isr_refused(self, proposal: IsrProposal) -> None:
        """Drop a proposal that the controller did not apply, and return to the committed set."""
        if self.isr.in_flight is proposal:
            self.isr.withdraw()

    # Following

    def require_following(self, leader_epoch: int) -> None:
        """Check that this broker still follows the leader of this epoch.

        Raises:
            FencedLeaderEpochError: it leads, or follows the leader of another epoch.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise errors.FencedLeaderEpochError(
                f"{self.topic_partition}: this replica no longer follows the leader of epoch {leader_epoch}"
            )

    def append_as_follower(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append the bytes of the leader of ``leader_epoch``.

        Raises:
            FencedLeaderEpochError: see `require_following`; nothing was appended.
            CorruptRecordError: a batch is damaged; nothing was appended.
            KafkaStorageError: the disk failed.
        """
        self.require_following(leader_epoch)
        return self.log.append_as_follower(batches, now_ms=now_ms)

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> bool:
        """Raise the high watermark and then the log start offset to the leader's; return whether the first rose.

        The leader's high watermark may be after the end of this log. The log start offset never passes the high
        watermark; the next response raises it again.
        """
        known = min(high_watermark, self.log.log_end_offset)
        rose = known > self.high_watermark
        if rose:
            self._set_high_watermark(known)
        if self.log.log_start_offset < log_start_offset <= self.high_watermark:
            self.log.advance_log_start_offset(log_start_offset)
        return rose

    def truncate_as_follower(self, offset: int, *, leader_epoch: int, now_ms: int) -> int:
        """Drop the records from ``offset`` on, which the leader does not have; return the new log end offset.

        Raises:
            FencedLeaderEpochError: see `require_following`; nothing was truncated.
            KafkaStorageError: the disk failed.
        """
        self.require_following(leader_epoch)
        if offset < self.high_watermark:
            logger.warning(
                "%s: truncating to offset %d, below the high watermark %d",
                self.topic_partition,
                offset,
                self.high_watermark,
            )
        self.log.truncate_to(offset, now_ms=now_ms)
        self._set_high_watermark(min(self.high_watermark, self.log.log_end_offset))
        return self.log.log_end_offset

    def restart_as_follower(self, offset: int, *, leader_epoch: int, now_ms: int) -> None:
        """Drop the whole log and start again at ``offset``, the leader's log start offset.

        Raises:
            FencedLeaderEpochError: see `require_following`; nothing was dropped.
            KafkaStorageError: the disk failed.
        """
        self.require_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset, now_ms=now_ms)
        self._set_high_watermark(offset)

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
        leader_only: bool = True,
    ) -> ReadOutcome:
        """Read for a fetch, below the high watermark unless for a follower. Errors are raised.

        Args:
            leader_only: refuse to read when another broker leads. Consumers may read from followers since version 11
                of Fetch (KIP-392).
            may_block: True to wait for the disk if necessary and return bytes; False to return a slice of the file
                where possible.

        Raises:
            ColdReadError: without ``may_block``, data is not in the page cache.
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            BrokerResponseError: this broker is not the leader, or not in that epoch.
        """
        if leader_only:
            self.require_leader(current_leader_epoch)
        else:
            self.require_epoch(current_leader_epoch)
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
        found = self._end_of_epoch(leader_epoch)
        start = self.log.log_start_offset
        # An epoch of which every record is deleted ends where the log starts.
        return EpochEnd(leader_epoch, start) if 0 <= found.end_offset <= start else found

    def _end_of_epoch(self, leader_epoch: int) -> EpochEnd:
        """Return the end of an epoch without regard to the log start offset."""
        end = self.log.log_end_offset
        if leader_epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(leader_epoch, end)
        return EpochEnd(*self.log.leader_epochs.end_offset_for(leader_epoch, end))

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return the epoch and offset to which a follower or consumer must truncate if its last record is not in this
        log.
        """
        end = self._end_of_epoch(last_fetched_epoch)
        if end.end_offset == UNKNOWN_OFFSET or end.epoch == -1:
            raise errors.OffsetOutOfRangeError(
                f"{self.topic_partition} has no leader epoch {last_fetched_epoch} or lower"
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None
