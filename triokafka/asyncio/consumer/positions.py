"""Where the SDK's consumer stands, before a record of a partition has crossed over to the asyncio loop."""

from __future__ import annotations

from typing import Any, Final

from triokafka import Consumer
from triokafka.structs import TopicPartition

_SECONDS_OF_FAILURES: Final = 1.0
"""How long a leader that refuses or is unknown is waited for."""


async def positions_or_failures(consumer: Consumer, seconds: float) -> None:
    """Wait at most ``seconds`` until all assigned partitions have positions, or the look-up of one fails for a second.

    Raises: as `triokafka.Consumer.poll`, such as `NoOffsetForPartitionError`.
    """
    engine = consumer.engine

    def found() -> bool | None:
        if engine.subscription.all_positions_known:
            return True
        now = engine.world.now()
        return any(now - failing.since >= _SECONDS_OF_FAILURES for failing in engine.failure_tracker.current) or None

    await engine.wait_for_state(found, seconds)


async def looked_up_position(consumer: Consumer, options: dict[str, Any], partition: TopicPartition) -> int:
    """Look the position up: the SDK does so only after the listener has had its chance to seek."""
    known = consumer.health().partitions.get(partition)
    if known is not None and known.position is not None:
        return known.position
    if options["group_id"] is not None:
        committed = (await consumer.committed([partition]))[partition]
        if committed is not None:
            return committed.offset
    if options["auto_offset_reset"] == "earliest":
        return (await consumer.beginning_offsets([partition]))[partition]
    return (await consumer.end_offsets([partition]))[partition]
