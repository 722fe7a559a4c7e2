"""The accumulator's rules, one by one, without a clock and without a network."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.backoff import Backoff
from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.batch_expiry import next_expiry, take_expired
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.client.producer.partition_queue import Compressor
from triokafka.client.producer.record_size import record_bound
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.client.producer.splitting import split_records
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.network.metadata import Cluster, PartitionMetadata, TopicMetadata  # type: ignore[attr-defined]
from triokafka.records import BatchBuilder
from triokafka.structs import Node, TopicPartition

IDENTITY = ProducerIdentity(1, 0)


class Bench:
    """An accumulator and its surroundings for a test. Partition p of topic t is led by node ``leaders[p]``."""

    def __init__(
        self,
        leaders: list[int] | None = None,
        memory: int = 100_000,
        *,
        compressor: Compressor | None = None,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {
            "batch_size": 200,
            "linger": 1.0,
            "delivery_timeout": 100.0,
            "retry_backoff": Backoff(5.0, 20.0),
        }
        self.settings = AccumulatorSettings(**{**given, **settings})
        self.failed: list[ProducerBatch] = []
        batches = IncompleteBatches(self.settings, BufferPool(memory, 200), self.failed.append)
        self.accumulator = Accumulator(batches, new_event=SettledEvent, compressor=compressor)
        self.leaders = leaders or [1]
        self.leader_epoch = -1

    @property
    def cluster(self) -> Cluster:
        nodes = {node: Node(node, "h", 1) for node in (1, 2, 3)}
        partitions = {
            p: PartitionMetadata(p, leader, leader_epoch=self.leader_epoch) for p, leader in enumerate(self.leaders)
        }
        return Cluster(nodes, {"t": TopicMetadata("t", partitions=partitions)})

    def batch(self, partition: int = 0, *, now: float = 0.0, size: int = 50) -> ProducerBatch:
        """Return a new open batch with one record."""
        queue = self.accumulator.queue(TopicPartition("t", partition))
        buffer = self.accumulator.pool.try_allocate(self.accumulator.buffer_size_for("t", size + 30))
        assert buffer is not None
        batch = self.accumulator.open_batch(queue, buffer, now)
        assert batch.append(0, None, b"x" * size) == 0
        return batch

    def close(self, partition: int = 0) -> None:
        self.accumulator.queue(TopicPartition("t", partition)).close_open()

    def ready(self, now: float) -> list[int]:
        return self.accumulator.ready(self.cluster, now).nodes

    def drain(self, now: float, *nodes: int) -> dict[int, list[ProducerBatch]]:
        return self.accumulator.drain(self.cluster, nodes or (1,), now, IDENTITY)

    def retry(self, batch: ProducerBatch, now: float) -> None:
        self.accumulator.batches.off_wire(batch)
        batches = self.accumulator.batches
        batches.retry(batch, now, wait=batches.settings.retry_backoff.without_jitter(batch.attempts))


def test_open_batch_is_ready_after_linger_and_reports_when() -> None:
    bench = Bench()
    bench.batch(now=10.0)
    ready = bench.accumulator.ready(bench.cluster, 10.4)
    assert ready.nodes == []
    assert ready.next_check == pytest.approx(0.6)
    assert bench.ready(11.0) == [1]


def test_closed_batch_and_a_second_batch_make_the_partition_ready() -> None:
    bench = Bench()
    bench.batch()
    assert bench.ready(0.0) == []
    bench.close()
    assert bench.ready(0.0) == [1]


def test_batch_filled_to_the_limit_is_ready() -> None:
    bench = Bench()
    batch = bench.batch()
    while batch.append(0, None, b"y") >= 0:
        pass
    assert batch.full or batch.size > 190
    bench.close()
    assert bench.ready(0.0) == [1]


def test_flush_closing_and_waiters_make_everything_ready() -> None:
    bench = Bench()
    bench.batch()
    assert bench.ready(0.0) == []
    bench.accumulator.flushes = 1
    assert bench.ready(0.0) == [1]
    bench.accumulator.flushes = 0
    bench.accumulator.closing = True
    assert bench.ready(0.0) == [1]
    bench.accumulator.closing = False
    bench.accumulator.pool._waiters.append(object())  # type: ignore[arg-type]
    assert bench.ready(0.0) == [1]


def test_back_off_vetoes_also_flush_and_close() -> None:
    bench = Bench()
    batch = bench.batch()
    bench.drain(1.0)
    bench.retry(batch, 2.0)
    bench.accumulator.flushes = 1
    bench.accumulator.closing = True
    ready = bench.accumulator.ready(bench.cluster, 6.9)
    assert ready.nodes == []
    assert ready.next_check == pytest.approx(0.1)
    assert bench.drain(6.9) == {}
    assert bench.ready(7.1) == [1]


def test_new_leaders_end_the_back_off_a_few_times_only() -> None:
    """A broker may name another leader epoch with each refusal."""
    bench = Bench()
    batch = bench.batch()
    attempts = 0
    for epoch in range(100):
        bench.leader_epoch = epoch
        if not bench.drain(1.0):
            break
        attempts += 1
        bench.retry(batch, 1.0)
    assert 1 < attempts < 10
    assert bench.drain(60.0) == {1: [batch]}


def test_later_batches_wait_behind_a_head_that_backs_off() -> None:
    bench = Bench()
    first = bench.batch()
    bench.drain(1.0)
    bench.batch()
    bench.close()
    bench.retry(first, 2.0)
    assert bench.ready(3.0) == []
    assert bench.drain(3.0) == {}


def test_muted_partition_is_neither_ready_nor_drained() -> None:
    bench = Bench([1, 1], one_in_flight=True)
    first = bench.batch(0)
    bench.drain(1.0)
    bench.batch(0)
    bench.close(0)
    assert bench.ready(5.0) == []
    other = bench.batch(1, now=0.0)
    assert bench.ready(5.0) == [1]
    assert bench.drain(5.0) == {1: [other]}
    bench.accumulator.batches.off_wire(first)
    bench.accumulator.batches.acknowledge(first, 0, -1)
    assert bench.ready(5.0) == [1]


def test_muted_partition_is_not_drained_with_a_ready_one() -> None:
    bench = Bench([1, 1], one_in_flight=True)
    bench.batch(0)
    bench.drain(1.0)
    bench.batch(0)
    other = bench.batch(1)
    assert bench.drain(5.0) == {1: [other]}


def test_batch_that_backs_off_is_not_drained_with_a_ready_one() -> None:
    bench = Bench([1, 1])
    refused = bench.batch(0)
    bench.drain(1.0)
    bench.retry(refused, 2.0)
    other = bench.batch(1)
    bench.close(1)
    assert bench.ready(3.0) == [1]
    assert bench.drain(3.0) == {1: [other]}


def test_next_check_is_when_the_earliest_wait_ends() -> None:
    """The batches linger or back off."""
    bench = Bench([1, 2, 3])
    refused = bench.batch(0)
    bench.drain(1.0)
    bench.retry(refused, 10.0)
    bench.batch(1, now=9.5)
    bench.batch(2, now=9.8)
    assert bench.accumulator.ready(bench.cluster, 10.0).next_check == pytest.approx(0.5)


def test_unknown_leader_is_reported_only_while_records_wait_for_it() -> None:
    bench = Bench([-1])
    assert not bench.accumulator.ready(bench.cluster, 0.0).leaderless
    bench.batch()
    assert bench.accumulator.ready(bench.cluster, 0.0).leaderless


def test_lingering_batches_are_drained_with_a_ready_one() -> None:
    bench = Bench([1, 1, 2])
    full = bench.batch(0)
    bench.close(0)
    lingering = bench.batch(1)
    elsewhere = bench.batch(2)
    assert bench.ready(0.0) == [1]
    assert bench.drain(0.0, 1) == {1: [full, lingering]}
    assert not elsewhere.closed


def test_drain_takes_one_batch_per_partition_in_order() -> None:
    bench = Bench()
    batches = [bench.batch() for _ in range(3)]
    assert [bench.drain(0.0)[1] for _ in range(3)] == [[batch] for batch in batches]


def test_request_size_is_limited_but_one_batch_is_always_sent() -> None:
    bench = Bench([1, 1, 1], max_request_size=250)
    batches = [bench.batch(p, size=80) for p in range(3)]
    assert bench.drain(5.0) == {1: batches[:1]}
    bench = Bench([1], max_request_size=100)
    big = bench.batch(0, size=500)
    assert bench.drain(5.0) == {1: [big]}


def test_next_drain_continues_where_the_size_limit_stopped() -> None:
    bench = Bench([1, 1, 1], max_request_size=250)
    for p in range(3):
        for _ in range(3):
            bench.batch(p, size=80)
    order = [bench.drain(5.0)[1][0].topic_partition.partition for _ in range(9)]
    assert order == [0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_rotation_of_partitions_is_per_node() -> None:
    bench = Bench([1, 1, 2, 2], max_request_size=250)
    for p in range(4):
        for _ in range(2):
            bench.batch(p, size=80)
    first = bench.drain(5.0, 1)
    second = bench.drain(5.0, 2)
    third = bench.drain(5.0, 1)
    fourth = bench.drain(5.0, 2)
    drained = (*first[1], *second[2], *third[1], *fourth[2])
    assert [batch.topic_partition.partition for batch in drained] == [0, 2, 1, 3]


def test_drained_batch_is_closed_and_retried_with_the_same_bytes() -> None:
    bench = Bench(idempotent=True)
    batch = bench.batch()
    bench.drain(2.0)
    assert batch.closed
    assert batch.append(0, None, b"late") == -1
    sent = bytes(batch.build())
    bench.retry(batch, 3.0)
    bench.drain(20.0)
    assert bytes(batch.build()) == sent
    assert batch.attempts == 2


def test_retried_batches_return_to_their_positions() -> None:
    """The order of the responses does not matter."""
    bench = Bench()
    batches = [bench.batch() for _ in range(5)]
    for _ in range(4):
        bench.drain(0.0)
    for position in (2, 0, 3, 1):
        bench.retry(batches[position], 0.0)
    assert list(bench.accumulator.queue(TopicPartition("t", 0)).batches) == batches


def test_memory_is_reserved_until_the_batch_is_settled() -> None:
    bench = Bench()
    batch = bench.batch()
    pool = bench.accumulator.pool
    bench.drain(2.0)
    bench.retry(batch, 3.0)
    assert pool.in_use == 200
    assert bench.accumulator.batches.all() == [batch]
    bench.drain(20.0)
    bench.accumulator.batches.off_wire(batch)
    bench.accumulator.batches.acknowledge(batch, 7, -1)
    assert pool.in_use == 0
    assert not bench.accumulator.batches.unsettled


_texts = st.text(max_size=20)
_bytes = st.none() | st.binary(max_size=70)


@given(
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(_texts, _bytes), max_size=70),
    timestamps=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
)
def test_no_record_takes_more_than_its_bound(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamps: tuple[int, int]
) -> None:
    """A caller that reserved memory of this size relies on the bound."""
    builder = BatchBuilder(1 << 20)
    builder.append(timestamps[0], None, None)
    before = builder.size
    builder.append(timestamps[1], key, value, headers)
    assert builder.size - before <= record_bound(key, value, headers)


def test_settled_batch_references_none_of_its_memory() -> None:
    """Applications may hold deliveries for a long time."""
    bench = Bench()
    batch = bench.batch()
    assert batch.builder is not None
    buffer = batch.builder.buffer
    bench.drain(2.0)
    bench.accumulator.batches.off_wire(batch)
    bench.accumulator.batches.acknowledge(batch, 7, -1)
    like = bytearray()
    pool = [like]  # referenced by a variable and by one other object, as the buffer must be
    assert sys.getrefcount(buffer) == sys.getrefcount(like) and pool
    assert batch.append(0, None, b"late") == -1
    assert batch.count == 1


def test_expired_batches_fail_in_order_of_creation_and_the_others_stay() -> None:
    bench = Bench([1, 1])
    old = [bench.batch(0, now=0.0), bench.batch(1, now=1.0), bench.batch(0, now=2.0)]
    young = bench.batch(0, now=50.0)
    assert next_expiry(bench.accumulator.batches, 40.0) == 60.0
    assert take_expired(bench.accumulator.batches, 102.0) == old
    assert bench.failed == old
    assert all(isinstance(batch.error, KafkaTimeoutError) for batch in old)
    assert bench.accumulator.batches.all() == [young]
    assert bench.drain(102.0) == {1: [young]}


def test_expiry_stops_at_the_first_batch_within_its_time() -> None:
    """Failures are therefore in the order of the records, even if a clock jumped."""
    bench = Bench()
    young = bench.batch(0, now=50.0)
    bench.batch(0, now=0.0)
    assert take_expired(bench.accumulator.batches, 120.0) == []
    assert not young.done


def test_pieces_of_a_split_batch_inherit_its_position_age_and_memory() -> None:
    bench = Bench(idempotent=True)
    accumulator = bench.accumulator
    whole = bench.batch(size=20)
    for _ in range(2):
        whole.append(0, None, b"y" * 20)
    bench.drain(2.0)
    later = bench.batch(now=3.0)
    accumulator.batches.off_wire(whole)
    pieces, starts = split_records(whole, bench.settings)
    accumulator.batches.split(whole, pieces, starts)
    assert accumulator.batches.all() == [*pieces, later]
    assert list(accumulator.queue(TopicPartition("t", 0)).batches) == [*pieces, later]
    assert [piece.created_at for piece in pieces] == [0.0, 0.0]
    assert [(piece.count, piece.base_sequence, piece.attempts) for piece in pieces] == [(1, 0, 0), (2, 1, 0)]
    assert [piece.reserved for piece in pieces] == [100, 100]
    assert accumulator.pool.in_use == 400
    take_expired(accumulator.batches, 1000.0)
    assert bench.failed == [*pieces, later]
    assert accumulator.pool.in_use == 0


def test_batch_that_cannot_be_created_releases_its_memory() -> None:
    bench = Bench()
    accumulator = bench.accumulator
    bench.batch()
    accumulator.settings = replace(accumulator.settings, compression_type="nonsense")
    buffer = accumulator.pool.try_allocate(200)
    assert buffer is not None
    with pytest.raises(KafkaError):
        accumulator.open_batch(accumulator.queue(TopicPartition("t", 0)), buffer, 0.0)
    assert accumulator.pool.in_use == 200
    assert len(accumulator.batches.all()) == 1


def test_batch_without_records_is_dropped_when_it_would_be_sent() -> None:
    """Its first record failed while it was written; only flush waits for the batch."""
    bench = Bench([1, 1])
    accumulator = bench.accumulator
    buffer = accumulator.pool.try_allocate(200)
    assert buffer is not None
    empty = accumulator.open_batch(accumulator.queue(TopicPartition("t", 0)), buffer, 0.0)
    other = bench.batch(1)
    assert bench.drain(5.0) == {1: [other]}
    assert empty.done
    assert not empty.failed
    assert accumulator.batches.all() == [other]
    assert accumulator.pool.in_use == 200


def test_batch_that_expires_in_flight_releases_its_memory_with_the_response() -> None:
    """Its bytes may still be on their way to the socket."""
    bench = Bench()
    batch = bench.batch()
    bench.drain(2.0)
    take_expired(bench.accumulator.batches, 200.0)
    assert batch.done
    assert bench.accumulator.pool.in_use == 200
    bench.accumulator.batches.off_wire(batch)
    bench.accumulator.batches.late_answer(batch, written=True)
    assert bench.accumulator.pool.in_use == 0


def test_abort_fails_everything_once() -> None:
    bench = Bench([1, 1])
    on_wire = bench.batch(0)
    bench.drain(5.0)
    queued = bench.batch(1)
    bench.accumulator.batches.abort(lambda batch: KafkaError("closed"))
    assert bench.failed == [on_wire, queued]
    assert not bench.accumulator.active
    bench.accumulator.batches.off_wire(on_wire)
    bench.accumulator.batches.late_answer(on_wire, written=False)
    assert bench.accumulator.pool.in_use == 0


def test_unacknowledged_first_batch_delays_retries_of_later_ones() -> None:
    bench = Bench(idempotent=True)
    first, second = bench.batch(), bench.batch()
    bench.drain(2.0)
    bench.drain(2.0)
    bench.retry(second, 2.0)
    assert bench.ready(60.0) == []
    assert bench.drain(60.0) == {}
    bench.accumulator.batches.off_wire(first)
    bench.accumulator.batches.acknowledge(first, 0, -1)
    assert bench.drain(60.0) == {1: [second]}


def test_take_following_returns_the_batch_that_the_next_drain_would_return() -> None:
    bench = Bench()
    first, second, third = bench.batch(), bench.batch(), bench.batch()
    bench.drain(0.0)
    first.leader_epoch = 7
    follow = bench.accumulator.take_following
    assert follow(first, 0.0, IDENTITY) is second
    assert second.on_wire
    assert second.attempts == 1
    assert second.leader_epoch == 7
    assert follow(second, 0.0, IDENTITY) is None, "the last batch lingers"
    bench.close()
    assert bench.drain(0.0) == {1: [third]}
    assert follow(third, 0.0, IDENTITY) is None, "nothing is left"


@pytest.mark.parametrize("settings", [{"one_in_flight": True}, {"compression_type": "gzip"}, {"idempotent": True}, {}])
def test_take_following_returns_no_batch_that_must_wait(settings: dict[str, Any]) -> None:
    """The batch is muted, still to be compressed, behind the first one of a producer that the broker does not know yet,
    or backing off.
    """
    bench = Bench(**settings)
    first, second, _ = bench.batch(), bench.batch(), bench.batch()
    bench.drain(2.0)
    follow = bench.accumulator.take_following
    if not settings:
        assert follow(first, 2.0, IDENTITY) is second
        bench.retry(second, 2.0)
    assert follow(first, 2.0, IDENTITY) is None
    if settings.get("idempotent"):
        bench.accumulator.batches.off_wire(first)
        bench.accumulator.batches.acknowledge(first, 0, -1)
        assert follow(first, 2.0, IDENTITY) is second


def test_a_batch_does_not_overtake_those_of_other_partitions() -> None:
    bench = Bench([1, 1])
    first, second, _ = bench.batch(0), bench.batch(0), bench.batch(0)
    other = bench.batch(1)
    assert bench.drain(2.0) == {1: [first, other]}
    assert bench.accumulator.take_following(other, 2.0, IDENTITY) is None
    last = bench.batch(1)
    assert bench.accumulator.take_following(first, 2.0, IDENTITY) is None
    assert bench.drain(2.0) == {1: [second, last]}


def test_a_batch_without_records_does_not_follow() -> None:
    bench = Bench()
    first = bench.batch()
    queue = bench.accumulator.queue(TopicPartition("t", 0))
    buffer = bench.accumulator.pool.try_allocate(200)
    assert buffer is not None
    bench.accumulator.open_batch(queue, buffer, 0.0)
    bench.batch()
    bench.drain(0.0)
    assert bench.accumulator.take_following(first, 0.0, IDENTITY) is None


def test_the_only_batch_is_taken_without_a_scan_of_all_partitions() -> None:
    bench = Bench([1, 1], linger=0.0)
    only = bench.batch()
    assert bench.accumulator.only_head(0.0) is only
    bench.accumulator.take_only(only, 7, IDENTITY)
    assert only.on_wire
    assert only.closed
    assert only.attempts == 1
    assert only.leader_epoch == 7
    assert not bench.accumulator.active
    bench.retry(only, 0.0)
    assert bench.accumulator.only_head(1.0) is None, "the batch backs off"
    assert bench.accumulator.only_head(60.0) is only
    bench.batch()
    assert bench.accumulator.only_head(60.0) is None, "another batch is behind it"
    bench.drain(60.0)
    assert bench.accumulator.only_head(60.0) is not None
    bench.batch(1)
    assert bench.accumulator.only_head(60.0) is None, "another partition has a batch"


@pytest.mark.parametrize("settings", [{"one_in_flight": True}, {"idempotent": True}])
def test_the_only_batch_waits_for_the_one_in_flight(settings: dict[str, Any]) -> None:
    """It is muted, or behind the first one of a producer that the broker does not know yet."""
    bench = Bench(linger=0.0, **settings)
    first = bench.batch()
    assert bench.accumulator.only_head(0.0) is first
    bench.accumulator.take_only(first, 0, IDENTITY)
    second = bench.batch()
    assert bench.accumulator.only_head(0.0) is None
    bench.accumulator.batches.off_wire(first)
    bench.accumulator.batches.acknowledge(first, 0, -1)
    assert bench.accumulator.only_head(0.0) is second


@pytest.mark.parametrize("settings", [{"compression_type": "gzip"}, {"linger": 1.0}])
def test_a_batch_that_is_to_be_compressed_or_lingers_is_not_taken_alone(settings: dict[str, Any]) -> None:
    bench = Bench(**{"linger": 0.0, **settings})
    bench.batch()
    assert bench.accumulator.only_head(0.0) is None


def test_a_flush_takes_the_only_batch_before_its_linger_time() -> None:
    bench = Bench(linger=1.0)
    only = bench.batch()
    bench.accumulator.flushes += 1
    assert bench.accumulator.only_head(0.0) is only


def test_the_only_batch_has_records() -> None:
    bench = Bench(linger=0.0)
    buffer = bench.accumulator.pool.try_allocate(200)
    assert buffer is not None
    bench.accumulator.open_batch(bench.accumulator.queue(TopicPartition("t", 0)), buffer, 0.0)
    assert bench.accumulator.only_head(0.0) is None
