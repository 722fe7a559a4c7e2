"""Print producer snapshots, and the small text files of a log and of a data directory.

A damaged file raises `CorruptSnapshotError` or `CorruptCheckpointError`.
"""

from __future__ import annotations

from triokafka.broker_stub.log.checkpoints import read_leader_epochs, read_offsets
from triokafka.broker_stub.log.partition_metadata import read_topic_id
from triokafka.broker_stub.log.producer_snapshot_format import decode_snapshot
from triokafka.cli.log_dump.report import Report
from triokafka.structs import format_uuid
from triokafka.world import Storage


def dump_snapshot(storage: Storage, path: str, report: Report) -> None:
    """Print the producers of a ``.snapshot`` file. Raises `OSError` when it cannot be read."""
    producers = decode_snapshot(storage.read_file(path), path)
    for state in producers.all():
        last = state.batches[-1] if state.batches else None
        transaction = producers.transaction_start(state.producer_id)
        first = "none" if transaction is None else str(transaction)
        line = (
            f"producerId: {state.producer_id} producerEpoch: {state.epoch} coordinatorEpoch: "
            f"{state.coordinator_epoch} currentTxnFirstOffset: {first} lastTimestamp: {state.last_timestamp}"
        )
        if last is not None:
            line += (
                f" firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} offsetDelta: {last.last_offset - last.first_offset} "
                f"timestamp: {last.timestamp}"
            )
        report.line(line)


def dump_offset_checkpoint(storage: Storage, path: str, report: Report) -> None:
    """Print an offset checkpoint of a data directory. Raises `OSError` when it cannot be read."""
    for topic_partition, offset in read_offsets(storage, path).items():
        report.line(f"topic: {topic_partition.topic} partition: {topic_partition.partition} offset: {offset}")


def dump_leader_epochs(storage: Storage, path: str, report: Report) -> None:
    """Print a ``leader-epoch-checkpoint``. Raises `OSError` when it cannot be read."""
    for epoch, start in read_leader_epochs(storage, path):
        report.line(f"epoch: {epoch} startOffset: {start}")


def dump_partition_metadata(storage: Storage, path: str, report: Report) -> None:
    """Print a ``partition.metadata``. Raises `OSError` when it cannot be read."""
    topic_id = read_topic_id(storage, path)
    if topic_id is not None:
        report.line(f"topicId: {format_uuid(topic_id)}")
