"""The state machine of one node of the quorum: requests, responses and the time in, effects out. Pure.

Every call takes ``now``, seconds on the monotonic clock, and may change the state. Afterwards the driver

1. stores `unsaved` if it is set and calls `election_saved`,
2. carries out the effects of `take_output`: there are none before step 1,
3. begins a sync of the log if its ``flushed_offset`` is behind, and calls `flushed` after it,
4. calls `poll` at the time that `poll` has returned.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from triokafka.broker_stub.raft.effects import Output, PendingResponse, Send
from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.election_timeout import Randomness
from triokafka.broker_stub.raft.leader_change_records import epoch_controls
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_log_interface import RaftLog, SnapshotWriter
from triokafka.broker_stub.raft.raft_parts import RaftParts
from triokafka.broker_stub.raft.state_transitions import COMPLAINT_PAUSE, Quorum
from triokafka.broker_stub.raft.states import Follower, Resigned
from triokafka.broker_stub.raft.timeouts import Timeouts
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import KafkaError, KafkaStorageError, NotControllerError, UnsupportedVersionError
from triokafka.protocol.stored.control_records import ControlRecordType, KRaftVersionRecord, encode_control_key
from triokafka.records import encode_batch
from triokafka.structs import Buffer, Node

if TYPE_CHECKING:
    from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
    from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
    from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
    from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
    from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
    from triokafka.protocol.api.vote import VoteRequest, VoteResponse

logger = logging.getLogger(__name__)

R = TypeVar("R")

_CONTROL_VERSION: Final = 0
_PAUSE_AFTER_FAILURE: Final = 0.1
"""Seconds before the only voter leads again after a failed write."""
_PAUSE_AFTER_FULL_DISK: Final = 1.0
"""Seconds before a node that could not write an answer asks again."""


class RaftCore:
    """One node of the quorum. See the module for how to drive it.

    Args:
        stored: the election state of an earlier run; None at the first start.
        rng: randomness for election timeouts.
        wall_ms: the wall clock, for timestamps of records and DescribeQuorum.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        stored: ElectionState | None,
        *,
        rng: Randomness,
        wall_ms: Callable[[], int],
        now: float,
    ) -> None:
        self.config = config
        self.log = log
        self.quorum = Quorum(
            config,
            log,
            stored,
            rng=rng,
            wall_ms=wall_ms,
            now=now,
            on_become_leader=self._begin_epoch,
            on_leave_leadership=self._left_leadership,
        )
        self._parts = RaftParts(self.quorum, self._append_voters, self._append_version, self._give_up_from)
        self._timeouts = Timeouts(self.quorum, self._parts)
        self.halted = False
        """Whether the node takes no part in the quorum until its next start."""
        self.disk_refuses = False
        """Whether the last records or snapshots from another node could not be written, as on a full disk."""
        self.refusal: KafkaStorageError | None = None
        """The failure to write the first records of the last epoch of this leader; None after a sync of the log."""
        self._complained_at = -math.inf

    def _left_leadership(self, leader: Leader) -> None:
        if self._parts.used_changes is not None:
            self._parts.used_changes.left_leadership()

    # Facts

    @property
    def unsaved(self) -> ElectionState | None:
        """The election state that must be stored before anything leaves this node."""
        return self.quorum.effects.unsaved

    @property
    def unfinished_snapshot(self) -> SnapshotWriter | None:
        """A received snapshot for the driver to finish; then `snapshot_finished` or `snapshot_failed`."""
        return None if self._parts.used_fetcher is None else self._parts.used_fetcher.unfinished_snapshot

    def take_output(self) -> Output:
        """Return the effects since the last call."""
        return self.quorum.effects.take()

    def election_saved(self, state: ElectionState) -> None:
        """Record that ``state`` is stored durably."""
        self.quorum.effects.saved(state)

    def save_failed(self) -> None:
        """Forget all messages: the state that they rest on could not be stored. It stays `unsaved`."""
        self.quorum.effects.forget_messages()
        self.quorum.peers.forget_all()

    # Time

    def poll(self, now: float) -> float:
        """Do the due work; return the time of the next call at the latest."""
        quorum = self.quorum
        fetch_server = self._parts.used_fetch_server
        if self.halted:
            if fetch_server is not None:
                fetch_server.poll(now)
            return math.inf
        while True:
            state = quorum.state
            due_at = self._timeouts.poll(now)
            if quorum.state is state:
                break
        if fetch_server is not None:
            due_at = min(due_at, fetch_server.poll(now))
        return min(due_at, self._poll_changes(now))

    def _poll_changes(self, now: float) -> float:
        """Answer changes of the voters that are committed or too old; resign if this node's removal is committed."""
        quorum, leader = self.quorum, self.quorum.state
        due_at = math.inf
        changes = self._parts.used_changes
        if changes is not None:
            changes.committed(quorum.high_watermark)
            due_at = changes.poll(now)
        changed_at = quorum.history.voters_offset
        if isinstance(leader, Leader) and changed_at is not None and changed_at < quorum.high_watermark:
            if not quorum.voters.is_voter(self.config.key):
                leader.resign_requested = True
            if leader.resign_requested:
                return now
        return due_at

    # Results of sends

    def receive(self, send: Send, response: object, now: float) -> None:
        """Take the response to a request; late responses are ignored."""
        peers, node = self.quorum.peers, send.node
        if self.halted or not peers.is_expected(node.node_id, send.request_id):
            return
        success, pause = False, 0.0
        try:
            success = self._dispatch(node, response, now)
        except (KafkaError, OSError) as error:
            if isinstance(error, (KafkaStorageError, OSError)):
                pause, self.disk_refuses = _PAUSE_AFTER_FULL_DISK, True
            if now - self._complained_at >= COMPLAINT_PAUSE:
                self._complained_at = now
                logger.error(
                    "Node %d: cannot process the response of node %d: %s", self.config.node_id, node.node_id, error
                )
        peers.answered(node.node_id, send.request_id, success=success, now=now, pause=pause)

    def _dispatch(self, node: Node, response: object, now: float) -> bool:
        from triokafka.protocol.api.add_raft_voter import AddRaftVoterResponse
        from triokafka.protocol.api.api_versions import ApiVersionsResponse
        from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochResponse
        from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochResponse
        from triokafka.protocol.api.fetch import FetchResponse
        from triokafka.protocol.api.fetch_snapshot import FetchSnapshotResponse
        from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterResponse
        from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterResponse
        from triokafka.protocol.api.vote import VoteResponse

        match response:
            case FetchResponse():
                taken = self._parts.fetcher.fetched(node, response, now)
                self.disk_refuses = self.disk_refuses and not taken
                return taken
            case VoteResponse():
                return self._parts.voting.voted(node, response, now)
            case BeginQuorumEpochResponse():
                return self._parts.voting.began_quorum_epoch(node, response, now)
            case EndQuorumEpochResponse():
                return self._parts.voting.ended_quorum_epoch(node, response, now)
            case FetchSnapshotResponse():
                return self._parts.fetcher.fetched_snapshot(node, response, now)
            case ApiVersionsResponse():
                return self._parts.changes.versions_received(node, response, now)
            case UpdateRaftVoterResponse() if not response.error_code and isinstance(self.quorum.state, Follower):
                self.quorum.state.has_announced = True
                return True
            case UpdateRaftVoterResponse() | AddRaftVoterResponse() | RemoveRaftVoterResponse():
                return not response.error_code
            case _:
                raise TypeError(f"{type(response).__name__} is not a response of the quorum")

    def request_failed(self, send: Send, error: KafkaError, now: float) -> None:
        """Record that a request got no response."""
        peers, node = self.quorum.peers, send.node
        if self.halted or not peers.is_expected(node.node_id, send.request_id):
            return
        from triokafka.protocol.api.api_versions import ApiVersionsRequest
        from triokafka.protocol.api.vote import VoteRequest

        if isinstance(send.request, ApiVersionsRequest):
            self._parts.changes.versions_failed(node)
        elif isinstance(send.request, VoteRequest) and isinstance(error, UnsupportedVersionError):
            self._parts.voting.vote_unsupported(node, now)
        peers.answered(node.node_id, send.request_id, success=False, now=now)

    # Requests of others

    def _done(self, response: R) -> PendingResponse[R]:
        reply = PendingResponse[R]()
        self.quorum.effects.answer(reply, response)
        return reply

    def vote(self, request: VoteRequest, *, listener: str, now: float) -> PendingResponse[VoteResponse]:
        """See `Voting.vote`."""
        return self._done(self._parts.voting.vote(request, listener=listener, now=now))

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest, *, listener: str, now: float
    ) -> PendingResponse[BeginQuorumEpochResponse]:
        """See `Voting.begin_quorum_epoch`."""
        return self._done(self._parts.voting.begin_quorum_epoch(request, listener=listener, now=now))

    def end_quorum_epoch(
        self, request: EndQuorumEpochRequest, *, listener: str, now: float
    ) -> PendingResponse[EndQuorumEpochResponse]:
        """See `Voting.end_quorum_epoch`."""
        return self._done(self._parts.voting.end_quorum_epoch(request, listener=listener, now=now))

    def fetch(self, request: FetchRequest, *, listener: str, now: float) -> PendingResponse[FetchResponse]:
        """See `FetchServer.fetch`."""
        return self._parts.fetch_server.fetch(request, listener=listener, now=now)

    def fetch_snapshot(
        self, request: FetchSnapshotRequest, *, listener: str, now: float
    ) -> PendingResponse[FetchSnapshotResponse]:
        """See `snapshot_server.fetch_snapshot`."""
        from triokafka.broker_stub.raft.snapshot_server import fetch_snapshot

        return self._done(fetch_snapshot(self.quorum, request, listener=listener, now=now))

    def add_voter(self, request: AddRaftVoterRequest, *, now: float) -> PendingResponse[AddRaftVoterResponse]:
        """See `VoterChanges.add`."""
        return self._parts.changes.add(request, now=now)

    def remove_voter(self, request: RemoveRaftVoterRequest, *, now: float) -> PendingResponse[RemoveRaftVoterResponse]:
        """See `VoterChanges.remove`."""
        return self._parts.changes.remove(request, now=now)

    def update_voter(
        self, request: UpdateRaftVoterRequest, *, listener: str, now: float
    ) -> PendingResponse[UpdateRaftVoterResponse]:
        """See `VoterChanges.update`."""
        return self._done(self._parts.changes.update(request, listener=listener, now=now))

    def describe_quorum(self, request: DescribeQuorumRequest, *, version: int, now: float) -> DescribeQuorumResponse:
        """See `quorum_description.describe_quorum`."""
        from triokafka.broker_stub.raft.quorum_description import describe_quorum

        return describe_quorum(self.quorum, request, version=version, now=now)

    # The log

    def append(self, batch: Buffer, epoch: int, now: float) -> int:
        """Append one batch with final offsets as the leader of ``epoch``; return the end offset.

        Raises:
            NotControllerError: this node does not lead the epoch.
            KafkaStorageError: the log cannot be written; nothing was appended. This node leads no more, unless it is
                the only voter and may try again, as on a full disk.
        """
        leader = self.quorum.state
        if not isinstance(leader, Leader) or leader.epoch != epoch or self.halted or leader.resign_requested:
            raise NotControllerError(f"this node does not lead the metadata log in epoch {epoch}")
        base_offset = self.log.end_offset
        try:
            self.log.append(batch, now_ms=self.quorum.wall_ms())
        except (KafkaError, OSError) as error:
            failure = _not_written(error)
            if not (self.log.is_usable and self.quorum.voters.is_only_voter(self.config.key)):
                self.write_failed(failure, now)  # another voter may have room
            raise failure from None
        self.quorum.metrics.appended_until(self.log.end_offset, self.log.end_offset - base_offset, now)
        return self.log.end_offset

    def _append_controls(self, controls: Sequence[tuple[ControlRecordType, bytes]]) -> int:
        """Append control records in a batch of this leader's epoch; return the offset of the last one."""
        timestamp = self.quorum.wall_ms()
        batch = encode_batch(
            [(timestamp, encode_control_key(kind), value, ()) for kind, value in controls],
            base_offset=self.log.end_offset,
            leader_epoch=self.quorum.epoch,
            control=True,
        )
        self.log.append(batch, now_ms=timestamp)
        self.quorum.history.update(self.log)
        self.quorum.voters_changed()
        return self.log.end_offset - 1

    def _begin_epoch(self, leader: Leader, now: float) -> None:
        try:
            self._append_controls(epoch_controls(self.quorum, leader))
        except (KafkaError, OSError) as error:
            self.refusal = _not_written(error)
            self.write_failed(self.refusal, now)

    def _append_voters(self, voters: VoterSet, now: float) -> int:
        if isinstance(self.quorum.state, Leader):
            self.quorum.state.begin_check_quorum(now)
        return self._append_controls([(ControlRecordType.KRAFT_VOTERS, voters.record().encode(_CONTROL_VERSION))])

    def _append_version(self, level: int, voters: VoterSet) -> int:
        version = KRaftVersionRecord(kraft_version=level)
        return self._append_controls(
            [
                (ControlRecordType.KRAFT_VERSION, version.encode(_CONTROL_VERSION)),
                (ControlRecordType.KRAFT_VOTERS, voters.record().encode(_CONTROL_VERSION)),
            ]
        )

    def upgrade_kraft_version(self, level: int, *, validate_only: bool, now: float) -> None:
        """See `VoterChanges.upgrade`. Raises also `KafkaStorageError`: the log cannot be written."""
        try:
            self._parts.changes.upgrade(level, validate_only=validate_only)
        except (KafkaStorageError, OSError) as error:
            failure = _not_written(error)
            self.write_failed(failure, now)
            raise failure from None

    def flushed(self, now: float) -> None:
        """Continue after a sync of the log."""
        self.refusal = None
        self.quorum.commit(now)

    def write_failed(self, error: KafkaStorageError, now: float) -> None:
        """Drop the records that are not on disk, as after a crash, and resign: the records of an epoch must not change.

        If that fails, too, the node does nothing further until its next start.
        """
        logger.error("Node %d: cannot write the metadata log, and resigns if it leads: %s", self.config.node_id, error)
        self._timeouts.lead_again_at = now + (_PAUSE_AFTER_FAILURE if self.refusal is None else _PAUSE_AFTER_FULL_DISK)
        self._give_up_from(self.log.flushed_offset, error, now)

    def _give_up_from(self, offset: int, error: KafkaStorageError, now: float) -> None:
        """Drop the records from ``offset`` on, none of them committed, and lead no more."""
        quorum = self.quorum
        leads = isinstance(quorum.state, Leader)
        try:
            self.log.truncate_to(offset)
            quorum.history.truncate_to(self.log.end_offset)
        except (KafkaError, OSError):
            self.halt()
        if leads:
            quorum.effects.event(lambda listener: listener.rolled_back(error))
            quorum.to_resigned(now)
        quorum.voters_changed()

    def halt(self) -> None:
        """Take no further part in the quorum: the content of the disk is unknown."""
        self.halted = True

    def snapshot_finished(self, writer: SnapshotWriter, now: float) -> None:
        """See `QuorumFetcher.snapshot_finished`."""
        self._parts.fetcher.snapshot_finished(writer, now)

    def snapshot_failed(self, writer: SnapshotWriter, now: float) -> None:
        """See `QuorumFetcher.snapshot_failed`."""
        self._parts.fetcher.snapshot_failed(writer, now + _PAUSE_AFTER_FULL_DISK)

    # Leaving

    def resign(self, epoch: int) -> None:
        """Give up the leadership of ``epoch`` with the next `poll`."""
        leader = self.quorum.state
        if isinstance(leader, Leader) and leader.epoch == epoch:
            leader.resign_requested = True

    def begin_shutdown(self) -> None:
        """Leave the quorum: a leader ends its epoch, and no further election begins."""
        self.quorum.shutting_down = True

    @property
    def may_stop(self) -> bool:
        """Whether a node that leaves may stop now: it is not needed to find the next leader."""
        quorum = self.quorum
        return (
            self.halted
            or not quorum.is_voter
            or quorum.voters.is_only_voter(self.config.key)
            or (quorum.leader.leader_id is not None and not isinstance(quorum.state, (Leader, Resigned)))
        )


def _not_written(error: Exception) -> KafkaStorageError:
    return KafkaStorageError(f"the metadata log could not be written: {error}")
