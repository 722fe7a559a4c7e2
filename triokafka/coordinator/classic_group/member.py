"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import IllegalStateError
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.sync_group import SyncGroupResponse


class MemberProtocol(NamedTuple):
    """One assignment strategy that a member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """A member: its identity, timeouts, supported protocols and assignment.

    ``join_reply`` and ``sync_reply`` are its parked requests. A parked join also marks that the member has rejoined in
    this rebalance. Both are soft state; the rest is stored with the group.
    """

    member_id: str
    _: KW_ONLY
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Reply[JoinGroupResponse] | None = None
    sync_reply: Reply[SyncGroupResponse] | None = None

    def __repr__(self) -> str:
        return f"<Member {self.member_id}>"

    @property
    def awaits_join(self) -> bool:
        """Whether the member has rejoined in this rebalance."""
        return self.join_reply is not None

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id and keeps its place over a restart (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer from the coordinator, so that it is not expected to heartbeat.

        False for a new member: its first join has a timeout of its own.
        """
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for one protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise IllegalStateError(f"member {self.member_id} does not support {protocol!r}")

    def vote(self, candidates: Container[str]) -> str:
        """Return the first protocol of the member's list that is a candidate."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise IllegalStateError(f"member {self.member_id} supports none of the candidate protocols")
