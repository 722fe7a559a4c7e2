"""The interface of a follower of the quorum's results: the metadata loader and the controller."""

from __future__ import annotations

from typing import Protocol

from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.errors import KafkaError


class RaftListener(Protocol):
    """Receives the events of a `RaftClient`, on the event loop and in order. No call waits or raises."""

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Another epoch has begun, or the leader of the newest epoch is now known, or has resigned.

        When this node itself is the leader, the call comes as soon as it is elected: `advanced` past the end of the
        log at that moment (`RaftClient.epoch_start_offset`) shows that everything before its epoch is committed.
        """

    def advanced(self, high_watermark: int) -> None:
        """Every record before ``high_watermark`` is committed. It never decreases while the node runs."""

    def load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """The leader's snapshot has replaced the whole log: the records before its end exist only in the snapshot."""

    def snapshot_needed(self) -> None:
        """This leader cannot read what another node needs: committed records that no snapshot has, or a snapshot."""

    def rolled_back(self, error: KafkaError) -> None:
        """This leader could not write its log: uncommitted records are gone, and its epoch ends with the next
        `leader_changed`.
        """
