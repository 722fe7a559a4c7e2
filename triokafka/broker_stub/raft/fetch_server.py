"""The leader's side of replication: answers Fetch, holds it while there is nothing new, and commits."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.effects import PendingResponse
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.log_comparison import LogComparison, compare
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.state_transitions import COMPLAINT_PAUSE, Quorum
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse
from triokafka.structs import Buffer

logger = logging.getLogger(__name__)

MAX_HELD: Final = 10_000
"""The most Fetch requests that a leader holds; further ones are answered immediately."""
_PATIENCE_WITH_READS: Final = 1.0
"""Seconds for which reads of uncommitted records may fail before the leader drops them."""


@dataclass(slots=True)
class _Held:
    """A Fetch that found nothing, answered at ``expires_at`` at the latest."""

    request: FetchRequest
    listener: str
    reply: PendingResponse[FetchResponse]
    expires_at: float


class FetchServer:
    """Answers the fetches of followers and observers, and records how far they are.

    Args:
        give_up: removes the records of this leader from an offset on, which are not committed, and ends its leadership.
    """

    def __init__(self, quorum: Quorum, give_up: Callable[[int, KafkaStorageError, float], None]) -> None:
        self._quorum = quorum
        self._give_up = give_up
        self._held: list[_Held] = []
        self._complained_at = -math.inf
        self._asked_at = -math.inf
        self._unreadable = (-1, math.inf)

    def fetch(self, request: FetchRequest, *, listener: str, now: float) -> PendingResponse[FetchResponse]:
        """Answer a Fetch, now or when there are records or a higher high watermark.

        Partition errors: INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER,
        BROKER_NOT_AVAILABLE. Of the whole request: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST.
        """
        quorum, reply = self._quorum, PendingResponse[FetchResponse]()
        partition = messages.fetch_partition(request)
        if not messages.is_cluster(request.cluster_id, quorum.config.cluster_id):
            quorum.effects.answer(reply, FetchResponse(error_code=errors.InconsistentClusterIdError.code))
        elif partition is None:
            quorum.effects.answer(reply, FetchResponse(error_code=errors.InvalidRequestError.code))
        elif (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > partition.current_leader_epoch
            or messages.replica_id(request) == quorum.config.node_id
        ):
            self._answer(reply, listener, request, error=errors.InvalidRequestError.code)
        elif not self._try(request, partition, listener, reply, now):
            if request.max_wait_ms == 0 or len(self._held) >= MAX_HELD:
                self._answer(reply, listener, request)
            else:
                self._held.append(_Held(request, listener, reply, now + request.max_wait_ms / 1000))
        return reply

    def _try(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        listener: str,
        reply: PendingResponse[FetchResponse],
        now: float,
    ) -> bool:
        """Answer if there is something to say; return whether it did."""
        quorum = self._quorum
        error = leader_error(quorum, partition.current_leader_epoch)
        leader = quorum.state
        if error or not isinstance(leader, Leader):
            self._answer(reply, listener, request, error=error)
            return True
        comparison = compare(quorum.log, partition.fetch_offset, partition.last_fetched_epoch)
        if comparison.diverging is not None or comparison.snapshot is not None:
            self._answer(reply, listener, request, comparison=comparison)
            return True
        key = ReplicaKey.of(messages.replica_id(request), partition.replica_directory_id)
        if key.node_id >= 0:
            leader.fetched(key, partition.fetch_offset, quorum.log.end_offset, now)
            quorum.commit(now)
        if (
            partition.fetch_offset >= quorum.log.end_offset
            and (leader.high_watermark or -1) <= partition.high_watermark
        ):
            return False
        size = max(1, min(request.max_bytes, partition.partition_max_bytes, quorum.config.fetch_max_bytes))
        try:
            records = quorum.log.read(partition.fetch_offset, size)
        except (CorruptRecordError, KafkaStorageError) as failure:
            self._answer_about_damage(request, partition, listener, reply, failure, now)
        else:
            self._answer(reply, listener, request, records=records)
        return True

    def _answer_about_damage(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        listener: str,
        reply: PendingResponse[FetchResponse],
        failure: CorruptRecordError | KafkaStorageError,
        now: float,
    ) -> None:
        """Send the newest snapshot instead of records that cannot be read, if it contains them.

        If none does, this node takes one, because the image that it has in memory contains every committed record.
        Records that are not committed are given up: this log, longer than the others, would win every election. Records
        that another leader may have committed stay: only a node that has them can say.
        """
        quorum, offset = self._quorum, partition.fetch_offset
        newest = quorum.log.latest_snapshot_id()
        helps = newest is not None and newest.end_offset > offset
        is_committed = offset < quorum.high_watermark
        holders = [] if helps or is_committed else _possible_holders(quorum, offset)
        gives_up = not (helps or is_committed or holders) and self._stays_unreadable(offset, failure, now)
        if helps:
            remedy = "The snapshot that contains them is sent instead"
        elif is_committed:
            remedy = "A snapshot that contains them is taken, and sent instead"
        elif gives_up:
            remedy = "They are not committed: this node drops them, and leads no more in this epoch"
        elif not holders:
            remedy = "They are not committed. If the next attempts fail, too, this node drops them"
        else:
            remedy = (
                "They may be committed, and no other running node has them, so nothing can be committed now. Start the "
                f"controllers of which one may have them: {', '.join(map(str, holders))}. If these are lost for ever, "
                "stop this node, cut its metadata log with triokafka log repair, and start it: the records from "
                f"offset {offset} on are lost then"
            )
        if gives_up or now - self._complained_at >= COMPLAINT_PAUSE:
            self._complained_at = now
            logger.error(
                "Node %d: the records of the metadata log at offset %d cannot be read: %s. %s. Check the disk.",
                quorum.config.node_id, offset, failure, remedy,
            )  # fmt: skip
        if not helps and is_committed and now - self._asked_at >= COMPLAINT_PAUSE:
            self._asked_at = now
            quorum.effects.event(lambda listener: listener.snapshot_needed())
        if helps:
            self._answer(reply, listener, request, comparison=LogComparison(snapshot=newest))
        elif gives_up:
            self._give_up(offset, KafkaStorageError(f"uncommitted records cannot be read: {failure}"), now)
            self._answer(reply, listener, request, error=leader_error(quorum, partition.current_leader_epoch))
        else:
            self._answer(reply, listener, request, error=failure.code)

    def _stays_unreadable(self, offset: int, failure: CorruptRecordError | KafkaStorageError, now: float) -> bool:
        """Whether records are damaged, or could not be read for some time, as after a lack of open files."""
        if self._unreadable[0] != offset or now < self._unreadable[1]:
            self._unreadable = offset, now
        return isinstance(failure, CorruptRecordError) or now - self._unreadable[1] >= _PATIENCE_WITH_READS

    def _answer(
        self,
        reply: PendingResponse[FetchResponse],
        listener: str,
        request: FetchRequest,
        *,
        error: int = 0,
        comparison: LogComparison | None = None,
        records: Buffer = b"",
    ) -> None:
        quorum = self._quorum
        leader = quorum.state
        high_watermark = -1
        if isinstance(leader, Leader) and not error and leader.high_watermark is not None:
            high_watermark = leader.high_watermark
        quorum.effects.answer(
            reply,
            messages.fetch_response(
                quorum, listener, error=error, comparison=comparison, records=records, high_watermark=high_watermark
            ),
        )

    def poll(self, now: float) -> float:
        """Answer held requests that have something new or whose time is over; return when the next one ends."""
        held, self._held = self._held, []
        for index, entry in enumerate(held):
            partition = messages.fetch_partition(entry.request)
            if partition is not None and self._has_news_for(partition):
                self._try(entry.request, partition, entry.listener, entry.reply, now)
            elif entry.expires_at <= now:
                self._answer(entry.reply, entry.listener, entry.request)
            else:
                self._held.append(held[index])
        return min((entry.expires_at for entry in self._held), default=float("inf"))

    def _has_news_for(self, partition: FetchPartition) -> bool:
        """Whether a held request has to be answered: new records, another epoch, a higher high watermark."""
        quorum = self._quorum
        leader = quorum.state
        return (
            not isinstance(leader, Leader)
            or partition.current_leader_epoch != leader.epoch
            or partition.fetch_offset < quorum.log.end_offset
            or (leader.high_watermark or -1) > partition.high_watermark
            or quorum.shutting_down
        )


def _possible_holders(quorum: Quorum, offset: int) -> list[int]:
    """Return the other voters that may have a record of this leader which may be committed; none if it is not.

    This leader has not committed it.
    """
    leader, changed_at = quorum.state, quorum.history.voters_offset
    if not isinstance(leader, Leader) or offset >= leader.epoch_start_offset:
        return []  # no other node commits the records of this epoch
    holders = leader.possible_holders(offset)
    if changed_at is not None and changed_at > offset:
        return holders or sorted(quorum.voters.ids)  # fewer nodes may have been a majority before the voters changed
    return holders if 1 + len(holders) >= quorum.voters.majority else []


def leader_error(quorum: Quorum, epoch: int) -> int:
    """Return the error code for a request to the leader of ``epoch``; 0 if this node is that leader."""
    if epoch < quorum.epoch:
        return errors.FencedLeaderEpochError.code
    if epoch > quorum.epoch:
        return errors.UnknownLeaderEpochError.code
    if not isinstance(quorum.state, Leader):
        return errors.NotLeaderForPartitionError.code
    if quorum.shutting_down:
        return errors.BrokerNotAvailableError.code
    return 0
