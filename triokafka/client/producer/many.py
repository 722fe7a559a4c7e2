"""Sending many records in one call: lists and Arrow arrays into batches, with as little per record as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from triokafka.client.deliveries import Deliveries
from triokafka.client.producer.interceptors import ProducerRecord

if TYPE_CHECKING:
    from triokafka.client.producer.producer import Producer

_ARROW_PIECE: Final = 8_192


async def send_many(
    producer: Producer,
    topic: str,
    values: Any,
    keys: Any,
    partition: int | Sequence[int] | None,
    timestamp_ms: int | Sequence[int] | None,
    headers: Any,
) -> Deliveries:
    """`Producer.send_many`."""
    _check_column("values", values)
    if keys is not None:
        _check_column("keys", keys)
    count = len(values)
    per_record_headers = bool(headers) and not _is_one_header_list(headers)
    for name, column in (
        ("keys", keys),
        ("partition", partition),
        ("timestamp_ms", timestamp_ms),
        ("headers", headers if per_record_headers else None),
    ):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ValueError(f"send_many got {count} values but {len(column)} {name}")
    deliveries = Deliveries()
    producer._check_usable()
    one_queue = isinstance(partition, int) or (
        partition is None and keys is None and producer.options.partitioner is None
    )
    by_column = (
        producer._plain and one_queue and not headers and (timestamp_ms is None or isinstance(timestamp_ms, int))
    )
    # Arrow columns become Python objects piece by piece, so that a large one does not exist twice.
    piece = _ARROW_PIECE if _is_arrow(values) or _is_arrow(keys) else count
    for start in range(0, count, max(piece, 1)):
        some_values, some_keys = _piece(values, start, piece, count), _piece(keys, start, piece, count)
        if by_column:
            await _send_column(producer, topic, some_values, some_keys, partition, timestamp_ms, deliveries)  # type: ignore[arg-type]
            continue
        for position, value in enumerate(some_values):
            delivery = await producer.send(
                topic,
                value,
                key=None if some_keys is None else some_keys[position],
                partition=_of(partition, start + position),
                timestamp_ms=_of(timestamp_ms, start + position),
                headers=headers[start + position] if per_record_headers else headers,
            )
            deliveries.add_one(delivery)
    return deliveries


async def _send_column(
    producer: Producer,
    topic: str,
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    partition: int | None,
    timestamp_ms: int | None,
    deliveries: Deliveries,
) -> None:
    """All to one partition, or all to the sticky ones: whole stretches are appended by the kernel."""
    intake = producer._intake
    give_up_at = intake.give_up_at()
    known = await intake.learn(topic, partition, give_up_at)
    count = len(values)
    sent = 0
    while sent < count:
        queue = intake.choose(known, partition, None, None)
        batch = queue.open
        if batch is not None and batch.builder is not None:
            timestamp = producer._wall_ms() if timestamp_ms is None else timestamp_ms
            first = batch.count
            try:
                added = batch.builder.append_values(values, timestamp, sent, keys)
            except TypeError:
                added = batch.count - first
                if added:
                    deliveries.add(batch, first, added, timestamp)
                # Say which one is wrong, as a single send does.
                bad = sent + added
                intake.serialize(ProducerRecord(topic, values[bad], keys[bad] if keys is not None else None))
                raise
            if added:
                deliveries.add(batch, first, added, timestamp)
                sent += added
                continue
            queue.close_open()
            queue = intake.choose(known, partition, None, None)
            if queue.open is not None:
                continue
        _, key, value = intake.serialize(
            ProducerRecord(topic, values[sent], keys[sent] if keys is not None else None, timestamp_ms=timestamp_ms)
        )
        size = intake.batch_bytes(queue, key, value, ())
        give_up_at = intake.give_up_at()
        await intake.open_batch(queue, size, give_up_at)


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "to_pylist")


def _check_column(name: str, column: Any) -> None:
    plain = isinstance(column, Sequence) and not isinstance(column, (str, bytes, bytearray))
    if not plain and not _is_arrow(column):
        raise TypeError(f"{name} must be a sequence or an Arrow array, not {type(column).__name__}")


def _piece(column: Any, start: int, size: int, count: int) -> Any:
    if column is None or (not _is_arrow(column) and size == count):
        return column
    part = column[start : start + size]
    return part.to_pylist() if _is_arrow(part) else part


def _of(column: int | Sequence[int] | None, position: int) -> int | None:
    """The record's own, out of one for all or one per record."""
    if column is None or isinstance(column, int):
        return column
    number = column[position]
    return number.as_py() if hasattr(number, "as_py") else number


def _is_one_header_list(headers: Any) -> bool:
    """Whether these are the headers of one record (pairs of name and bytes), rather than one list per record."""
    first = headers[0]
    return isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], str)
