"""The parts of the state machine that a quorum of one does not use. Each is imported when another node appears."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import KafkaStorageError

if TYPE_CHECKING:
    from triokafka.broker_stub.raft.fetch_server import FetchServer
    from triokafka.broker_stub.raft.quorum_fetcher import QuorumFetcher
    from triokafka.broker_stub.raft.responses import Responses
    from triokafka.broker_stub.raft.voter_changes import VoterChanges
    from triokafka.broker_stub.raft.voting import Voting


class RaftParts:
    """Constructs each part at its first use.

    Args:
        append_voters, append_version: see `VoterChanges`.
        give_up_from: see `FetchServer`.
    """

    def __init__(
        self,
        quorum: Quorum,
        append_voters: Callable[[VoterSet, float], int],
        append_version: Callable[[int, VoterSet], int],
        give_up_from: Callable[[int, KafkaStorageError, float], None],
    ) -> None:
        self._quorum = quorum
        self._append_voters = append_voters
        self._append_version = append_version
        self._give_up_from = give_up_from

    @cached_property
    def voting(self) -> Voting:
        """Elections."""
        from triokafka.broker_stub.raft.voting import Voting

        return Voting(self._quorum, self._responses)

    @cached_property
    def fetcher(self) -> QuorumFetcher:
        """Fetches from the leader."""
        from triokafka.broker_stub.raft.quorum_fetcher import QuorumFetcher

        return QuorumFetcher(self._quorum, self._responses)

    @cached_property
    def fetch_server(self) -> FetchServer:
        """Fetches of other nodes."""
        from triokafka.broker_stub.raft.fetch_server import FetchServer

        return FetchServer(self._quorum, self._give_up_from)

    @cached_property
    def changes(self) -> VoterChanges:
        """Changes of the voters."""
        from triokafka.broker_stub.raft.voter_changes import VoterChanges

        return VoterChanges(self._quorum, self._append_voters, self._append_version)

    @cached_property
    def _responses(self) -> Responses:
        from triokafka.broker_stub.raft.responses import Responses

        return Responses(self._quorum)

    @property
    def used_fetcher(self) -> QuorumFetcher | None:
        """`fetcher` if it was used before."""
        return self.fetcher if "fetcher" in self.__dict__ else None

    @property
    def used_fetch_server(self) -> FetchServer | None:
        """`fetch_server` if it was used before."""
        return self.fetch_server if "fetch_server" in self.__dict__ else None

    @property
    def used_changes(self) -> VoterChanges | None:
        """`changes` if it was used before."""
        return self.changes if "changes" in self.__dict__ else None
