"""Checks whether the content of an opened log is possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.crashing.batches import IDEMPOTENT, TRANSACTIONAL, transactions
from tests.crashing.model import Batch, Kept, PartitionModel
from triokafka.broker_stub.log import PartitionLog
from triokafka.records import decode_records, iter_batches
from triokafka.structs import Buffer, TopicPartition

EXPIRATION_MS = 30_000  # of producers


@dataclass(slots=True)
class Expected:
    """The possible effects of an unfinished action, other than none and all.

    Args:
        batch: the batch that was being appended.
        lowest_end: the offset of a truncation.
        latest_start: the latest possible start of the log.
        cuts: whether the start may have moved back, too.
        cleans: whether the log was being compacted.
        is_new: whether the log was being created.
        checkpoints_lost: whether the disk failed while the logs were opened.
    """

    batch: Batch | None = None
    lowest_end: int | None = None
    latest_start: int | None = None
    cuts: bool = False
    cleans: bool = False
    is_new: bool = False
    checkpoints_lost: bool = False


def check_opened(
    tp: TopicPartition,
    log: PartitionLog,
    model: PartitionModel,
    expected: Expected,
    *,
    lossless: bool,
    now_ms: int,
    compacted: bool,
) -> None:
    """Compare, and update the model to the log."""
    start, end = log.log_start_offset, log.log_end_offset
    lowest_end = model.end if lossless else model.durable_end
    highest_end = max(model.end, model.start_floor)
    if expected.lowest_end is not None:
        lowest_end = min(lowest_end, expected.lowest_end)
    if expected.latest_start is not None and expected.cuts:
        highest_end = max(highest_end, expected.latest_start)
    if expected.batch is not None and model.end < expected.batch.end <= end:
        model.batches.append(expected.batch)
        highest_end = model.end
    assert lowest_end <= end <= highest_end, f"{tp} ends at {end}, not within {lowest_end} and {highest_end}"
    latest_start = max(model.start, model.start_floor, model.lost_start, expected.latest_start or 0)
    if expected.checkpoints_lost:
        model.lost_start = max(model.lost_start, model.start, model.start_floor)
    if start > latest_start:
        # The names of the first segments were lost, with all of their content.
        assert not lossless, f"{tp} starts at {start}, later than {latest_start}"
        assert start >= lowest_end, f"{tp} starts at {start}: what was durable before is lost"
    if not expected.cuts and not expected.checkpoints_lost:
        assert start >= model.start_floor, f"{tp} starts at {start}, it was to start at {model.start_floor}"
    else:
        model.start_floor = min(model.start_floor, start)
    model.cut(end)
    if not lossless:
        note_lost_end(log, model, durable_end=lowest_end, cleans=expected.cleans)
    if not compacted:
        # A high watermark inside a lost batch is the placeholder's end; the model has removed that batch.
        ends = {batch.end for batch in model.batches[-1:]} | {offsets.stop for offsets in model.placeholders}
        assert start == end or end in ends, f"nothing is before the end of {log}"
    model.start = start
    model.latest_start = max(model.latest_start, expected.latest_start or 0)
    model.high_watermark = min(model.high_watermark, end)
    assert log.recovery_point <= end
    if compacted and not lossless:
        drop_lost(log, model, above=min(model.durable_end, lowest_end))
    if expected.cleans:
        adopt_cleaned(log, model)
    if compacted and start < model.latest_start:
        drop_deleted(log, model)
    check_content(log, model, times=[now_ms - 4_000, now_ms, now_ms + 2_000])
    check_epochs(log, model)
    model.lossy = model.lossy or not lossless
    check_producers(log, model, now_ms=now_ms, expiration_ms=EXPIRATION_MS)


def note_lost_end(log: PartitionLog, model: PartitionModel, *, durable_end: int, cleans: bool) -> None:
    """Mark the batches that a power cut took from the end of a log which continues at its high watermark.

    Consumers may have read them, so their offsets are not used again. The log has a placeholder there, which must be
    distinguished from a batch that compaction has emptied, which has lost nothing.

    Args:
        cleans: whether the log was being compacted, so that empty batches may be unknown to the model.
    """
    there = {batch.key: batch for batch in model.batches if not batch.lost}
    whole, model.placeholders = log.log_start_offset, []
    for segment in log.segments:
        # The cleaner does not touch the active segment, and a placeholder is written to that one.
        cleaned = cleans and segment is not log.active_segment
        for header in segment.file.headers():
            batch = there.get((header.base_offset, header.next_offset, header.producer_id))
            emptied = batch is not None and (not batch.records or cleaned)
            if header.record_count or emptied:
                whole = max(whole, header.next_offset)
            else:
                model.placeholders.append(range(header.base_offset, header.next_offset))
    if whole < log.log_end_offset:
        for batch in model.batches:
            if batch.base_offset >= whole and not batch.lost and not batch.removed:
                assert batch.end > durable_end, f"{log} ends at {whole}: what was durable is lost"
                batch.lost = True


def drop_lost(log: PartitionLog, model: PartitionModel, *, above: int) -> None:
    """Gaps are normal in a compacted log, so a gap of unsynced or truncated data looks like any other."""
    found = {record.offset for record in read_all(log)}
    for batch in model.batches:
        if batch.base_offset >= above and batch.end > model.start:
            batch.lost = batch.lost or not any(record.offset in found for record in batch.records)


def drop_deleted(log: PartitionLog, model: PartitionModel) -> None:
    """Records before a lost start offset may be restored or not: readers must not get them anyway."""
    present = {record.offset for record in read_all(log)}
    for batch in model.batches:
        if batch.end > model.start:
            judged = range(model.start, model.latest_start)
            batch.records = [r for r in batch.records if r.offset in present or r.offset not in judged]
            batch.lost = batch.lost or (batch.base_offset < model.latest_start and not batch.records)


def adopt_cleaned(log: PartitionLog, model: PartitionModel) -> None:
    """A record may be compacted away if its key has a newer record, or it is a tombstone, or was never committed."""
    pieces = list(read_pieces(log))
    present = {record.offset for offset, data in pieces for record in decode_records(data, from_offset=offset)}
    headers = {header.base_offset for _, data in pieces for header in iter_batches(data)}
    records = model.readable()
    newest = {record.key: record.offset for record in records if not model.is_aborted(record.offset)}
    active = log.active_segment.base_offset
    for record in records:
        if record.offset in present:
            continue
        assert record.offset < active, f"{record} was cleaned out of the active segment"
        superseded = record.offset < newest.get(record.key, -1)
        assert superseded or record.value is None or model.is_aborted(record.offset), f"{record} was cleaned away"
    for batch in model.batches:
        if batch.end > model.start and not batch.lost:
            batch.records = [r for r in batch.records if r.offset in present or r.offset < model.start]
            batch.removed = not batch.records and batch.base_offset not in headers


def read_all(log: PartitionLog) -> list[Kept]:
    """All records."""
    return [
        Kept(r.offset, r.timestamp, r.key, r.value)
        for offset, data in read_pieces(log)
        for r in decode_records(data, from_offset=offset)
    ]


def read_pieces(log: PartitionLog) -> Iterator[tuple[int, Buffer]]:
    """Yield all batches as readers get them, a few at a time, each time with the requested offset."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 200).records
        if not len(data):
            break
        yield offset, data
        batches = list(iter_batches(data))
        assert batches and batches[-1].next_offset > offset, f"what was read at {offset} of {log} is not there"
        offset = batches[-1].next_offset


def check_content(log: PartitionLog, model: PartitionModel, *, times: Sequence[int]) -> None:
    """Check that reads, and lookups by time, return the model's records."""
    records, found = model.readable(), read_all(log)
    assert found == records, _difference(found, records)
    for timestamp in times:
        check_look_up(log, model, timestamp, up_to=model.end)


def check_look_up(log: PartitionLog, model: PartitionModel, timestamp: int, *, up_to: int) -> None:
    """Check that a lookup by time equals a scan of the records."""
    visible = [batch for batch in model.batches if batch.end > model.start]
    if any(batch.committed is not None for batch in visible):
        return  # markers have timestamps, too, and count
    records = [record for record in model.readable() if record.offset < up_to]
    got = log.offset_for_timestamp(timestamp, up_to)
    first = next((r for r in records if r.timestamp >= timestamp), None)
    assert (got[:2] if got else None) == (first[:2] if first else None), f"look-up of {timestamp} in {log}"
    if any(len(batch.records) < batch.end - batch.base_offset for batch in visible):
        return  # an emptied batch has one as well
    got = log.offset_of_max_timestamp(up_to)
    largest = max(records, key=lambda r: (r.timestamp, -r.offset), default=None)
    assert (got[:2] if got else None) == (largest[:2] if largest else None), f"largest timestamp of {log}"


def _difference(found: list[Kept], records: list[Kept]) -> str:
    lost = [r for r in records if r not in found]
    invented = [r for r in found if r not in records]
    return f"lost: {lost[:3]}, never written there: {invented[:3]}"


def check_epochs(log: PartitionLog, model: PartitionModel) -> None:
    """Check that the leader epoch of every batch is known, and no epoch of missing batches."""
    known_from = max(model.start, model.latest_start)
    for batch in model.batches:
        # An epoch with only records before the start may have been compacted away without a trace.
        if batch.records and batch.records[-1].offset >= known_from and not batch.lost:
            offset = max(batch.base_offset, known_from)
            assert log.leader_epochs.epoch_for_offset(offset) == batch.leader_epoch, (
                f"epoch at {offset}: {log.leader_epochs.entries()}, not {batch.leader_epoch}"
            )
    entries = log.leader_epochs.entries()
    ends = [start for _, start in entries[1:]] + [model.end]
    for (epoch, start), end in zip(entries, ends, strict=False):
        assert start <= model.end
        known = next((b for b in model.batches if b.end > start and b.base_offset < end), None)
        assert known is None or known.lost or known.leader_epoch == epoch, f"epoch {epoch} at {start}"


def check_producers(log: PartitionLog, model: PartitionModel, *, now_ms: int, expiration_ms: int) -> None:
    """Check that producer states match the last batches, and that missing batches left no state."""
    for producer_id in (*IDEMPOTENT, TRANSACTIONAL):
        newest = [batch for batch in reversed(model.batches) if batch.producer_id == producer_id]
        state = log.producers.get(producer_id)
        if state is None:
            # Forgotten with its last records, or after its expiration.
            assert (
                not newest
                or newest[0].lost
                or newest[0].base_offset < model.start
                # Compaction knew of a newer batch that was lost afterwards, and has removed this one.
                or (model.lossy and not newest[0].records)
                or (now_ms - newest[0].max_timestamp >= expiration_ms)
            ), f"producer {producer_id} is not known"
            continue
        known = state.batches[-1].last_offset if state.batches else None
        for batch in newest:
            if (batch.committed is not None or known == batch.end - 1) and state.epoch == batch.producer_epoch:
                break
            cleaned = model.lossy and batch.committed is None and not batch.records
            assert batch.lost or cleaned, f"producer {producer_id} is known with {state}, not {batch}"
        else:
            raise AssertionError(f"producer {producer_id} is known with {state}")
        data = next((batch for batch in newest if known == batch.end - 1), None)
        if data is not None:
            assert state.last_sequence == data.last_sequence
    if any(batch.lost for batch in model.batches):
        return
    started, aborted = transactions(model)
    found = log.producers.transaction_start(TRANSACTIONAL)
    if started is None or started >= model.start:
        # Compaction may have known of a marker that was lost afterwards, and has removed the aborted records.
        left = own_records(model, started, log.log_end_offset) if started is not None else []
        assert found is None or (started is not None and started <= found), f"a transaction at {found}, not {started}"
        assert not left or (found is not None and found <= left[0].offset), f"a transaction at {found}, not {started}"
    end = log.last_stable_offset(log.log_end_offset)
    assert end == (log.log_end_offset if found is None else found) or (started or 0) < model.start
    check_aborted(log, model, aborted, up_to=end)


def check_aborted(log: PartitionLog, model: PartitionModel, aborted: list[tuple[int, int]], *, up_to: int) -> None:
    """Check that readers learn of every aborted transaction with records, and of no other.

    If its first records are gone, with the log's start or by compaction, the transaction may begin later.
    """
    began = {last: first for first, last in aborted}
    found = {t.last_offset: t.first_offset for t in log.aborted_transactions(log.log_start_offset, up_to)}
    for last, first in found.items():
        assert began.get(last, up_to) <= first <= last, f"transaction {first} to {last} was not aborted"
    for first, last in aborted:
        left = next((r.offset for r in own_records(model, first, last) if r.offset >= model.start), None)
        if left is not None and last < up_to:
            assert found.get(last, up_to) <= left, f"the transaction {first} to {last} was aborted: {found}"


def own_records(model: PartitionModel, first: int, last: int) -> list[Kept]:
    """Return the remaining records of a transaction."""
    return [
        record
        for batch in model.batches
        if batch.producer_id == TRANSACTIONAL and first <= batch.base_offset < last and not batch.lost
        for record in batch.records
    ]
