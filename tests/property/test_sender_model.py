"""The sender, the accumulator and the sequence numbers against a model of a broker, in every order that chance finds.

The broker checks sequences as Kafka does. Whatever is refused, lost, cut off or expires: the log holds the records of a
partition in the order of their sending, each at most once; what was acknowledged is there, what the broker refused is
not; and in the end all memory is back.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.scripted_broker import ScriptedCluster
from triokafka.client.producer.accumulator import Accumulator, AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.sender import Sender
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.errors import KafkaConnectionError
from triokafka.network.backoff import Backoff
from triokafka.network.metadata import Cluster, PartitionMetadata, TopicMetadata
from triokafka.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from triokafka.records import decode_records
from triokafka.structs import Node, TopicPartition

PARTITIONS = 2
MEMORY = 20_000


class FakeClient:
    """A network client with one connection, whose requests wait until the test answers them."""

    def __init__(self, in_flight: int) -> None:
        self.config = SimpleNamespace(request_timeout_ms=1000)
        self.metadata = SimpleNamespace(update_leader=lambda *_: False, use_topic=lambda *_: False)
        partitions = {p: PartitionMetadata(p, 1) for p in range(PARTITIONS)}
        self.cluster = Cluster({1: Node(1, "h", 1)}, {"t": TopicMetadata("t", partitions=partitions)})
        self.wire: deque[tuple[ProduceRequest, Any]] = deque()
        self.max_in_flight = in_flight

    def ready(self, node: int) -> bool:
        return len(self.wire) < self.max_in_flight

    def ready_delay(self, node: int) -> float:
        return float("inf")

    def version_for(self, *_: Any, **__: Any) -> int:
        return 9

    def request_metadata_update(self) -> None:
        pass

    def channel_error(self, node: int) -> None:
        return None

    def submit(self, node: int, request: ProduceRequest, version: int, on_done: Any, **_: Any) -> None:
        # What was written to the wire does not change any more, whatever becomes of the batch.
        for topic in request.topic_data:
            for partition in topic.partition_data:
                partition.records = bytes(partition.records or b"")
        self.wire.append((request, on_done))


class SenderMachine(RuleBasedStateMachine):
    """Sends, answers and accidents in any order."""

    @initialize(in_flight=st.sampled_from([1, 2, 5]))
    def start(self, in_flight: int) -> None:
        """One producer and one broker."""
        self.now = 100.0
        self.broker = ScriptedCluster(t=PARTITIONS)
        self.client = FakeClient(in_flight)
        limits = AccumulatorSettings(
            batch_size=300,
            linger=0.0,
            delivery_timeout=50.0,
            retry_backoff=Backoff(1.0, 4.0),
            idempotent=True,
            one_in_flight=in_flight == 1,
        )
        self.failed: list[ProducerBatch] = []
        self.accumulator = Accumulator(limits, BufferPool(MEMORY, 300), self.failed.append)
        world = SimpleNamespace(now=lambda: self.now, random=SimpleNamespace(random=lambda: 0.5))
        self.fatal: list[Exception] = []
        self.sender = Sender(
            self.accumulator,
            self.client,  # type: ignore[arg-type]
            world=world,  # type: ignore[arg-type]
            acks=-1,
            retries=1_000_000,
            idempotence_required=True,
            start_identity_task=lambda: None,
            on_fatal=self.fatal.append,
        )
        self.sender.identity = ProducerIdentity(7, 0)
        self.next_number = 0
        self.sent: dict[int, tuple[ProducerBatch, int]] = {}
        self.refused: set[int] = set()

    def _step(self) -> None:
        self.sender.step(self.now)

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 6))
    def send(self, partition: int, count: int) -> None:
        """Records of about a third of a batch."""
        queue = self.accumulator.queue(TopicPartition("t", partition))
        for _ in range(count):
            number, value = self.next_number, b"%06d" % self.next_number + b"x" * 60
            index = -1 if queue.open is None else queue.open.append(0, None, value)
            if index < 0:
                queue.close_open()
                buffer = self.accumulator.pool.try_allocate(300)
                if buffer is None:
                    return
                batch = self.accumulator.open_batch(queue, buffer, self.now)
                index = batch.append(0, None, value)
            assert queue.open is not None
            self.sent[number] = (queue.open, index)
            self.next_number += 1

    @rule()
    def step(self) -> None:
        """The sender's task runs."""
        self._step()

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0]))
    def wait(self, seconds: float) -> None:
        """Back-offs pass."""
        self.now += seconds
        self._step()

    @rule()
    def expire(self) -> None:
        """Everything there is gets too old, queued or on the wire."""
        self.now += 60.0
        self._step()

    @precondition(lambda self: self.client.wire)
    @rule()
    def answer(self) -> None:
        """The oldest request is done and answered."""
        request, on_done = self.client.wire.popleft()
        on_done(self._apply(request, {}), None)

    @precondition(lambda self: self.client.wire)
    @rule(code=st.sampled_from([5, 6, 7, 19]), which=st.integers(0, 3))
    def refuse_for_now(self, code: int, which: int) -> None:
        """Some partitions of the oldest request are refused for a passing reason."""
        request, on_done = self.client.wire.popleft()
        on_done(self._apply(request, {p: code for p in range(PARTITIONS) if which & 1 << p}), None)

    @precondition(lambda self: self.client.wire)
    @rule(partition=st.integers(0, PARTITIONS - 1))
    def refuse_for_good(self, partition: int) -> None:
        """One partition of the oldest request is refused for good; never a batch that was accepted before."""
        request, on_done = self.client.wire.popleft()
        errors = {}
        for p in request.topic_data[0].partition_data:
            first = decode_records(p.records or b"")[0].value
            if p.index == partition and first not in self.broker.values("t", partition):
                errors[partition] = 18
        on_done(self._apply(request, errors), None)

    @precondition(lambda self: self.client.wire)
    @rule(written=st.integers(0, 5))
    def cut(self, written: int) -> None:
        """The connection breaks; the broker has done the first few requests, but nobody hears of it."""
        broken = list(self.client.wire)
        self.client.wire.clear()
        for request, _ in broken[:written]:
            self._apply(request, {})
        for _, on_done in reversed(broken):
            on_done(None, KafkaConnectionError("cut"))

    def _apply(self, request: ProduceRequest, errors: dict[int, int]) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            partitions = []
            for p in topic.partition_data:
                if p.index in errors:
                    code, base = errors[p.index], -1
                else:
                    code, base = self.broker.append(TopicPartition("t", p.index), p.records)
                partitions.append(PartitionProduceResponse(index=p.index, error_code=code, base_offset=base))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)

    @invariant()
    def log_is_in_order_without_repeats(self) -> None:
        """Gaps are possible (what failed), disorder and repeats are not."""
        if not hasattr(self, "broker"):
            return
        for partition in range(PARTITIONS):
            numbers = [int(value[:6]) for value in self.broker.values("t", partition) if value]
            assert numbers == sorted(set(numbers))

    @invariant()
    def acknowledged_records_are_where_they_are_said_to_be(self) -> None:
        """And memory adds up."""
        if not hasattr(self, "broker"):
            return
        assert not self.fatal
        for number, (batch, index) in self.sent.items():
            if batch.done and not batch.failed and batch.base_offset >= 0:
                log = self.broker.values("t", batch.topic_partition.partition)
                value = log[batch.base_offset + index]
                assert value is not None
                assert int(value[:6]) == number
        pool = self.accumulator.pool
        assert 0 <= pool.in_use <= MEMORY

    def teardown(self) -> None:
        """Once the broker behaves, everything is settled within a few rounds, and all memory is back."""
        if not hasattr(self, "broker"):
            return
        for _ in range(200):
            self._step()
            while self.client.wire:
                self.answer()
            self.now += 1.0
            if not self.accumulator.has_incomplete:
                break
        assert not self.accumulator.has_incomplete
        assert self.accumulator.pool.in_use == 0
        written = {int(v[:6]) for p in range(PARTITIONS) for v in self.broker.values("t", p) if v}
        for number, (batch, _) in self.sent.items():
            assert batch.done
            assert batch.failed or number in written


SenderMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestSenderModel = SenderMachine.TestCase
