"""Reading with every call, mixed with seeks, pauses, cancellations and faults: one simulated world per example.

A model has the allowed results of each call: the records of each partition in order, from the position on, none twice
and none left out, none of a paused partition; auto-commit never passes an unfinished record.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any, Final

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.scripted_broker import CLOSE
from tests.support.scripted_reading import ReadableBroker, ReadableCluster
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.api.list_offsets import ListOffsetsRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

PARTITIONS: Final = [TopicPartition("t", 0), TopicPartition("t", 1)]
_PARTITION: Final = st.sampled_from(PARTITIONS)
_COUNT: Final = st.sampled_from([1, 2, 3, 7, 100])

operations = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["poll", "arrow", "iterate"]), _COUNT),
        st.tuples(st.just("batch"), st.none()),
        st.tuples(st.just("cancelled poll"), st.sampled_from([0.0, 0.002, 0.02, 0.3])),
        st.tuples(st.just("seek"), st.tuples(_PARTITION, st.integers(0, 45))),
        st.tuples(st.sampled_from(["to beginning", "to end", "pause", "resume", "position"]), _PARTITION),
        st.tuples(st.just("write"), st.tuples(_PARTITION, st.integers(1, 6), st.sampled_from([0, 0, 1, 4]))),
        st.tuples(st.just("sleep"), st.sampled_from([0.001, 0.1, 2.0])),
        st.tuples(st.just("accident"), st.sampled_from(["close", "cut", "slow", "refuse"])),
    ),
    min_size=1,
    max_size=25,
)


class Model:
    """The records, and the consumer's positions."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[int]] = defaultdict(list)
        """Offsets that have a record."""
        self.position: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        """Behind the last record that was handed out, or where the consumer was sent."""
        self.paused: set[TopicPartition] = set()
        self.may_commit: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        """The highest offset that was ever asked past."""
        self.in_hand: dict[TopicPartition, int] = {}

    def asks(self) -> None:
        """All records returned before are finished now."""
        for partition, behind in self.in_hand.items():
            self.may_commit[partition] = max(self.may_commit[partition], behind)
        self.in_hand.clear()

    def jump(self, partition: TopicPartition, offset: int) -> None:
        """The consumer was moved to an offset."""
        self.position[partition] = offset
        self.may_commit[partition] = max(self.may_commit[partition], offset)
        self.in_hand.pop(partition, None)

    def expected(self, partition: TopicPartition) -> list[int]:
        """Return the remaining offsets of the partition in its present state."""
        offsets = self.records[partition]
        return offsets[bisect.bisect_left(offsets, self.position[partition]) :]

    def got(self, partition: TopicPartition, offsets: list[int]) -> None:
        """A call has returned these offsets."""
        assert partition not in self.paused, f"{partition} is paused"
        assert offsets == self.expected(partition)[: len(offsets)], (partition, offsets, self.expected(partition))
        if offsets:
            self.position[partition] = offsets[-1] + 1
            self.in_hand[partition] = offsets[-1] + 1

    @property
    def is_dry(self) -> bool:
        """Whether no record is left to read of partitions that are not paused."""
        return not any(self.expected(partition) for partition in PARTITIONS if partition not in self.paused)


class Reading:
    """One example."""

    def __init__(self, cluster: ReadableCluster, broker: ReadableBroker, consumer: triokafka.Consumer) -> None:
        self.cluster = cluster
        self.broker = broker
        self.consumer = consumer
        self.model = Model()
        self.ahead: list[str] = []

    def write(self, partition: TopicPartition, count: int, gap: int) -> None:
        base = self.cluster.ends[partition] + gap
        values = [b"%d" % (base + number) for number in range(count)]
        self.cluster.write("t", partition.partition, values, gap=gap)
        self.model.records[partition] += range(base, base + count)

    async def do(self, action: str, argument: Any) -> None:
        consumer, model = self.consumer, self.model
        if action == "poll":
            model.asks()
            self._take(await consumer.poll(timeout_ms=300, max_records=argument))
        elif action == "cancelled poll":
            model.asks()
            with trio.move_on_after(argument):
                self._take(await consumer.poll(timeout_ms=5_000, max_records=3))
        elif action == "arrow":
            model.asks()
            batch = await consumer.poll_arrow(
                timeout_ms=300, max_records=argument, columns=["partition", "offset", "value"]
            )
            rows: dict[int, list[int]] = defaultdict(list)
            for row in batch.to_pylist():
                assert row["value"] == b"%d" % row["offset"]
                rows[row["partition"]].append(row["offset"])
            for number, offsets in rows.items():
                model.got(PARTITIONS[number], offsets)
        elif action == "iterate":
            for _ in range(argument):
                with trio.move_on_after(0.3) as scope:
                    model.asks()
                    record = await anext(consumer)
                    assert record.value == b"%d" % record.offset
                    model.got(PARTITIONS[record.partition], [record.offset])
                if scope.cancelled_caught:
                    break
        elif action == "batch":
            with trio.move_on_after(0.3):
                model.asks()
                fetched = await anext(consumer.batches())
                model.got(TopicPartition("t", fetched.partition), [record.offset for record in fetched.records()])
        elif action == "seek":
            partition, offset = argument
            consumer.seek(partition, offset)
            if offset > self.cluster.ends[partition]:
                offset = 0  # out of range: the reset policy earliest applies once the broker has responded
                model.may_commit[partition] = max(model.may_commit[partition], argument[1])
            model.jump(partition, offset)
            if argument[1] > self.cluster.ends[partition]:
                await self._settle(partition)
        elif action == "to beginning":
            consumer.seek_to_beginning(argument)
            model.jump(argument, 0)
        elif action == "to end":
            consumer.seek_to_end(argument)
            model.jump(argument, self.cluster.ends[argument])
            await self._settle(argument)
        elif action == "position":
            position = await consumer.position(argument)
            following = model.expected(argument)
            assert model.position[argument] <= position <= (following[0] if following else self.cluster.ends[argument])
        elif action == "pause":
            consumer.pause(argument)
            model.paused.add(argument)
        elif action == "resume":
            consumer.resume(argument)
            model.paused.discard(argument)
        elif action == "write":
            self.write(*argument)
        elif action == "sleep":
            await trio.sleep(argument)
        else:
            self._inject(argument)
        assert consumer.paused() == model.paused
        assert not self.ahead

    def _take(self, polled: Any) -> None:
        for partition, records in polled.items():
            assert all(record.value == b"%d" % record.offset for record in records)
            self.model.got(partition, [record.offset for record in records])

    async def _settle(self, partition: TopicPartition) -> None:
        """Wait for the response: records written before it would change the result."""
        paused = partition in self.model.paused
        self.consumer.resume(partition)
        others = [other for other in PARTITIONS if other != partition and other not in self.model.paused]
        self.consumer.pause(*others)
        with trio.fail_after(60):
            if self.model.expected(partition):  # moved to the beginning by the reset policy
                self.model.asks()
                model_paused, self.model.paused = self.model.paused, set(others)
                while not (polled := await self.consumer.poll(timeout_ms=1_000, max_records=1)):
                    pass
                self._take(polled)
                self.model.paused = model_paused
            else:
                while await self.consumer.position(partition) > self.cluster.ends[partition]:
                    self.model.asks()
                    assert not await self.consumer.poll(timeout_ms=1_000)
        self.consumer.resume(*others)
        if paused:
            self.consumer.pause(partition)

    def _inject(self, accident: str) -> None:
        broker = self.broker
        if accident == "close":
            broker.script(FetchRequest, CLOSE)
        elif accident == "cut":
            broker.cut()
        elif accident == "slow":

            async def slow(request: FetchRequest) -> FetchResponse:
                await trio.sleep(0.2)
                return broker.fetch_now(request)[0]

            broker.script(FetchRequest, slow, slow)
        else:
            broker.script(FetchRequest, broker.fetch_with(p0=6, p1=6))
            broker.script(ListOffsetsRequest, CLOSE)

    def watch_commits(self) -> None:
        commit = self.broker.offset_commit

        def watched(request: OffsetCommitRequest) -> Any:
            for topic in request.topics:
                for p in topic.partitions:
                    partition = TopicPartition(topic.name, p.partition_index)
                    highest = self.model.may_commit[partition]
                    # Offsets without a record count as finished.
                    beyond = [offset for offset in self.model.records[partition] if highest <= offset]
                    if p.committed_offset > max(highest, beyond[0] if beyond else self.cluster.ends[partition]):
                        self.ahead.append(f"{p.committed_offset} of {partition} committed, {highest} allowed")
            return commit(request)

        self.broker._answers[OffsetCommitRequest] = watched


@settings(max_examples=60)
@given(operations)
def test_records_are_returned_once_in_order_from_the_position_of_the_consumer(todo: list[Any]) -> None:

    async def main(simulation: Simulation) -> None:
        cluster = ReadableCluster(t=len(PARTITIONS))
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        broker = cluster.brokers[1]
        assert isinstance(broker, ReadableBroker)
        async with triokafka.Consumer(
            bootstrap_servers=address,
            world=simulation.host("client").world,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=50,
            fetch_max_wait_ms=100,
            max_poll_records=5,
            max_partition_fetch_bytes=300,
            prefetch_max_bytes=900,
            retry_backoff_ms=10,
        ) as consumer:
            reading = Reading(cluster, broker, consumer)
            reading.watch_commits()
            for partition in PARTITIONS:
                for _ in range(4):
                    reading.write(partition, 4, 1)
            consumer.assign(PARTITIONS)
            for action, argument in todo:
                await reading.do(action, argument)
            consumer.resume(*PARTITIONS)
            reading.model.paused.clear()
            with trio.fail_after(120):
                while not reading.model.is_dry:
                    await reading.do("poll", 100)
            assert not await consumer.poll(timeout_ms=1_000)

    run_simulation(main, 1)
