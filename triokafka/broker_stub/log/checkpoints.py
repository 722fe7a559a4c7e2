"""Checkpoint files: small text files beside the segments, in Kafka's formats, read and written as a whole.

Offset checkpoints (``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
``replication-offset-checkpoint``, ``cleaner-offset-checkpoint``) hold an offset per partition of one data directory.
``leader-epoch-checkpoint`` holds the first offset of every leader epoch of one log. Offset checkpoints are replaced
atomically: a crash leaves the old content or the new one. Malformed text raises `CorruptCheckpointError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.world import Storage

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"

_MAX_LONG: Final = 2**63 - 1
_LONGEST_NUMBER: Final = 20


class CorruptCheckpointError(KafkaError):
    """A checkpoint file is malformed; the message names the file and line."""


def read_offsets(storage: Storage, path: str) -> dict[TopicPartition, int]:
    """Read the offsets of a checkpoint file; return an empty dictionary when the file is missing or empty."""
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
    """Read the (epoch, first offset) entries in file order; return an empty list when the file is missing.

    Raises `CorruptCheckpointError` for an empty file: a power cut may have taken the entries of a file that was not
    synced.
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
    """Replace a leader epoch file without syncing it."""
    replace_unsynced(storage, path, _format_entries([f"{epoch} {offset}" for epoch, offset in entries]))


def replace_unsynced(storage: Storage, path: str, content: bytes) -> None:
    """Replace a file without syncing it; unlike with `Storage.replace_file`, a power cut may leave part of the
    content.
    """
    file = storage.open(path + ".tmp", create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
    finally:
        file.close()
    storage.rename(path + ".tmp", path)


def sync_path(storage: Storage, path: str) -> None:
    """Sync the content of a file; do nothing when the file is missing. Raises `OSError`."""
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
        raise CorruptCheckpointError(f"{path} ends within a line")  # the last number may lack digits
    if lines[0] != "0":
        raise CorruptCheckpointError(f"{path} has unknown version {lines[0]!r}; expected 0")
    if len(lines) < 2 or _number(path, lines[1]) != len(lines) - 2:
        raise CorruptCheckpointError(f"{path}: line 2 must be the number of entries, {len(lines) - 2}")
    return lines[2:]


def _format_entries(lines: Sequence[str]) -> bytes:
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def _number(path: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST_NUMBER or int(digits) > _MAX_LONG:
        raise CorruptCheckpointError(f"{path}: {text[:40]!r} is not a number")
    return int(text)
