"""The interface of the metadata log for the event queue: an append, and a later event for its commitment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import KafkaError
from triokafka.protocol.message import Struct


class MetadataLogListener(Protocol):
    """Receives the events of a metadata log, on the event loop."""

    def committed(self, end_offset: int) -> None:
        """Every record before ``end_offset`` is committed. Offsets never go back."""

    def rolled_back(self, error: KafkaError) -> None:
        """The log has dropped every record that is not committed, because of ``error``; its epoch continues."""

    def lost_leadership(self, epoch: int) -> None:
        """This node no longer leads ``epoch``. It will not report the commitment of further records of it."""

    def became_leader(self, epoch: int, image: MetadataImage) -> None:
        """This node leads again, in a new epoch; ``image`` has everything that was committed before."""


class MetadataLog(Protocol):
    """The replicated log of metadata records, whose leader is the active controller.

    An implementation reports the result of every append to its listener by `committed`, `rolled_back` or
    `lost_leadership`. It also reports `lost_leadership` when it stops.
    """

    @property
    def failure(self) -> KafkaError | None:
        """The reason why the log accepts no records until the next start, or None."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record. Control records of the quorum take offsets, too."""

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        """Append the records of one operation, all or none, and return the end offset of the log after them.

        Does not wait: the records are not committed yet. Their versions follow ``metadata_version``.

        Raises:
            KafkaStorageError: the log cannot be written; nothing was appended.
            NotControllerError: this node does not lead ``epoch``; nothing was appended.
        """
