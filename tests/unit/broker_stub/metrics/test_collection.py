"""Metrics of large nodes are computed in portions, between which the node does other work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import trio

import triokafka
from triokafka.broker_stub.metrics.broker_catalogue import quota_samples
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text, prometheus_text
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.broker_stub.request.client_quotas import ClientQuotas, QuotaKind
from triokafka.quota_precedence import USER
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker
from triokafka.world import World

MANY = 5_000
MOST_IN_A_ROW = 400  # the scheduler may let one task run twice before another


class Clock:
    """Each reading is a tenth of a millisecond later."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        self.time += 0.0001
        return self.time


async def test_other_tasks_run_while_the_text_is_made() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    at_turn: list[int] = []

    def samples() -> Iterator[Sample]:
        for number in range(MANY):
            at_turn.append(turns)
            yield Sample("kafka.log:type=Log,name=Size", {"topic": "t", "partition": str(number)}, number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        text = await prometheus_text(samples(), cast(World, Clock()))
        nursery.cancel_scope.cancel()
    assert text == as_prometheus_text(samples())
    in_a_row = [at_turn[:MANY].count(turn) for turn in set(at_turn[:MANY])]
    assert max(in_a_row) <= MOST_IN_A_ROW


async def test_topics_and_groups_that_come_and_go_meanwhile_disturb_nothing() -> None:
    """Before the second sample of each name, there is one topic less, another one more, and a new group."""
    seen: set[str] = set()
    async with (
        running_broker() as broker,
        triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        await admin.create_topics([triokafka.NewTopic(f"t{number}", 2) for number in range(40)])
        await admin.alter_group_offsets("g", {TopicPartition("t39", 0): 0, TopicPartition("t38", 1): 0})
        number = 0
        for sample in broker.broker.metrics():
            if "topic" in sample.tags and sample.name not in seen:
                seen.add(sample.name)
                await admin.delete_topics([f"t{number}"])
                await admin.create_topics([triokafka.NewTopic(f"new{number}", 2)])
                await admin.alter_group_offsets(f"g{number}", {TopicPartition("t39", 0): 0})
                number += 1
    assert "kafka_exporter:type=consumergroup_lag" in seen and 10 < len(seen) < 38


def test_clients_that_come_meanwhile_disturb_no_quota() -> None:
    quotas = ClientQuotas()
    quotas.configure({((USER, None),): {QuotaKind.PRODUCE.value: 1e9}})
    for number in range(3):
        quotas.record(QuotaKind.PRODUCE, f"user{number}", "c", 1, 0)
    readings = quota_samples(quotas, 0)
    assert next(readings).tags["user"] == "user0"
    quotas.record(QuotaKind.PRODUCE, "another", "c", 1, 0)
    assert {reading.tags["user"] for reading in readings} == {"user0", "user1", "user2"}
