"""The outcomes of a chunk's records, from the SDK's deliveries. Used in the asyncio loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from triokafka.asyncio.producer.sending import Acknowledged, Chunk
from triokafka.asyncio.structs import RecordMetadata
from triokafka.errors import InvalidProducerEpochError, ProducerFencedError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Deliveries
    from triokafka.client.deliveries import DeliveredPart


def settle_part(chunk: Chunk, first: int, part: DeliveredPart, deliveries: Deliveries) -> None:
    """Settle the records of a part of the deliveries; the part's positions count from record ``first``."""
    positions, written = part.positions, part.written()
    if written is None:
        each = list(deliveries)
        for position in positions:
            chunk.settle(first + position, first + position + 1, _outcome(each[position], acked=chunk.acked))
        return
    topic_partition, offset, timestamps, by_broker = written
    place, stamped = topic_partition if chunk.acked else None, int(by_broker)
    offsets: Sequence[int] | int = range(offset, offset + len(positions)) if offset >= 0 else offset
    if isinstance(positions, range):
        begin, end = first + positions.start, first + positions.stop
        chunk.settle(begin, end, Acknowledged(place, begin, offsets, timestamps, stamped))
        return
    for number, position in enumerate(positions):
        at = first + position
        chunk.settle(at, at + 1, Acknowledged(place, at - number, offsets, timestamps, stamped))


def _outcome(delivery: Any, *, acked: bool) -> Any:
    try:
        found = delivery.result()
    except InvalidProducerEpochError as error:
        return ProducerFencedError(*error.args)  # as aiokafka names it
    except Exception as error:
        return error.with_traceback(None)
    if not acked:
        return Acknowledged(None, 0, 0, 0, 0)
    place = TopicPartition(found.topic, found.partition)
    return RecordMetadata(*place, place, found.offset, found.timestamp, 0, None)
