"""Recovery of a log whose move to another data directory a crash interrupted, from folder names and a mark.

A move makes a copy (``topic-partition.…-future``). When all of the copy is on disk, it gets the mark `MOVED_HERE`. Then
the log's folder is renamed to ``…-delete``, and the copy's folder to the log's name; each rename is on disk before the
next step. Last, the mark is removed. So a copy with the mark and without a log beside it is the log. Of two logs with
one name, the one without the mark was to be deleted. While the log exists, a copy is worthless and is made again.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from triokafka.broker_stub.log.checkpoints import CorruptCheckpointError
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    LogDirectory,
    folder_name,
    parse_folder,
    renamed_folder,
)
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA, read_topic_id
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)

MOVED_HERE: Final = "moved-here"
"""A file in the folder of a complete copy, with the folder's new name; the file itself may be incomplete."""


class UnfinishedMove(NamedTuple):
    """A move to start again."""

    topic_partition: TopicPartition
    target: LogDirectory


class MoveOutcome(enum.Enum):
    """The outcome of an `exchange`."""

    DONE = "the copy has replaced the log"
    AS_BEFORE = "the log is unchanged"
    UNCLEAR = "the next start determines the outcome"


class Problem(NamedTuple):
    """A disk error of a log (``path`` is its folder) or of its copy."""

    path: str
    error: OSError


class UnsettledError(Exception):
    """The disk of ``directory`` has failed with ``error``."""

    def __init__(self, directory: LogDirectory, error: OSError) -> None:
        super().__init__(f"{directory.path}: {error}")
        self.directory = directory
        self.error = error


def exchange(
    storage: Storage, topic_partition: TopicPartition, *, log: str, gone: str, copy: str, path: str
) -> tuple[MoveOutcome, list[Problem]]:
    """Make the copy in the folder ``copy``, which is completely on disk, the log, with the folder ``path``.

    The folder ``log`` becomes ``gone``. Problems are disk errors; the exchange may succeed in spite of them.
    """
    try:
        take_mark(storage, log)
    except OSError as error:
        return MoveOutcome.AS_BEFORE, [Problem(log, error)]
    try:
        mark_whole(storage, copy, topic_partition)
    except OSError as error:
        return MoveOutcome.AS_BEFORE, [Problem(copy, error)]
    problems = []
    try:
        storage.rename(log, gone)
    except OSError as error:
        return MoveOutcome.AS_BEFORE, [Problem(log, error)]
    try:
        storage.sync_dir(os.path.dirname(gone))
    except OSError as error:
        problems.append(Problem(log, error))  # the mark stays, and decides which log is valid if this name comes back
    try:
        storage.rename(copy, path)
    except OSError as error:
        problems.append(Problem(copy, error))
        try:
            storage.rename(gone, log)
            storage.sync_dir(os.path.dirname(log))
        except OSError as worse:
            return MoveOutcome.UNCLEAR, [*problems, Problem(log, worse)]
        return MoveOutcome.AS_BEFORE, problems
    try:
        storage.sync_dir(os.path.dirname(path))
        if not problems:
            take_mark(storage, path)
    except OSError as error:
        problems.append(Problem(copy, error))
    return MoveOutcome.DONE, problems


def mark_whole(storage: Storage, folder: str, topic_partition: TopicPartition) -> None:
    """Set the mark, durably: the copy in ``folder`` may replace the log. Raises `OSError`."""
    storage.replace_file(f"{folder}/{MOVED_HERE}", folder_name(topic_partition).encode())


def take_mark(storage: Storage, folder: str) -> None:
    """Remove the mark, durably; it may be missing. Raises `OSError`."""
    if storage.exists(f"{folder}/{MOVED_HERE}"):
        storage.remove(f"{folder}/{MOVED_HERE}")
        storage.sync_dir(folder)


def settle_moves(
    storage: Storage,
    directories: Sequence[LogDirectory],
    again: list[UnfinishedMove],
    *,
    all_there: bool,
    new_name: Callable[[], str],
) -> None:
    """Finish or restart every interrupted move.

    Args:
        directories: the online directories, locked.
        again: receives the moves to start again, including those found before an error; their copies are removed.
        all_there: whether all directories are online. Otherwise a missing log may be in an offline one, and copies are
            not touched.
        new_name: returns a unique part for the name of a folder to delete.

    Raises:
        UnsettledError: a directory cannot be read or written. Without that directory the rest can be finished.
    """
    logs = {}
    for directory in directories:
        with _on_disk_of(directory):
            logs[directory] = directory.log_folders()
    _drop_originals(storage, logs, new_name)
    for directory in directories:
        with _on_disk_of(directory):
            copies = [(folder, *_copy_of(storage, folder)) for folder in directory.future_folders()]
        for folder, topic_partition, whole in copies:
            if topic_partition is None:
                logger.warning("%s is not the copy of a partition; it is left unchanged", folder)
                continue
            there = [(place, known[topic_partition]) for place, known in logs.items() if topic_partition in known]
            own = [(place, log) for place, log in there if _same_topic(storage, [(place, log), (directory, folder)])]
            if own or (there and not whole):
                with _on_disk_of(directory):
                    if own:
                        again.append(UnfinishedMove(topic_partition, directory))
                    log = (own or there)[0][1]
                    logger.info("%s is removed: it is a copy of %s, which still exists", folder, log)
                    storage.remove_tree(folder)
            elif whole and all_there and topic_partition not in logs[directory]:
                target = f"{directory.path}/{folder_name(topic_partition)}"
                logger.info("%s is complete, and becomes %s", folder, target)
                with _on_disk_of(directory):
                    storage.rename(folder, target)
                # The log's rename may not have been on disk at the crash: the log must not come back without the mark.
                for each in directories:
                    with _on_disk_of(each):
                        storage.sync_dir(each.path)
                with _on_disk_of(directory):
                    take_mark(storage, target)
            else:
                logger.warning("%s is a copy of a log that does not exist here; it is left unchanged", folder)


@contextmanager
def _on_disk_of(directory: LogDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnsettledError(directory, error) from error


def _drop_originals(
    storage: Storage, logs: Mapping[LogDirectory, dict[TopicPartition, str]], new_name: Callable[[], str]
) -> None:
    """Rename the one of two logs that was to be renamed at the power cut."""
    places: dict[TopicPartition, list[LogDirectory]] = {}
    for directory, known in logs.items():
        for topic_partition in known:
            places.setdefault(topic_partition, []).append(directory)
    for topic_partition, found in places.items():
        if len(found) < 2:
            continue
        original = [d for d in found if not storage.exists(f"{logs[d][topic_partition]}/{MOVED_HERE}")]
        copies = [d for d in found if d not in original]
        if len(original) == 1 and len(copies) == 1:
            if not _same_topic(storage, [(d, logs[d][topic_partition]) for d in found]):
                continue  # the log of a former topic, whose directory was offline when the topic was deleted
            path = logs[original[0]].pop(topic_partition)
            logger.info("%s is deleted: the log was moved to %s", path, copies[0].path)
            target = renamed_folder(topic_partition, new_name(), DELETE_SUFFIX)
            with _on_disk_of(original[0]):
                storage.rename(path, f"{original[0].path}/{target}")
                storage.sync_dir(original[0].path)
            with _on_disk_of(copies[0]):
                take_mark(storage, logs[copies[0]][topic_partition])


def _same_topic(storage: Storage, folders: Sequence[tuple[LogDirectory, str]]) -> bool:
    """Return whether logs may be of one topic, by their topic ids."""
    known = set()
    for directory, folder in folders:
        with _on_disk_of(directory):
            known.add(_topic_id(storage, folder))
    return len(known - {None}) < 2


def _copy_of(storage: Storage, folder: str) -> tuple[TopicPartition | None, bool]:
    """Return the partition of a copy, and whether the copy is complete."""
    try:
        return parse_folder(storage.read_file(f"{folder}/{MOVED_HERE}").decode("utf-8", "replace")), True
    except FileNotFoundError:
        return parse_folder(folder.rpartition("/")[2].removesuffix(FUTURE_SUFFIX).rpartition(".")[0]), False


def _topic_id(storage: Storage, folder: str) -> UUID | None:
    try:
        return read_topic_id(storage, f"{folder}/{PARTITION_METADATA}")
    except CorruptCheckpointError:
        return None
