"""The partitions of records without key, batch after batch, and the change of the sticky partition."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.unit.client.producer.test_accumulator import IDENTITY, Bench
from triokafka.client.producer.partitioner import RecordPartitioner
from triokafka.client.producer.topic_state import TopicState

BATCH = 1000


class StickyBench:
    """A topic's state over a bench, and a stream of records without key that uses it."""

    def __init__(self, leaders: list[int], *, seed: int = 1, **settings: Any) -> None:
        self.bench = Bench(leaders, memory=10_000_000, batch_size=BATCH, **settings)
        partitioner = RecordPartitioner(None, ignore_keys=False)
        self.state = TopicState(
            self.bench.cluster.topics["t"], self.bench.accumulator, partitioner, random.Random(seed).random
        )
        self.records: Counter[int] = Counter()

    def send(self, size: int = 50) -> int:
        """Send one record; return its partition."""
        accumulator = self.bench.accumulator
        queue = self.state.queues[self.state.sticky]
        if queue.open is None or queue.open.append(0, None, b"x" * size) < 0:
            queue.close_open()
            queue = self.state.queues[self.state.switch_if_due()]
            buffer = accumulator.pool.try_allocate(accumulator.buffer_size_for("t", size + 30))
            assert buffer is not None
            assert accumulator.open_batch(queue, buffer, 0.0).append(0, None, b"x" * size) == 0
        partition = queue.topic_partition.partition
        self.records[partition] += 1
        return partition

    def drain(self, *nodes: int) -> None:
        """Drain these nodes and acknowledge their batches."""
        accumulator = self.bench.accumulator
        while drained := accumulator.drain(self.bench.cluster, nodes, 1e6, IDENTITY):
            for batches in drained.values():
                for batch in batches:
                    accumulator.batches.off_wire(batch)
                    accumulator.batches.acknowledge(batch, 0, -1)


def test_records_stay_on_one_partition_until_a_batch_is_full() -> None:
    bench = StickyBench([1, 1, 1, 1])
    for _ in range(200):
        bench.send()
        full = bench.state.queues[bench.state.sticky].open
        assert full is not None
    bench.bench.accumulator.close_open_batches()
    batches = bench.bench.accumulator.batches.all()
    assert [batch.count for batch in batches[:-1]] == [batches[0].count] * (len(batches) - 1)
    assert batches[0].count > 10


def test_early_linger_does_not_change_the_sticky_partition() -> None:
    """The sticky partition changes by bytes, not by batches, which was the flaw of KIP-480."""
    bench = StickyBench([1, 1])
    turns: list[int] = []
    for _ in range(3000):
        partition = bench.send()
        if not turns or turns[-1] != partition:
            turns.append(partition)
        if bench.records.total() % 3 == 0:
            bench.drain(1)  # about 170 bytes, a sixth of a batch
    assert 80 <= len(turns) <= 260


@pytest.mark.parametrize("adaptive", [True, False])
def test_each_partition_gets_the_same_bytes_although_some_brokers_are_slow(adaptive: bool) -> None:
    """Batches for the slow broker fill up while those for the other go out early."""
    bench = StickyBench([1, 1, 2, 2], adaptive_partitioning=adaptive)
    chance = random.Random(3)
    for number in range(60_000):
        bench.send(chance.choice([20, 50, 120]))
        if number % 4 == 0:
            bench.drain(1)
        if number % 40 == 0:
            bench.drain(2)
    wire = [queue.filled for queue in bench.state.queues]
    if not adaptive:
        assert all(abs(got - sum(wire) / 4) < 0.06 * sum(wire) / 4 for got in wire), wire
    else:
        fast, slow = sum(wire[:2]), sum(wire[2:])
        assert 1.05 * slow < fast < 3 * slow  # queues of the slow broker are longer, so it is chosen less often


def test_node_that_accepts_nothing_for_long_is_avoided_until_it_does() -> None:
    """KIP-794."""
    bench = StickyBench([1, 2], availability_timeout=5.0)
    accumulator = bench.bench.accumulator
    accumulator.note_refusals([2], now=10.0)
    accumulator.note_refusals([2], now=14.9)
    assert accumulator.slow_nodes == set()
    accumulator.note_refusals([2], now=15.1)
    assert accumulator.slow_nodes == {2}
    bench.drain(1, 2)
    bench.state._sticky_partitioner._choose()
    bench.state.switch_if_due()
    assert {bench.send() for _ in range(300)} == {0}
    accumulator.note_refusals([], now=16.0)
    assert {bench.send() for _ in range(300)} == {0, 1}
    accumulator.note_refusals([2], now=30.0)
    assert accumulator.slow_nodes == set()  # it accepted some batches in between


def test_slow_nodes_are_chosen_when_there_are_no_others() -> None:
    bench = StickyBench([1, 1], availability_timeout=5.0)
    bench.bench.accumulator.slow_nodes = frozenset({1})
    assert {bench.send() for _ in range(300)} == {0, 1}


def test_without_a_timeout_no_node_is_avoided() -> None:
    bench = Bench([1])
    bench.accumulator.note_refusals([1], now=1.0)
    bench.accumulator.note_refusals([1], now=1e6)
    assert bench.accumulator.slow_nodes == set()


def test_record_larger_than_a_batch_shortens_its_partitions_share_by_half_at_most() -> None:
    bench = StickyBench([1, 1], adaptive_partitioning=False)
    for _ in range(4000):
        bench.send(BATCH * 20)
        bench.drain(1)
    assert min(bench.records.values()) > 1500
