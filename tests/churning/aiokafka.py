"""A group member with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import TopicPartition

from tests.churning.member import Journal, Terms

_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
_LATER: Final = (
    errors.CommitFailedError,
    errors.RebalanceInProgressError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.IllegalStateError,
)
"""Errors of a commit after which the group has moved on, or will: the next owner reads the records again."""


async def _take_part(terms: Terms, journal: Journal) -> None:
    # A member with several listed assignors joins once for each, with one more in its list every time: two such members
    # can keep a group rebalancing forever, each starting a new round during the other's.
    first = terms.strategy.partition(",")[0]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=terms.bootstrap,
        group_id=terms.group,
        client_id=terms.client_id,
        group_instance_id=terms.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[_ASSIGNORS[first]],
        session_timeout_ms=terms.session_timeout_ms,
        heartbeat_interval_ms=terms.heartbeat_interval_ms,
        max_poll_interval_ms=terms.max_poll_interval_ms,
        rebalance_timeout_ms=terms.max_poll_interval_ms,
    )
    # Rebalances run in a task of aiokafka: they wait for the present batch.
    in_hand = asyncio.Lock()

    async def commit() -> None:
        journal.report_reads()
        positions = dict(journal.uncommitted)
        if not positions:
            return
        try:
            await consumer.commit({TopicPartition(terms.topic, number): at for number, at in positions.items()})
        except _LATER:
            return
        journal.committed(positions)

    class Listener(ConsumerRebalanceListener):  # aiokafka has no types
        async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            async with in_hand:
                await commit()
                journal.forget(one.partition for one in revoked)

        async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            pass

    journal.report(joining=True)
    consumer.subscribe([terms.topic], listener=Listener())
    await consumer.start()
    try:
        while not journal.leave.is_set():
            found = await consumer.getmany(timeout_ms=100, max_records=200)
            async with in_hand:
                mine = consumer.assignment()
                for partition, records in found.items():
                    # Returned before the partition went to another member.
                    if partition in mine:
                        for record in records:
                            journal.read(record.partition, record.offset)
                await commit()
                journal.assigned(one.partition for one in consumer.assignment())
    finally:
        await consumer.stop()


def take_part(terms: Terms, journal: Journal) -> None:
    """Read and commit until the end of the input."""
    asyncio.run(_take_part(terms, journal))
