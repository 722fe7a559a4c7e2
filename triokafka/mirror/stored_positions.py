"""A flow's progress, stored in a compacted topic of the target cluster: ``SOURCE.mirror-positions.internal``.

A partition has one record with its next offset, and one for each block of its offset map. Keys and values are JSON.
With ``exactly_once`` they are part of the transaction that writes the mirrored records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from triokafka.client.consumer.read_epochs import ReadEpochs
from triokafka.errors import KafkaError
from triokafka.mirror.offset_translation import OffsetTranslation, Run
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_VERSION = 1
_UNKNOWN = ReadEpochs()


class MirrorPositionsError(KafkaError):
    """The stored progress of a flow cannot be read."""

    advice = "Use the version of triokafka that wrote it, or delete the topic to mirror everything again."


@dataclass(slots=True)
class StoredPosition:
    """The stored progress through one source partition."""

    topic_id: UUID | None = None
    remote_id: UUID | None = None
    """Id of the topic in the target; None if it was not stored, or if its brokers do not have ids."""
    floor: int = 0
    next_offset: int = -1
    blocks: dict[int, list[Run]] = field(default_factory=dict)
    epochs: ReadEpochs = _UNKNOWN
    """Leader epochs before ``next_offset``; unknown if they were not stored (before 1.0)."""
    extent: tuple[int, int] | None = None
    """Which runs the map had; None if it was not stored (before 1.0)."""

    def offset_translation(self) -> OffsetTranslation:
        """Return the offset map as it was stored."""
        return OffsetTranslation.restore(self.floor, self.next_offset, self.blocks, self.extent)


def encode_changes(
    partition: TopicPartition,
    topic_id: UUID | None,
    offsets: OffsetTranslation,
    remote_id: UUID | None = None,
    epochs: ReadEpochs = _UNKNOWN,
) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of the records that store the changes of a map since the last call.

    The blocks come first: a crash between two records then leaves the older next offset, and
    `OffsetTranslation.restore` drops what lies beyond it.
    """
    name = {"topic": partition.topic, "partition": partition.partition}
    records: list[tuple[bytes, bytes | None]] = [
        (_text({**name, "block": number}), None if runs is None else _text({"version": _VERSION, "runs": runs}))
        for number, runs in offsets.take_changes().items()
    ]
    value = {
        "version": _VERSION,
        "topic_id": None if topic_id is None else str(topic_id),
        "remote_id": None if remote_id is None else str(remote_id),
        "floor": offsets.floor,
        "next_offset": offsets.next_offset,
        "extent": offsets.extent,
        "epochs": epochs,
    }
    return [*records, (_text(name), _text(value))]


def decode_positions(records: Mapping[bytes, bytes]) -> dict[TopicPartition, StoredPosition]:
    """Return the progress of partitions from the topic's records.

    Raises:
        MirrorPositionsError: a record is damaged, or of a newer version.
    """
    found: dict[TopicPartition, StoredPosition] = {}
    for key, value in records.items():
        try:
            name, stored = json.loads(key), json.loads(value)
            if stored["version"] != _VERSION:
                raise MirrorPositionsError(f"progress of version {stored['version']} is newer than {_VERSION}: {key!r}")
            partition = TopicPartition(str(name["topic"]), int(name["partition"]))
            position = found.setdefault(partition, StoredPosition())
            if "block" in name:
                position.blocks[int(name["block"])] = [Run(*map(int, run)) for run in stored["runs"]]
            else:
                position.topic_id = None if stored["topic_id"] is None else UUID(stored["topic_id"])
                position.remote_id = None if stored.get("remote_id") is None else UUID(stored["remote_id"])
                position.floor, position.next_offset = int(stored["floor"]), int(stored["next_offset"])
                if (epochs := stored.get("epochs")) is not None:
                    last, since, before = epochs
                    position.epochs = ReadEpochs(int(last), None if since is None else int(since), int(before))
                if (extent := stored.get("extent")) is not None:
                    first, count = map(int, extent)
                    position.extent = first, count
        except (ValueError, KeyError, TypeError) as error:
            raise MirrorPositionsError(f"progress under key {key!r} is damaged: {value!r}") from error
    return {partition: position for partition, position in found.items() if position.next_offset >= 0}


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
