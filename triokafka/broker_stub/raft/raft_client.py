"""One node of the metadata quorum: thin tasks around the state machine, over channels to the other nodes.

`RaftCore` decides. The tasks here pass it requests, responses and the time, and carry out its effects: the election
state is stored and the log synced in a thread, before anything that rests on them leaves the node.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from triokafka.broker_stub.metadata.records import LogBatch, decode_batches, encode_records
from triokafka.broker_stub.raft.effects import PendingResponse, Send
from triokafka.broker_stub.raft.election_state import QuorumStateStore
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.peer_channels import PeerChannel, PeerChannels
from triokafka.broker_stub.raft.quorum_disk import QuorumDisk
from triokafka.broker_stub.raft.quorum_metrics import QuorumMetrics
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_core import RaftCore
from triokafka.broker_stub.raft.raft_listener import RaftListener
from triokafka.broker_stub.raft.raft_log_interface import RaftLog, SnapshotId, SnapshotWriter
from triokafka.broker_stub.raft.snapshot_header import encode_header
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import BrokerNotAvailableError, KafkaError, KafkaStorageError
from triokafka.protocol.message import Response, Struct
from triokafka.structs import Node
from triokafka.world import World

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

R = TypeVar("R", bound=Response)

_READ_BYTES: Final = 1 << 20
_FETCH_WITH_ENDPOINTS: Final = 16
_LONGEST_WAIT: Final = 3600.0


class RaftClient:
    """One node of the quorum.

    Construct it, which reads the election state and the voters of the log; run `run` in a nursery. A quorum of one
    leads as soon as `run` begins. Every fact is current after each event of the listener.

    ``failure`` is the reason why the log accepts no records until the next start, or None. ``unanswered`` is why the
    last request to another node got no answer; None after an answer.

    Args:
        connect: makes a channel to another node; see `PeerChannels`.

    Raises:
        ConfigurationError: the stored election state cannot be read.
        KafkaStorageError, CorruptRecordError, ProtocolError: the log cannot be read.
    """

    def __init__(
        self,
        world: World,
        config: RaftConfig,
        log: RaftLog,
        quorum_state: QuorumStateStore,
        listener: RaftListener,
        connect: Callable[[Node], PeerChannel],
    ) -> None:
        self.config = config
        self.failure: KafkaError | None = None
        self.unanswered: KafkaError | None = None
        self._world = world
        self._log = log
        self._listener = listener
        self._core = RaftCore(
            config, log, quorum_state.read(), rng=world.random, wall_ms=world.wall_ms, now=world.now()
        )
        self._skipped = 0.0
        self._not_before = -math.inf
        self._due_at = -math.inf
        self._rescheduled = trio.Event()
        self._changed = trio.Event()
        self._is_pumping = self._pump_again = False
        self._disk = QuorumDisk(
            world,
            self._core,
            log,
            quorum_state,
            now=self._now,
            on_written=self._pump,
            on_not_saved=self._not_saved,
        )
        self._nursery: trio.Nursery | None = None
        self._stopped = False
        self._waiting: dict[PendingResponse[Any], trio.Event] = {}
        self._channels = PeerChannels(connect, config.request_timeout_ms, self._request_ended)

    # Facts

    @property
    def node_id(self) -> int:
        """The id of this node."""
        return self.config.node_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """The newest epoch and its leader."""
        return self._core.quorum.leader

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the newest epoch that it knows."""
        return isinstance(self._core.quorum.state, Leader)

    @property
    def epoch_start_offset(self) -> int:
        """The end of the log when this leader was elected: the offset of its LeaderChange record; -1 if no leader."""
        state = self._core.quorum.state
        return state.epoch_start_offset if isinstance(state, Leader) else -1

    @property
    def silence_of_last_leader(self) -> tuple[int, float] | None:
        """The last other leader that this node followed, and the seconds since its last answer."""
        heard = self._core.quorum.last_heard
        return None if heard is None else (heard[0], max(self._now() - heard[1], 0.0))

    @property
    def refusal(self) -> KafkaError | None:
        """Why this node cannot lead at present: its election state or its log cannot be written, as on a full disk."""
        return self.failure or self._disk.save_failure or self._core.refusal

    @property
    def is_stuck(self) -> bool:
        """Whether this node cannot write what others commit: its disk is full, or failed."""
        return self.failure is not None or self._core.disk_refuses or self._disk.save_failure is not None

    @property
    def high_watermark(self) -> int:
        """The offset before which all records are committed; -1 while unknown."""
        return self._core.quorum.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset of the next record; `append` uses it as base offset."""
        return self._log.end_offset

    @property
    def end_epoch(self) -> int:
        """The epoch of the last record of the log."""
        return self._core.quorum.log.last_epoch

    @property
    def voters(self) -> VoterSet:
        """The newest voters, committed or not."""
        return self._core.quorum.voters

    @property
    def state_name(self) -> str:
        """The state of this node in Kafka's words, such as ``leader``; an ``observer`` follows without a vote."""
        quorum = self._core.quorum
        name = type(quorum.state).__name__.lower()
        return "observer" if name == "follower" and not quorum.is_voter else name

    @property
    def voted_for(self) -> int:
        """The node that got this node's vote in the newest epoch; -1 if none did."""
        voted = self._core.quorum.state.voted
        return -1 if voted is None else voted.node_id

    @property
    def observer_count(self) -> int | None:
        """The number of nodes without a vote that fetch the log from this leader; None if this node does not lead."""
        state = self._core.quorum.state
        return len(state.observer_progress(self._now())) if isinstance(state, Leader) else None

    @property
    def is_changing_voters(self) -> bool:
        """Whether the newest voters are not committed yet."""
        changed_at = self._core.quorum.history.voters_offset
        return changed_at is not None and changed_at >= self.high_watermark

    @property
    def metrics(self) -> QuorumMetrics:
        """The measurements of this node."""
        return self._core.quorum.metrics

    @property
    def kraft_version(self) -> int:
        """The newest ``kraft.version``."""
        return self._core.quorum.history.kraft_version

    def leader_endpoint(self) -> Node | None:
        """Return the leader's address under the name of the first controller listener, or None."""
        return self._core.quorum.leader_node(self.config.controller_listener)

    # The log

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        """Append one batch and return the end offset after it. See `MetadataLog.append`."""
        try:
            batch = encode_records(
                records,
                base_offset=self._log.end_offset,
                epoch=epoch,
                timestamp_ms=self._world.wall_ms(),
                metadata_version=metadata_version,
            )
            end_offset = self._core.append(batch, epoch, self._now())
        except KafkaError:
            self._soon()  # the caller handles its error before the listener hears of it
            raise
        self._soon()
        self._disk.request()
        return end_offset

    def upgrade_kraft_version(self, level: int, *, validate_only: bool = False) -> None:
        """Raise ``kraft.version``. The records are committed before any record that is appended afterwards.

        Raises:
            NotControllerError, InvalidUpdateVersionError, KafkaStorageError: see `RaftCore.upgrade_kraft_version`.
        """
        try:
            self._core.upgrade_kraft_version(level, validate_only=validate_only, now=self._world.now())
        finally:
            self._soon()
        self._disk.request()

    def read_committed(self, from_offset: int) -> Iterator[LogBatch]:
        """Yield the committed batches from the one that holds an offset; control batches have no records.

        Raises:
            CorruptRecordError, ProtocolError, UnsupportedVersionError: the batches cannot be decoded.
            OffsetOutOfRangeError: the offset is before the start of the log; a snapshot has it.
            KafkaStorageError: the log cannot be read.
        """
        offset = from_offset
        while offset < (end := min(self.high_watermark, self._log.end_offset)):
            before = offset
            for batch in decode_batches(self._log.read(offset, _READ_BYTES, up_to=end)):
                offset = batch.last_offset + 1
                yield batch
            if offset == before:
                raise KafkaStorageError(f"the metadata log cannot be read at offset {offset}")

    def create_snapshot(self, snapshot_id: SnapshotId, *, timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of the state before ``snapshot_id.end_offset``, with its header batch already written.

        The header has ``kraft.version`` and the voters at that offset; ``timestamp_ms`` is the time of the last change.
        The caller appends batches of records and the footer, and calls ``finish``, in a thread. None if the snapshot
        exists already, or is not after the start of the log.

        Raises:
            ValueError: the snapshot would have records that are not committed.
            KafkaStorageError: the disk failed.
        """
        if snapshot_id.end_offset > self.high_watermark:
            raise ValueError(f"{snapshot_id} is after the high watermark {self.high_watermark}")
        if snapshot_id.end_offset < self._log.start_offset:
            return None
        writer = self._log.store_snapshot(snapshot_id)
        if writer is not None:
            history = self._core.quorum.history
            history.trim_before(self._log.start_offset)
            writer.append(encode_header(history, snapshot_id, timestamp_ms=timestamp_ms))
        return writer

    # Life

    async def run(self) -> None:
        """Run the node's tasks until cancelled. At the end it syncs the log, and reports that it leads no more."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._pump()
                nursery.start_soon(self._disk.run)
                try:
                    await self._keep_time()
                finally:
                    # Other tasks call `_pump` until `_stop`, and a nursery without a running task accepts no new ones.
                    self._nursery = None
        finally:
            try:
                with trio.CancelScope(shield=True):
                    await self._disk.write()
            finally:
                self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._core.halt()
        self._channels.close()
        for event in self._waiting.values():
            event.set()
        if self.is_leader:
            self._listener.leader_changed(LeaderAndEpoch(None, self._core.quorum.epoch))
        self._report_change()

    async def shut_down(self, *, timeout: float) -> None:
        """Leave the quorum cleanly: a leader ends its epoch (EndQuorumEpoch) and waits for the next leader.

        Waits ``timeout`` seconds at most. Cancel `run` afterwards.
        """
        self._core.begin_shutdown()
        self._pump()
        with trio.move_on_after(timeout):
            while not self._core.may_stop and not self._stopped:
                await self._changed.wait()

    async def until_refusal(self) -> KafkaError:
        """Wait until this node cannot lead because of its disk; return `refusal`."""
        while (refusal := self.refusal) is None:
            await self._changed.wait()
        return refusal

    def resign(self, epoch: int) -> None:
        """Give up the leadership of ``epoch``; does nothing if this node no longer leads it."""
        self._core.resign(epoch)
        self._soon()

    def clock_jumped(self, seconds: float) -> None:
        """Keep the timers of the quorum unchanged through a jump of the world's clock by ``seconds``.

        The clocks of all nodes jump at once, and no leader was silent for that time.
        """
        self._skipped += seconds

    # Driving the state machine

    def _now(self) -> float:
        return max(self._world.now() - self._skipped, self._not_before)

    def _soon(self) -> None:
        """Let the timer's task continue at its next turn."""
        self._due_at = -math.inf
        self._rescheduled.set()

    def _pump(self) -> None:
        """Let the state machine do its due work, and carry out its effects. Its events may call this again."""
        if self._stopped:
            return
        self._pump_again = True
        if self._is_pumping:
            return
        self._is_pumping = True
        began_at = self._now()
        try:
            while self._pump_again:
                self._pump_again = False
                self._due_at = self._core.poll(self._now())
                output = self._core.take_output()
                for event in output.events:
                    event(self._listener)
                for reply in output.replies:
                    reply.release()
                if self._nursery is not None:
                    for send in output.sends:
                        self._channels.send(send, self._nursery)
        finally:
            self._is_pumping = False
            now = self._now()
            self._core.quorum.metrics.busy.record(now - began_at, now)
        if self._core.halted:
            self._fail(KafkaStorageError("the metadata log is closed for writes until a restart"))
        if self._disk.has_work:
            self._disk.request()
        self._rescheduled.set()
        self._report_change()

    def _report_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _keep_time(self) -> None:
        while True:
            self._rescheduled = trio.Event()
            now = self._now()
            if self._due_at > now:
                until = min(self._due_at, now + _LONGEST_WAIT)
                with trio.CancelScope(deadline=self._world.deadline(until + self._skipped)) as scope:
                    await self._rescheduled.wait()
                if scope.cancelled_caught:
                    self._not_before = until  # the difference of two clock readings may be below it by a rounding error
            else:
                await trio.lowlevel.checkpoint()
            if self._due_at <= self._now():
                self._pump()

    def _not_saved(self, failure: KafkaStorageError, is_first: bool) -> None:
        """Take no part in the quorum until the election state is stored."""
        if is_first:
            self._listener.rolled_back(failure)
            self._listener.leader_changed(LeaderAndEpoch(None, self._core.quorum.epoch))
            self._report_change()
        for event in self._waiting.values():
            event.set()

    def _fail(self, failure: KafkaStorageError) -> None:
        """Take no further part in the quorum until the next start."""
        if self.failure is None:
            logger.critical("Node %d leaves the metadata quorum until a restart: %s", self.node_id, failure)
            self.failure = failure
            self._core.halt()
            self._listener.rolled_back(failure)
            if self.is_leader:
                self._listener.leader_changed(LeaderAndEpoch(None, self._core.quorum.epoch))
            for event in self._waiting.values():
                event.set()

    # Requests to other nodes

    def _request_ended(self, send: Send, outcome: Any | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            self.unanswered = outcome
            self._core.request_failed(send, outcome, self._now())
        else:
            self.unanswered = None
            self._core.receive(send, outcome, self._now())
        self._pump()

    # Requests of other nodes

    async def _answer(self, reply: PendingResponse[R]) -> R:
        """Wait for the result of a request, which is durable then.

        Raises:
            BrokerNotAvailableError: this node leaves the quorum, or cannot store its election state.
        """
        event = trio.Event()
        reply.notify(lambda result: event.set())
        self._waiting[reply] = event
        try:
            if not self._stopped and self.failure is None:
                self._pump()
                if self._disk.save_failure is None:
                    await event.wait()
        finally:
            del self._waiting[reply]
        if self._stopped or self.failure is not None or self._disk.save_failure is not None or reply.result is None:
            raise BrokerNotAvailableError(f"node {self.node_id} takes no part in the metadata quorum")
        return reply.result

    def _listener_of(self, listener: str | None) -> str:
        return self.config.controller_listener if listener is None else listener

    async def vote(self, request: VoteRequest, *, version: int, listener: str | None = None) -> VoteResponse:
        """Answer a Vote. ``listener`` is the one that the request came to; the answer has the leader's address in it.

        This and the following methods raise `BrokerNotAvailableError` when this node leaves the quorum.
        """
        name, now = self._listener_of(listener), self._now()
        response = await self._answer(self._core.vote(request, listener=name, now=now))
        if version < 1:
            response.node_endpoints = []
        return response

    async def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest, *, version: int, listener: str | None = None
    ) -> BeginQuorumEpochResponse:
        """Answer a BeginQuorumEpoch."""
        name, now = self._listener_of(listener), self._now()
        response = await self._answer(self._core.begin_quorum_epoch(request, listener=name, now=now))
        if version < 1:
            response.node_endpoints = []
        return response

    async def end_quorum_epoch(
        self, request: EndQuorumEpochRequest, *, version: int, listener: str | None = None
    ) -> EndQuorumEpochResponse:
        """Answer an EndQuorumEpoch."""
        name, now = self._listener_of(listener), self._now()
        response = await self._answer(self._core.end_quorum_epoch(request, listener=name, now=now))
        if version < 1:
            response.node_endpoints = []
        return response

    async def fetch(self, request: FetchRequest, *, version: int, listener: str | None = None) -> FetchResponse:
        """Answer a Fetch of the metadata log; waits ``max_wait_ms`` at most while there is nothing new."""
        name, now = self._listener_of(listener), self._now()
        response = await self._answer(self._core.fetch(request, listener=name, now=now))
        if version < _FETCH_WITH_ENDPOINTS:
            response.node_endpoints = []
        return response

    async def fetch_snapshot(
        self, request: FetchSnapshotRequest, *, version: int, listener: str | None = None
    ) -> FetchSnapshotResponse:
        """Answer a FetchSnapshot."""
        name, now = self._listener_of(listener), self._now()
        response = await self._answer(self._core.fetch_snapshot(request, listener=name, now=now))
        if version < 1:
            response.node_endpoints = []
        return response

    def describe_quorum(self, request: DescribeQuorumRequest, *, version: int) -> DescribeQuorumResponse:
        """Answer a DescribeQuorum."""
        return self._core.describe_quorum(request, version=version, now=self._now())

    async def add_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        """Answer an AddRaftVoter, when the new voter is committed."""
        return await self._answer(self._core.add_voter(request, now=self._now()))

    async def remove_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        """Answer a RemoveRaftVoter, when the removal is committed."""
        return await self._answer(self._core.remove_voter(request, now=self._now()))

    async def update_voter(
        self, request: UpdateRaftVoterRequest, *, version: int, listener: str | None = None
    ) -> UpdateRaftVoterResponse:
        """Answer an UpdateRaftVoter."""
        name, now = self._listener_of(listener), self._now()
        return await self._answer(self._core.update_voter(request, listener=name, now=now))
