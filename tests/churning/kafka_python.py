"""A group member with kafka-python."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.churning.member import Fenced, Journal, Terms

_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_LATER: Final = (
    errors.CommitFailedError,
    errors.RebalanceInProgressError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
)
"""Errors of a commit after which the group has moved on, or will: the next owner reads the records again."""


def take_part(terms: Terms, journal: Journal) -> None:
    """Read and commit until the end of the input."""
    consumer = KafkaConsumer(
        bootstrap_servers=terms.bootstrap,
        group_id=terms.group,
        client_id=terms.client_id,
        group_instance_id=terms.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[_ASSIGNORS[name] for name in terms.strategy.split(",")],
        session_timeout_ms=terms.session_timeout_ms,
        heartbeat_interval_ms=terms.heartbeat_interval_ms,
        max_poll_interval_ms=terms.max_poll_interval_ms,
    )

    def commit() -> None:
        journal.report_reads()
        positions = dict(journal.uncommitted)
        if not positions:
            return
        offsets = {
            TopicPartition(terms.topic, partition): OffsetAndMetadata(at, "", -1) for partition, at in positions.items()
        }
        try:
            consumer.commit(offsets)
        except errors.FencedInstanceIdError as fenced:
            raise Fenced(str(fenced)) from fenced
        except _LATER:
            return
        journal.committed(positions)

    class Listener(ConsumerRebalanceListener):  # kafka-python has no types
        # Called while this program waits in `poll`, before which it has committed, or tried. It must not wait itself.
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            journal.forget(one.partition for one in revoked)

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            pass

        def on_partitions_lost(self, lost: Collection[Any]) -> None:
            journal.forget(one.partition for one in lost)

    try:
        journal.report(joining=True)
        consumer.subscribe([terms.topic], listener=Listener())
        while not journal.leave.is_set():
            try:
                # It may drop an assignment that arrives just when this time ends, so the time is long.
                found = consumer.poll(1_000, max_records=200)
            except errors.FencedInstanceIdError as fenced:
                raise Fenced(str(fenced)) from fenced
            for records in found.values():
                for record in records:
                    journal.read(record.partition, record.offset)
            commit()
            journal.assigned(one.partition for one in consumer.assignment())
    finally:
        consumer.close()
