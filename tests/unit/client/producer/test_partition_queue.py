"""The queue of a partition, and when it is dropped."""

from __future__ import annotations

import gc
import weakref

from tests.unit.client.producer.test_accumulator import Bench
from triokafka.client.producer.batch_expiry import take_expired
from triokafka.client.producer.partition_queue import CompressionRatio, PartitionQueue, QueueRegister
from triokafka.structs import TopicPartition

TP = TopicPartition("t", 0)


def test_partition_has_one_queue_while_it_is_referenced() -> None:
    register = QueueRegister()
    held = register.get(TP)
    assert register.get(TP) is held
    assert register.get(TopicPartition("t", 1)) is not held
    assert len(register) == 1


def test_unreferenced_queue_is_dropped_at_once() -> None:
    """The garbage collector is not needed."""
    register = QueueRegister()
    gc.disable()
    try:
        queue = register.get(TP)
        ratio = weakref.ref(queue.ratio)
        del queue
        assert len(register) == 0
        assert ratio() is None
    finally:
        gc.enable()


def test_partitions_of_a_topic_share_the_compression_ratio() -> None:
    register = QueueRegister()
    first, second, other = register.get(TP), register.get(TopicPartition("t", 1)), register.get(TopicPartition("u", 0))
    for _ in range(30):
        first.ratio.observe(0.3)
    assert second.ratio.expected == 0.35
    assert other.ratio.expected == 1.0
    first.ratio.reset()
    assert second.ratio.expected == 1.0


def test_compression_ratio_changes_in_steps_and_errs_towards_small_batches() -> None:
    ratio = CompressionRatio()
    seen = []
    for _ in range(60):
        ratio.observe(0.01)
        assert ratio.expected >= ratio._observed
        seen.append(ratio.expected)
    assert set(seen) == {1.0, 0.75, 0.5, 0.35, 0.25}
    for _ in range(60):
        ratio.observe(3.0)
    assert ratio.expected == 1.0


def test_worse_compression_is_assumed_at_once() -> None:
    ratio = CompressionRatio()
    for _ in range(60):
        ratio.observe(0.2)
    assert ratio.expected == 0.25
    ratio.observe(0.6)
    assert ratio.expected == 0.75
    ratio.observe(0.2)
    assert ratio.expected == 0.75


def test_only_a_dropped_queue_with_sequence_numbers_requires_a_new_epoch() -> None:
    register = QueueRegister()
    unused, used = register.get(TP), register.get(TopicPartition("t", 1))
    del unused
    assert not register.take_lost_numbers()
    used.sequences.next = 3
    del used
    assert register.take_lost_numbers()
    assert not register.take_lost_numbers()


def test_queue_with_waiting_or_in_flight_batches_is_not_dropped() -> None:
    bench = Bench()
    queues = bench.accumulator.queues
    batch = bench.batch()
    assert len(queues) == 1
    bench.drain(5.0)
    assert len(queues) == 1
    bench.accumulator.batches.off_wire(batch)
    bench.accumulator.batches.acknowledge(batch, 0, -1)
    assert len(queues) == 0


def test_queue_is_not_dropped_before_the_last_request_with_its_batches_has_ended() -> None:
    """The batch is settled, but its sequence numbers still count."""
    bench = Bench(idempotent=True)
    batch = bench.batch()
    bench.drain(5.0)
    take_expired(bench.accumulator.batches, 1000.0)
    assert batch.done
    assert len(bench.accumulator.queues) == 1
    bench.accumulator.batches.off_wire(batch)
    bench.accumulator.batches.late_answer(batch, written=True)
    bench.accumulator.batches.take_restarts()
    assert len(bench.accumulator.queues) == 0
    assert bench.accumulator.queues.take_lost_numbers()


def test_batches_are_requeued_in_the_order_of_their_sequence_numbers() -> None:
    bench = Bench()
    queue: PartitionQueue = bench.accumulator.queue(TP)
    batches = [bench.batch() for _ in range(4)]
    queue.batches.clear()
    for position in (3, 0, 2, 1):
        queue.put_back(batches[position])
    assert list(queue.batches) == batches
