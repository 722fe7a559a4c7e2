"""A node's durable state in elections, and the interface of its storage.

The file is ``quorum-state`` in the directory of the metadata log, in Kafka's JSON format: data version 0 with static
voters, 1 (``votedDirectoryId``) with kraft.version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.named_tuple import NamedTuple


class ElectionState(NamedTuple):
    """The newest epoch that this node has seen, its vote in that epoch, and the epoch's leader; None for neither.

    A node that has voted in an epoch never votes for another candidate in it.
    """

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class QuorumStateStore(Protocol):
    """Stores the election state of one node. Calls block on the disk; the driver runs `write` in a thread."""

    def read(self) -> ElectionState | None:
        """Return the stored state; None when nothing was stored.

        Raises:
            ConfigurationError: the file cannot be read or is malformed.
        """

    def write(self, state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]) -> None:
        """Replace the stored state durably. Raises `OSError`.

        ``kraft_version`` chooses the format; ``voter_ids`` are those of data version 0 (``currentVoters``).
        """
