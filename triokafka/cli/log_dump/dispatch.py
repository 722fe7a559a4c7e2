"""Select the printer of a file by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from triokafka.broker_stub.log.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
)
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA
from triokafka.broker_stub.log.producer_snapshot_format import CorruptSnapshotError
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE
from triokafka.cli.log_dump.data_file import METADATA_SNAPSHOT, DataOptions, dump_data_file
from triokafka.cli.log_dump.index_files import (
    ON_THE_WAY,
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from triokafka.cli.log_dump.report import Report
from triokafka.cli.log_dump.state_files import (
    dump_leader_epochs,
    dump_offset_checkpoint,
    dump_partition_metadata,
    dump_snapshot,
)
from triokafka.world import Storage

_OFFSET_CHECKPOINTS: Final = (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
_NAMED: Final = "log files are named by their first offset, such as 00000000000000000042.log"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Selected output: see the command's help."""

    data: DataOptions
    sanity_only: bool = False
    verify_only: bool = False


def dump_files(storage: Storage, paths: Iterable[str], options: DumpOptions, report: Report) -> None:
    """Print files, and the files in directories. Report an unreadable file and print the others."""
    for path in paths:
        if not storage.exists(path):
            report.problem(path, "Cannot be read", "no such file or directory")
            continue
        if not storage.is_dir(path):
            _dump(storage, path, options, report)
            continue
        try:
            names = storage.list_dir(path)
        except OSError as error:
            report.problem(path, "Cannot be read", error.strerror or str(error))
            continue
        inside = [f"{path.rstrip('/')}/{name}" for name in names]
        logs = [file for file in inside if not storage.is_dir(file) and _printer_of(file, options) is not None]
        if not logs:
            report.problem(path, "Nothing to print", "the directory has no log files")
        for file in logs:
            _dump(storage, file, options, report)


def data_bytes(storage: Storage, paths: Iterable[str], max_bytes: int) -> int:
    """Return how many bytes of batches `dump_files` will read, as far as known in advance."""
    total = 0
    for path in paths:
        try:
            inside = [f"{path}/{name}" for name in storage.list_dir(path)] if storage.is_dir(path) else [path]
            for data in inside:
                if data.endswith(LOG_SUFFIX):
                    file = storage.open(data, read_only=True)
                    total += min(file.size(), max_bytes)
                    file.close()
        except OSError:
            continue  # reported when it is printed
    return total


def _dump(storage: Storage, path: str, options: DumpOptions, report: Report) -> None:
    printer = _printer_of(path, options)
    if printer is None:
        why = "not the name of a log file"
        if _ends_like_a_log(path):
            report.problem(path, "Cannot be read", f"{why} despite the extension: {_NAMED}")
        else:
            report.remark(path, "Skipped", why)
        return
    report.line(f"Dumping {path}")
    try:
        printer(storage, path, report=report)
    except (CorruptCheckpointError, CorruptSnapshotError) as error:
        report.problem(path, "Damage", str(error))
    except OSError as error:
        if report.output_failed:
            raise
        report.problem(path, "Cannot be read", error.strerror or str(error))


def _name_of(path: str) -> str:
    """Return the file's name without the suffixes of files that the broker adds or deletes."""
    name = path.rpartition("/")[2]
    for suffix in ON_THE_WAY:
        name = name.removesuffix(suffix)
    return name


def _ends_like_a_log(path: str) -> bool:
    return _name_of(path).rpartition(".")[2] in _PRINTERS


def _printer_of(path: str, options: DumpOptions) -> Callable[..., None] | None:
    name = _name_of(path)
    if name == LEADER_EPOCH_CHECKPOINT:
        return dump_leader_epochs
    if name == PARTITION_METADATA:
        return dump_partition_metadata
    if name in _OFFSET_CHECKPOINTS:
        return dump_offset_checkpoint
    if name == BOOTSTRAP_FILE:
        return partial(dump_data_file, options=options.data)
    stem, _, kind = name.rpartition(".")
    begins_with_an_offset = len(stem) == 20 and stem.isascii() and stem.isdigit()
    if not (METADATA_SNAPSHOT.fullmatch(name) if kind == _METADATA_SNAPSHOT_KIND else begins_with_an_offset):
        return None
    choose = _PRINTERS.get(kind)
    return choose(options) if choose is not None else None


_METADATA_SNAPSHOT_KIND: Final = "checkpoint"
_PRINTERS: Final[Mapping[str, Callable[[DumpOptions], Callable[..., None]]]] = {
    "log": lambda options: partial(dump_data_file, options=options.data),
    "index": lambda options: partial(
        dump_offset_index, sanity_only=options.sanity_only, verify_only=options.verify_only
    ),
    "timeindex": lambda options: partial(
        dump_time_index, sanity_only=options.sanity_only, verify_only=options.verify_only
    ),
    "txnindex": lambda _options: dump_transaction_index,
    "snapshot": lambda _options: dump_snapshot,
    _METADATA_SNAPSHOT_KIND: lambda options: partial(dump_data_file, options=options.data),
}
"""The printers of log files, by the suffix of the file's name."""
