"""The identity of a replica of the metadata log: a node with one particular log directory (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from triokafka.named_tuple import NamedTuple

NO_DIRECTORY: UUID = UUID(int=0)
"""The nil id, which stands for an unknown directory in messages."""


class ReplicaKey(NamedTuple):
    """A node's id, and the id of its log directory; None while that is unknown, as for static voters."""

    node_id: int
    directory_id: UUID | None = None

    @staticmethod
    def of(node_id: int, directory_id: UUID | None) -> ReplicaKey:
        """Return the key for the fields of a message, in which a nil id stands for none."""
        return ReplicaKey(node_id, directory_id or None if directory_id != NO_DIRECTORY else None)

    @property
    def wire_directory_id(self) -> UUID:
        """The directory id as messages have it."""
        return NO_DIRECTORY if self.directory_id is None else self.directory_id

    def admits(self, other: ReplicaKey) -> bool:
        """Whether ``other`` is this replica; an unknown directory on this side admits every directory of the node."""
        return self.node_id == other.node_id and self.directory_id in (None, other.directory_id)
