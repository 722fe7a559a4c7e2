"""The file ``partition.metadata`` in the folder of a log, which holds the id of its topic."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Final

from triokafka.broker_stub.log.checkpoints import CorruptCheckpointError, replace_unsynced
from triokafka.structs import format_uuid, parse_uuid
from triokafka.world import Storage

PARTITION_METADATA: Final = "partition.metadata"


def read_topic_id(storage: Storage, path: str) -> uuid.UUID | None:
    """Read the topic id from a ``partition.metadata`` file; return None when the file is missing."""
    try:
        text = storage.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptCheckpointError(f"{path} is not 'version: 0' and 'topic_id: …'")
    try:
        return parse_uuid(fields["topic_id"])
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from None


def write_topic_id(storage: Storage, path: str, topic_id: uuid.UUID, *, durably: bool = False) -> None:
    """Write a ``partition.metadata`` file. Unless ``durably``, the log's next flush syncs it."""
    replace = storage.replace_file if durably else partial(replace_unsynced, storage)
    replace(path, f"version: 0\ntopic_id: {format_uuid(topic_id)}\n".encode())
