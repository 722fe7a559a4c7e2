"""The voters of the quorum: who may vote, and where to reach them. Immutable values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.stored.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from triokafka.structs import Node


class VoterEndpoint(NamedTuple):
    """The address of a node under the name of one of its listeners."""

    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    """A voter, its controller listeners, and the range of ``kraft.version`` that it supports."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 0

    @property
    def node_id(self) -> int:
        """The voter's id."""
        return self.key.node_id

    def node(self, listener: str) -> Node | None:
        """Return the voter's address under a listener's name, or None."""
        return node_of(self.key.node_id, self.endpoints, listener)


def node_of(node_id: int, endpoints: Iterable[VoterEndpoint], listener: str) -> Node | None:
    """Return the address of a node under a listener's name, or None."""
    for endpoint in endpoints:
        if endpoint.listener.upper() == listener.upper():
            return Node(node_id, endpoint.host, endpoint.port)
    return None


class VoterSet:
    """The voters by node id. A changed set differs from the one before by at most one voter, so majorities overlap."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters: Mapping[int, Voter] = {voter.node_id: voter for voter in voters}

    @classmethod
    def static(cls, addresses: Iterable[Node], listener: str) -> VoterSet:
        """Return the voters of ``controller.quorum.voters``, whose directories are unknown (kraft.version 0)."""
        return cls(
            Voter(ReplicaKey(node.node_id), (VoterEndpoint(listener, node.host, node.port),)) for node in addresses
        )

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._voters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the voters."""
        return tuple(self._voters)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The keys of the voters."""
        return tuple(voter.key for voter in self._voters.values())

    @property
    def majority(self) -> int:
        """How many voters are a majority."""
        return len(self._voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        """Return the voter with this id, or None."""
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica votes: node and, where the set names one, directory."""
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.admits(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica is a quorum of one."""
        return len(self._voters) == 1 and self.is_voter(key)

    def node(self, node_id: int, listener: str) -> Node | None:
        """Return the address of a voter under a listener's name, or None."""
        voter = self._voters.get(node_id)
        return None if voter is None else voter.node(listener)

    def with_voter(self, voter: Voter) -> VoterSet | None:
        """Return the set with one more voter, or None if the id votes already."""
        return None if voter.node_id in self._voters else VoterSet((*self, voter))

    def without_voter(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without this voter; None if it is not in the set, or is the only voter."""
        voter = self._voters.get(key.node_id)
        if voter is None or voter.key != key or len(self) == 1:
            return None
        return VoterSet(other for other in self if other is not voter)

    def with_updated(self, voter: Voter) -> VoterSet | None:
        """Return the set with new endpoints and versions of a voter; None if the set does not have its key."""
        known = self._voters.get(voter.node_id)
        if known is None or not known.key.admits(voter.key):
            return None
        return VoterSet(voter if other is known else other for other in self)

    def record(self) -> VotersRecord:
        """Return the control record that stores this set."""
        return VotersRecord(
            voters=[
                VotersRecordVoter(
                    voter_id=voter.node_id,
                    voter_directory_id=voter.key.wire_directory_id,
                    endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                    ),
                )
                for voter in self
            ]
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        """Return the set that a control record stores."""
        return cls(
            Voter(
                ReplicaKey.of(voter.voter_id, voter.voter_directory_id),
                tuple(VoterEndpoint(end.name, end.host, end.port) for end in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )


NO_VOTERS: Final = VoterSet()
"""The voters of a node that does not know the quorum yet."""
