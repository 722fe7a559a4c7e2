"""The explicit repair of a damaged metadata log, which a broker never does at its start."""

from __future__ import annotations

import os
from typing import Final

from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, keep_file
from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.broker_stub.raft.metadata_log import PARTITION, MetadataLogFiles
from triokafka.errors import ConfigurationError, KafkaError, UnsupportedVersionError
from triokafka.named_tuple import NamedTuple
from triokafka.world import Storage

_NO_LOG: Final = (
    f"Give the folder of a metadata log: DATA-DIRECTORY/{PARTITION}. The broker repairs the logs of topics when it "
    f"starts."
)


class Repaired(NamedTuple):
    """The new end of the metadata log, and the files with the removed data."""

    end_offset: int
    kept: list[str]


def repair_metadata(storage: Storage, folder: str, *, now_ms: int) -> Repaired:
    """Truncate a metadata log at its first damage; keep the cut bytes, and snapshots that cannot be read, in files.

    A log that ends before its newest snapshot continues at the end of the snapshot.

    Raises:
        ConfigurationError: the folder is not a metadata log, or a broker uses the data directory.
        KafkaStorageError, OSError: the disk failed.
    """
    folder = folder.rstrip("/") or "/"
    parent, name = os.path.split(folder)
    if name != str(PARTITION) or not storage.is_dir(folder):
        raise ConfigurationError(f"{folder} is not a metadata log. {_NO_LOG}")
    directory = LogDirectory(storage, parent or ".")
    directory.open()
    try:
        before = set(storage.list_dir(folder))
        _repair(storage, folder, now_ms)
        directory.forget_metadata_end()
        log = MetadataLogFiles(storage, parent or ".", now_ms=now_ms)
        end_offset = log.end_offset
        log.close()
        new = set(storage.list_dir(folder)) - before
        return Repaired(end_offset, sorted(f"{folder}/{name}" for name in new if name.endswith(DAMAGED_SUFFIX)))
    finally:
        directory.release()


def _repair(storage: Storage, folder: str, now_ms: int) -> None:
    parent = os.path.dirname(folder) or "."
    log = MetadataLogFiles(storage, parent, now_ms=now_ms, repair=True)
    try:
        for snapshot_id in log.snapshots.ids():
            try:
                log.snapshots.read(snapshot_id)
            except UnsupportedVersionError:
                raise
            except (ValueError, KafkaError):
                keep_file(storage, f"{folder}/{snapshot_id.file_name}")
    finally:
        log.close()
    storage.sync_dir(folder)
