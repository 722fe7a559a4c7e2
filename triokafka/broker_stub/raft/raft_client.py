"""One node of the metadata quorum, as the rest of the node sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from triokafka.broker_stub.metadata.records import LogBatch
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.raft_log import SnapshotId, SnapshotWriter
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import KafkaError
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.message import Struct
from triokafka.structs import Node


class RaftClient(Protocol):
    """One node of the quorum: RaftClient(world, config, log, quorum_state, listener, connect).

    Construct it, which reads the election state and the voters; run `run` in a nursery. A quorum of one leads as soon
    as `run` begins. Every fact is current after each event of the listener.

    Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter are methods
    of the same form as `fetch`: ``await client.vote(request, version=…, listener=…)``.
    """

    failure: KafkaError | None
    """The reason why the log accepts no records until the next start, or None."""

    @property
    def node_id(self) -> int: ...
    @property
    def leader(self) -> LeaderAndEpoch: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def epoch_start_offset(self) -> int:
        """The end of the log when this leader was elected: the offset of its LeaderChange record; -1 if no leader."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset before which all records are committed; -1 while unknown."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record; `append` uses it as base offset."""
        ...

    @property
    def voters(self) -> VoterSet: ...
    @property
    def kraft_version(self) -> int: ...
    def leader_endpoint(self, listener: str | None = None) -> Node | None:
        """Return the leader's address under a listener's name (the first controller listener), or None."""
        ...

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        """Append one batch and return the end offset after it. See `MetadataLog.append`."""
        ...

    def read_committed(self, from_offset: int) -> Iterator[LogBatch]:
        """Yield the committed batches from an offset on; control batches have no records."""
        ...

    def create_snapshot(self, snapshot_id: SnapshotId, *, timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of the state before ``snapshot_id.end_offset``, with its header batch already written.

        The header has ``kraft.version`` and the voters at that offset. The caller appends batches of records and the
        footer, and calls ``finish``, in a thread. None if the snapshot exists already.
        """
        ...

    async def run(self) -> None:
        """Run the node's tasks until cancelled."""
        ...

    async def shut_down(self, *, timeout: float) -> None:
        """Leave the quorum cleanly: a leader ends its epoch (EndQuorumEpoch) and waits for the next leader."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up the leadership of ``epoch``; does nothing if this node no longer leads it."""
        ...

    async def fetch(self, request: FetchRequest, *, version: int, listener: str | None = None) -> FetchResponse: ...

    def describe_quorum(self, request: DescribeQuorumRequest, *, version: int) -> DescribeQuorumResponse: ...
