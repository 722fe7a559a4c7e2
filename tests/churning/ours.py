"""A group member with our consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from tests.churning.member import Fenced, Journal, Terms
from triokafka import Consumer
from triokafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.structs import OffsetAndMetadata, TopicPartition

_LATER = (
    CommitFailedError,
    IllegalGenerationError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""Errors after which a commit is retried, or its records are read again by the next owner."""
_COMMIT_TIMEOUT_MS = 5_000
"""Less than max_poll_interval_ms: while the broker is down the member keeps polling."""


def _options(terms: Terms) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": terms.bootstrap,
        "group_id": terms.group,
        "client_id": terms.client_id,
        "group_instance_id": terms.instance,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_poll_interval_ms": terms.max_poll_interval_ms,
    }
    if terms.protocol == "consumer":
        return {**options, "group_protocol": "consumer", "group_remote_assignor": terms.strategy}
    return {
        **options,
        "partition_assignment_strategy": terms.strategy.split(","),
        "session_timeout_ms": terms.session_timeout_ms,
        "heartbeat_interval_ms": terms.heartbeat_interval_ms,
    }


class _Member:
    def __init__(self, terms: Terms, journal: Journal) -> None:
        self._terms = terms
        self._journal = journal
        self._consumer = Consumer(**_options(terms))

    async def commit(self) -> None:
        self._journal.report_reads()
        positions = dict(self._journal.uncommitted)
        if not positions:
            return
        topic = self._terms.topic
        try:
            await self._consumer.commit(
                {TopicPartition(topic, partition): OffsetAndMetadata(at) for partition, at in positions.items()},
                timeout_ms=_COMMIT_TIMEOUT_MS,
            )
        except _LATER:
            return
        self._journal.committed(positions)

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        await self.commit()
        self._journal.forget(one.partition for one in revoked)

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self._journal.report_reads()
        self._journal.forget(one.partition for one in lost)

    async def take_part(self) -> None:
        self._journal.report(joining=True)
        self._consumer.subscribe([self._terms.topic], listener=self)
        async with self._consumer as consumer:
            while not self._journal.leave.is_set():
                for records in (await consumer.poll(timeout_ms=100, max_records=200)).values():
                    for record in records:
                        self._journal.read(record.partition, record.offset)
                await self.commit()
                self._journal.assigned(one.partition for one in consumer.assignment())


async def _take_part(terms: Terms, journal: Journal) -> None:
    await _Member(terms, journal).take_part()


def take_part(terms: Terms, journal: Journal) -> None:
    """Read and commit until the end of the input."""
    try:
        trio.run(_take_part, terms, journal)
    except FencedInstanceIdError as fenced:
        raise Fenced(str(fenced)) from fenced
