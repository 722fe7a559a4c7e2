"""The follower's side of replication: fetches records, truncates where the logs diverge, and loads snapshots."""

from __future__ import annotations

import logging
import math

from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.log_comparison import truncation_offset
from triokafka.broker_stub.raft.raft_log_interface import OffsetAndEpoch, SnapshotId, SnapshotWriter
from triokafka.broker_stub.raft.responses import Responses
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.broker_stub.raft.states import Follower
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.fetch_snapshot import AnsweredPartition as PartitionSnapshot
from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from triokafka.structs import Node

logger = logging.getLogger(__name__)


class QuorumFetcher:
    """Sends Fetch and FetchSnapshot to the leader, and takes the answers into the log.

    A controller says that it has records only once they are on disk: it fetches again after the sync.

    ``unfinished_snapshot`` is a completely received snapshot, which the driver must finish (`SnapshotWriter.finish`).
    """

    def __init__(self, quorum: Quorum, responses: Responses) -> None:
        self._quorum = quorum
        self._responses = responses

    @property
    def unfinished_snapshot(self) -> SnapshotWriter | None:
        """A snapshot whose last part has arrived."""
        state = self._quorum.state
        return state.snapshot if isinstance(state, Follower) and state.finishing_snapshot else None

    # Requests

    def request(self) -> FetchRequest | FetchSnapshotRequest | None:
        """Return the next request to the leader; None while the disk has to catch up first."""
        quorum = self._quorum
        state = quorum.state
        if isinstance(state, Follower) and state.snapshot is not None:
            if state.finishing_snapshot:
                return None
            return messages.fetch_snapshot_request(quorum, state.snapshot.snapshot_id, state.snapshot.size)
        # An observer may become a voter between two fetches, and the leader then counts what it has fetched.
        if quorum.config.can_vote and quorum.log.flushed_offset < quorum.log.end_offset:
            return None
        return messages.fetch_request(quorum)

    def fetch_from(self, node: Node, now: float) -> float:
        """Send the next request to the leader if it is ready; return when it will be."""
        peers = self._quorum.peers
        if peers.ready_at(node.node_id, now) > now:
            return peers.ready_at(node.node_id, now)
        request = self.request()
        return math.inf if request is None else peers.send(node, request, now)

    def fetch_from_bootstrap(self, now: float, *, excluding: int) -> float:
        """Ask a node that may know the leader; return when the next one can be asked."""
        peers = self._quorum.peers
        if peers.waits_until(now) > now:
            return peers.waits_until(now)
        nodes = self._quorum.possible_leaders(excluding=excluding)
        node = peers.any_ready(nodes, now)
        if node is None:
            return peers.first_ready_at(nodes, now)
        return peers.send(node, messages.fetch_request(self._quorum), now)

    # Responses

    def _handled(
        self,
        source: Node,
        response: FetchResponse | FetchSnapshotResponse,
        partition: PartitionData | PartitionSnapshot | None,
        now: float,
    ) -> bool | None:
        """Return None if the content of a response counts; else whether the leader may be asked again without a pause.

        ``partition`` is the metadata log's part of the response.
        """
        if response.error_code:
            return self._responses.unexpected(source, response.error_code)
        if partition is None:
            return False
        leader = partition.current_leader
        return self._responses.common(
            partition.error_code, leader.leader_id, leader.leader_epoch, response.node_endpoints, source, now
        )

    # Fetch

    def fetched(self, source: Node, response: FetchResponse, now: float) -> bool:
        """Take the answer to a Fetch. Returns whether the leader may be asked again without a pause."""
        quorum = self._quorum
        partition = messages.only_partition(response.responses)
        handled = self._handled(source, response, partition, now)
        if handled is not None or partition is None:
            return bool(handled)
        state = quorum.state
        if not isinstance(state, Follower):
            return True
        if partition.error_code:
            return self._responses.unexpected(source, partition.error_code)
        if not self._take(state, partition, now):
            return False
        quorum.heard_from_leader(state, now)
        state.has_fetched = True
        return True

    def _take(self, state: Follower, partition: PartitionData, now: float) -> bool:
        quorum, log = self._quorum, self._quorum.log
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            offset = truncation_offset(log, OffsetAndEpoch(diverging.end_offset, diverging.epoch))
            if offset < quorum.high_watermark:
                logger.error(
                    "Node %d: leader %d requires a truncation of the metadata log to offset %d, but everything before "
                    "offset %d is committed",
                    quorum.config.node_id, state.leader_id, offset, quorum.high_watermark,
                )  # fmt: skip
                return False
            log.truncate_to(offset)
            quorum.history.truncate_to(offset)
            quorum.voters_changed()
        elif snapshot.epoch >= 0 or snapshot.end_offset >= 0:
            if snapshot.epoch < 0 or snapshot.end_offset < 0:
                return False
            state.snapshot = log.store_snapshot(SnapshotId(snapshot.end_offset, snapshot.epoch))
            if state.snapshot is None and not self._load_snapshot():
                return False  # this node has the snapshot and more; the leader may know more later
        else:
            if partition.records:
                base_offset = log.end_offset
                log.append(partition.records, now_ms=quorum.wall_ms())
                quorum.metrics.fetched.record(log.end_offset - base_offset, now)
                quorum.history.update(log)
                quorum.voters_changed()
            quorum.advance(partition.high_watermark)
        return True

    # Snapshots

    def fetched_snapshot(self, source: Node, response: FetchSnapshotResponse, now: float) -> bool:
        """Take a part of a snapshot. Returns whether the leader may be asked again without a pause."""
        quorum = self._quorum
        partition = messages.only_partition(response.topics)
        handled = self._handled(source, response, partition, now)
        if handled is not None or partition is None:
            return bool(handled)
        state = quorum.state
        if not isinstance(state, Follower) or state.snapshot is None:
            return True
        writer, snapshot = state.snapshot, SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        quorum.heard_from_leader(state, now)
        if partition.error_code or snapshot != writer.snapshot_id or partition.position != writer.size:
            # The leader has deleted the snapshot, or the answer is not to the last request: begin again with a Fetch.
            writer.abandon()
            state.snapshot = None
            return not partition.error_code
        writer.append(partition.unaligned_records or b"")
        state.finishing_snapshot = writer.size >= partition.size
        return True

    def snapshot_finished(self, writer: SnapshotWriter, now: float) -> None:
        """Continue after the driver has finished a snapshot: replace the log with it."""
        state = self._quorum.state
        if isinstance(state, Follower) and state.snapshot is writer:
            state.snapshot, state.finishing_snapshot = None, False
            self._quorum.heard_from_leader(state, now)
        self._load_snapshot()

    def snapshot_failed(self, writer: SnapshotWriter, until: float) -> None:
        """Give up a snapshot that is damaged or could not be stored, and ask the leader no more before ``until``."""
        state = self._quorum.state
        if isinstance(state, Follower) and state.snapshot is writer:
            state.snapshot, state.finishing_snapshot = None, False
            self._quorum.peers.pause(state.leader_id, until)

    def _load_snapshot(self) -> bool:
        """Replace the log with the newest snapshot; return False if the log has more than that."""
        quorum = self._quorum
        if not quorum.log.truncate_to_latest_snapshot():
            return False
        snapshot_id = quorum.log.latest_snapshot_id()
        assert snapshot_id is not None
        quorum.history.reload(quorum.log)
        quorum.voters_changed()
        quorum.effects.event(lambda listener: listener.load_snapshot(snapshot_id))
        quorum.advance(snapshot_id.end_offset)
        return True
