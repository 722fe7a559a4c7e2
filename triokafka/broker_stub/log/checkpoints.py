"""The small text files beside the segments, in Kafka's own formats, read and written whole.

Offset checkpoints (``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
``replication-offset-checkpoint``, ``cleaner-offset-checkpoint``) hold an offset per partition of one data directory;
``leader-epoch-checkpoint`` the first offset of every leader epoch of one log; ``partition.metadata`` the topic id.
Offset checkpoints are replaced atomically: a crash leaves the old content or the new one. Text that is not
what a writer would have written raises `CorruptCheckpointError`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition, format_uuid, parse_uuid
from triokafka.world import Storage

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

_MAX_LONG: Final = 2**63 - 1
_LONGEST_NUMBER: Final = 20


class CorruptCheckpointError(KafkaError):
    """A checkpoint file is not in its format; the message says which file and line."""


def read_offsets(storage: Storage, path: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file; nothing when the file is missing or empty."""
    offsets = {}
    for line in _read_entries(storage, path):
        fields = line.rsplit(" ", 2)
        if len(fields) != 3:
            raise CorruptCheckpointError(f"{path}: {line!r} is not 'topic partition offset'")
        offsets[TopicPartition(fields[0], _number(path, fields[1]))] = _number(path, fields[2])
    return offsets


def write_offsets(storage: Storage, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint file by ``offsets``."""
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    storage.replace_file(path, _format_entries(lines))


def read_leader_epochs(storage: Storage, path: str) -> list[tuple[int, int]]:
    """(epoch, first offset), as they are in the file; nothing when the file is missing.

    An empty one is what a power cut leaves of a file that was not synced yet: it may have had entries.
    """
    entries = []
    if storage.exists(path) and not storage.read_file(path):
        raise CorruptCheckpointError(f"{path} is empty")
    for line in _read_entries(storage, path):
        fields = line.split(" ")
        if len(fields) != 2:
            raise CorruptCheckpointError(f"{path}: {line!r} is not 'epoch offset'")
        entries.append((_number(path, fields[0]), _number(path, fields[1])))
    return entries


def write_leader_epochs(storage: Storage, path: str, entries: Sequence[tuple[int, int]]) -> None:
    """Replace a leader epoch file. Not synced."""
    replace_unsynced(storage, path, _format_entries([f"{epoch} {offset}" for epoch, offset in entries]))


def read_topic_id(storage: Storage, path: str) -> uuid.UUID | None:
    """The topic id in a ``partition.metadata`` file; None when there is no file."""
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


def replace_unsynced(storage: Storage, path: str, content: bytes) -> None:
    """Like `Storage.replace_file`, but the operating system decides when it reaches the disk; a crash may tear it."""
    file = storage.open(path + ".tmp", create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
    finally:
        file.close()
    storage.rename(path + ".tmp", path)


def sync_path(storage: Storage, path: str) -> None:
    """Make the content of a file durable; nothing to do when it was removed meanwhile. Raises `OSError`."""
    try:
        file = storage.open(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def _read_entries(storage: Storage, path: str) -> list[str]:
    try:
        text = storage.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    lines = text.splitlines()
    if not lines:
        return []
    if not text.endswith("\n"):
        raise CorruptCheckpointError(f"{path} ends within a line")  # of the number there, digits may be missing
    if lines[0] != "0":
        raise CorruptCheckpointError(f"{path} has version {lines[0]!r}, 0 is known")
    if len(lines) < 2 or _number(path, lines[1]) != len(lines) - 2:
        raise CorruptCheckpointError(f"{path}: the second line should say how many of the {len(lines) - 2} follow")
    return lines[2:]


def _format_entries(lines: Sequence[str]) -> bytes:
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def _number(path: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST_NUMBER or int(digits) > _MAX_LONG:
        raise CorruptCheckpointError(f"{path}: {text[:40]!r} is not a number")
    return int(text)
