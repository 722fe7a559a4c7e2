"""The clean-shutdown marker of a data directory: without it, the next start recovers the logs."""

from __future__ import annotations

import json
from typing import Final

from triokafka.world import Storage

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"


def clean_stop_epoch(storage: Storage, directory: str) -> int | None:
    """Return the broker epoch at the last clean stop, -1 if there was none; None if the stop was not clean."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not storage.exists(path):
        return None
    try:
        return int(json.loads(storage.read_file(path))["brokerEpoch"])
    except (OSError, ValueError, TypeError, LookupError):  # markers of old versions are empty
        return -1


def forget_clean_stop(storage: Storage, directory: str) -> None:
    """Remove the marker, durably, before the first write: a later crash then triggers recovery."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if storage.exists(path):
        storage.remove(path)
    # This also syncs renames of an earlier process: otherwise a power cut could bring back old checkpoints.
    storage.sync_dir(directory)


def mark_clean_stop(storage: Storage, directory: str, broker_epoch: int = -1) -> None:
    """Write the marker: all logs are closed and on disk.

    ``broker_epoch`` is the epoch of the broker's registration, -1 for none. If it differs from the last registration,
    Kafka treats the next start as one after a crash.
    """
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
    storage.replace_file(f"{directory}/{CLEAN_SHUTDOWN_FILE}", content)
