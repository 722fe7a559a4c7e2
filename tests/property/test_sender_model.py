"""The sender, the accumulator and the sequence numbers against a model of a broker, in random order.

The broker checks sequences as Kafka does. Batches are refused, lost, cut off, split, forgotten or expire; in every case
the log has the records of a partition in the order of sending, each at most once; acknowledged records are at their
stated offsets, permanently refused ones are not in the log; every record is settled once; and at the end all memory is
released.
"""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from triokafka.backoff import Backoff
from triokafka.client.deliveries import Delivery
from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.sender import Sender
from triokafka.client.producer.sequences import ProducerIdentity, add_sequence
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.client.producer.wakeup import Wakeup
from triokafka.errors import KafkaConnectionError
from triokafka.network.cluster import Cluster, PartitionMetadata, TopicMetadata
from triokafka.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from triokafka.protocol.frames import decode_request
from triokafka.protocol.templates import FilledRequest
from triokafka.records import decode_records, iter_batches
from triokafka.structs import Node, TopicPartition

PARTITIONS = 2
MEMORY = 20_000
BATCH = 300
REQUEST = 500
REMEMBERED_BATCHES = 5
OK, TOO_LARGE, RECORD_LIST_TOO_LARGE, OUT_OF_ORDER, OLD_EPOCH, UNKNOWN_PRODUCER = 0, 10, 18, 45, 47, 59


class ModelLog:
    """One partition: its records and producer states, by Kafka's rules."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def append(self, records: bytes) -> tuple[int, int]:
        """Return error code and base offset."""
        [batch] = iter_batches(records, check_crc=True)
        first, last = batch.base_sequence, batch.last_sequence
        assert first >= 0
        epoch, recent = self.producers.get(batch.producer_id, (-1, []))
        if batch.producer_epoch < epoch:
            return OLD_EPOCH, -1
        if batch.producer_epoch == epoch:
            for known_first, known_last, offset in recent:
                if (known_first, known_last) == (first, last):
                    return OK, offset
            if first != add_sequence(recent[-1][1], 1):
                return OUT_OF_ORDER, -1
        elif epoch >= 0 and first != 0:
            return OUT_OF_ORDER, -1
        else:
            recent = []
        base = len(self.values)
        self.values += [bytes(record.value or b"") for record in decode_records(records)]
        self.producers[batch.producer_id] = batch.producer_epoch, [*recent, (first, last, base)][-REMEMBERED_BATCHES:]
        return OK, base


class FakeClient:
    """A network client with one connection, whose requests wait until the test responds."""

    def __init__(self, in_flight: int) -> None:
        self.config = SimpleNamespace(request_timeout_ms=1000, client_id="test")
        self.api_versions: dict[int, Any] = {}
        self.metadata = SimpleNamespace(update_leader=lambda *_: False, use_topic=lambda *_: False)
        partitions = {p: PartitionMetadata(p, 1) for p in range(PARTITIONS)}
        self.cluster = Cluster({1: Node(1, "h", 1)}, {"t": TopicMetadata("t", partitions=partitions)})
        self.wire: deque[tuple[ProduceRequest, Any]] = deque()
        self.max_in_flight = in_flight

    def ready_channel(self, node: int, now: float) -> FakeClient | None:
        return self if len(self.wire) < self.max_in_flight else None

    def is_ready(self, now: float) -> bool:
        return len(self.wire) < self.max_in_flight

    def hold(self) -> None:
        pass

    def let_go(self) -> None:
        pass

    def ready_delay(self, node: int) -> float:
        return float("inf")

    def version_for(self, *_: Any, **__: Any) -> int:
        return 9

    def channel_error(self, node: int) -> None:
        return None

    def request_metadata_update(self) -> None:
        pass

    def submit(self, request: ProduceRequest | FilledRequest, version: int, on_done: Any, **_: Any) -> None:
        if isinstance(request, FilledRequest):
            _, read = decode_request(b"".join(request.template.frame(1, request.records))[4:])  # type: ignore[assignment]
            assert isinstance(read, ProduceRequest)
            request = read
        # The written bytes do not change any more, whatever happens to the batch.
        for topic in request.topic_data:
            for partition in topic.partition_data:
                partition.records = bytes(partition.records or b"")
        self.wire.append((request, on_done))


class SenderMachine(RuleBasedStateMachine):
    """Sends, responses and faults in any order."""

    @initialize(
        in_flight=st.sampled_from([1, 2, 5]), near_the_end=st.booleans(), codec=st.sampled_from(["none", "gzip"])
    )
    def start(self, in_flight: int, near_the_end: bool, codec: str) -> None:
        """Create one producer and one broker; the sequence numbers may be about to wrap to 0."""
        self.now = 100.0
        self.logs = [ModelLog() for _ in range(PARTITIONS)]
        self.client = FakeClient(in_flight)
        limits = AccumulatorSettings(
            batch_size=BATCH,
            linger=0.0,
            delivery_timeout=50.0,
            retry_backoff=Backoff(1.0, 4.0),
            max_request_size=REQUEST,
            compression_type=codec,
            idempotent=True,
            one_in_flight=in_flight == 1,
        )
        self.failed: list[ProducerBatch] = []
        batches = IncompleteBatches(limits, BufferPool(MEMORY, BATCH), self.failed.append)
        self.accumulator = Accumulator(batches, new_event=SettledEvent)
        world = SimpleNamespace(now=lambda: self.now, random=SimpleNamespace(random=lambda: 0.5))
        self.fatal: list[Exception] = []
        self.sender = Sender(
            self.accumulator,
            self.client,  # type: ignore[arg-type]
            world=world,  # type: ignore[arg-type]
            wakeup=Wakeup(world),  # type: ignore[arg-type]
            acks=-1,
            retries=1_000_000,
            idempotence_required=True,
            start_identity_task=lambda: None,
            on_fatal=self.fatal.append,
        )
        self.sender.idempotence.identity = ProducerIdentity(7, 0)
        self.next_number = 0
        self.sent: dict[int, tuple[ProducerBatch, int]] = {}
        self.callback_counts: Counter[int] = Counter()
        self.acknowledged: dict[int, int] = {}
        self.errors: dict[int, Exception] = {}
        self.refused: set[int] = set()
        self.held: dict[int, PartitionQueue] = {}
        if near_the_end:
            for partition in range(PARTITIONS):
                sequences = self._queue(partition).sequences
                sequences.identity = self.sender.idempotence.identity
                sequences.next = 2**31 - 4
                sequences.last_acked = 2**31 - 5
                self.logs[partition].producers[7] = 0, [(2**31 - 5, 2**31 - 5, -1)]

    def _queue(self, partition: int) -> PartitionQueue:
        return self.held.setdefault(partition, self.accumulator.queue(TopicPartition("t", partition)))

    def _step(self) -> None:
        self.sender.step(self.now)

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 6))
    def send(self, partition: int, count: int) -> None:
        """Send records of about a third of a batch."""
        queue = self._queue(partition)
        for _ in range(count):
            number, value = self.next_number, b"%06d" % self.next_number + b"x" * 60
            index = -1 if queue.open is None else queue.open.append(0, None, value)
            if index < 0:
                queue.close_open()
                buffer = self.accumulator.pool.try_allocate(self.accumulator.buffer_size_for("t", len(value) + 10))
                if buffer is None:
                    return
                batch = self.accumulator.open_batch(queue, buffer, self.now)
                index = batch.append(0, None, value)
            assert queue.open is not None
            self.sent[number] = (queue.open, index)
            Delivery(queue.open, index, 0, -1, len(value)).add_callback(self._counting_callback(number))
            self.next_number += 1

    def _counting_callback(self, number: int) -> Any:
        def on_delivery(metadata: Any, error: Exception | None) -> None:
            self.callback_counts[number] += 1
            if error is not None:
                self.errors[number] = error
            else:
                self.acknowledged[number] = metadata.offset

        return on_delivery

    @rule()
    def step(self) -> None:
        """Run the sender's task once."""
        self._step()

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0]))
    def wait(self, seconds: float) -> None:
        """Let back-offs pass."""
        self.now += seconds
        self._step()

    @rule()
    def expire(self) -> None:
        """Let all batches expire, queued or in flight."""
        self.now += 60.0
        self._step()

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def forget(self, partition: int) -> None:
        """Release the partition's queue for the time being."""
        self.held.pop(partition, None)

    @precondition(lambda self: self.client.wire)
    @rule()
    def answer(self) -> None:
        """Execute the oldest request, and respond."""
        request, on_done = self.client.wire.popleft()
        on_done(self._apply(request, {}), None)

    @precondition(lambda self: self.client.wire)
    @rule(code=st.sampled_from([5, 6, 7, 19]), which=st.integers(0, 3))
    def refuse_for_now(self, code: int, which: int) -> None:
        """Refuse some partitions of the oldest request with a transient error."""
        request, on_done = self.client.wire.popleft()
        on_done(self._apply(request, {p: code for p in range(PARTITIONS) if which & 1 << p}), None)

    @precondition(lambda self: self.client.wire)
    @rule(partition=st.integers(0, PARTITIONS - 1), code=st.sampled_from([RECORD_LIST_TOO_LARGE, TOO_LARGE]))
    def refuse_for_good(self, partition: int, code: int) -> None:
        """Refuse one partition's batch permanently, or require a split; never a batch that was accepted before."""
        request, on_done = self.client.wire.popleft()
        errors = {}
        for p in request.topic_data[0].partition_data:
            values = [bytes(record.value or b"") for record in decode_records(p.records or b"")]
            if p.index == partition and values[0] not in self.logs[partition].values:
                errors[partition] = code
                if code == RECORD_LIST_TOO_LARGE or len(values) == 1:
                    self.refused.update(int(value[:6]) for value in values)
        on_done(self._apply(request, errors), None)

    @precondition(lambda self: self.client.wire)
    @rule(partition=st.integers(0, PARTITIONS - 1), has_log_start=st.booleans())
    def lose_producer_state(self, partition: int, has_log_start: bool) -> None:
        """The broker has lost the producer state, and reports it (KIP-360); not while it may have batches in flight."""
        if len(self.client.wire) > 1:
            return
        request, on_done = self.client.wire.popleft()
        parts = {p.index: decode_records(p.records or b"") for p in request.topic_data[0].partition_data}
        if partition in parts and bytes(parts[partition][0].value or b"") not in self.logs[partition].values:
            self.logs[partition].producers.clear()
            response = self._apply(request, {partition: UNKNOWN_PRODUCER})
            for p in response.responses[0].partition_responses:
                p.log_start_offset = 0 if has_log_start else -1
            on_done(response, None)
        else:
            on_done(self._apply(request, {}), None)

    @precondition(lambda self: self.client.wire)
    @rule(written=st.integers(0, 5))
    def cut(self, written: int) -> None:
        """Break the connection; the broker has executed the first few requests, but the responses are lost."""
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
                    code, base = self.logs[p.index].append(bytes(p.records or b""))
                partitions.append(PartitionProduceResponse(index=p.index, error_code=code, base_offset=base))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)

    @invariant()
    def log_is_in_order_without_repeats(self) -> None:
        """Gaps are possible (failed records), disorder and duplicates are not."""
        if not hasattr(self, "logs"):
            return
        for log in self.logs:
            numbers = [int(value[:6]) for value in log.values]
            assert numbers == sorted(set(numbers))
            assert not self.refused & set(numbers)

    @invariant()
    def every_record_is_reported_once_and_correctly(self) -> None:
        if not hasattr(self, "logs"):
            return
        assert not self.fatal
        assert all(times == 1 for times in self.callback_counts.values())
        for number, offset in self.acknowledged.items():
            assert number not in self.errors
            log = self.logs[self.sent[number][0].topic_partition.partition]
            assert offset < 0 or int(log.values[offset][:6]) == number

    @invariant()
    def memory_adds_up(self) -> None:
        """The allocated memory is that of unsettled batches, and of those still in flight."""
        if not hasattr(self, "logs"):
            return
        held = list(self.accumulator.batches.unreleased)
        assert sum(batch.reserved for batch in held) == self.accumulator.pool.in_use
        assert set(self.accumulator.batches.all()) <= set(held)
        assert all(batch.done and batch.on_wire for batch in set(held) - set(self.accumulator.batches.all()))

    @invariant()
    def requests_are_valid(self) -> None:
        """A request has one batch per partition, within the size limit."""
        if not hasattr(self, "logs"):
            return
        for request, _ in self.client.wire:
            parts = request.topic_data[0].partition_data
            assert len({p.index for p in parts}) == len(parts)
            if self.accumulator.settings.compression_type == "none":  # otherwise sizes are estimates
                assert len(parts) == 1 or sum(len(p.records or b"") for p in parts) <= REQUEST

    @invariant()
    def queues_and_numbers_are_in_order(self) -> None:
        """The sequence numbers in use have no gap."""
        if not hasattr(self, "logs"):
            return
        for queue in {id(queue): queue for queue in self.accumulator.batches.unreleased.values()}.values():
            numbers = [batch.number for batch in queue.batches]
            assert numbers == sorted(numbers)
            assert queue.on_wire >= 0
            sequences = queue.sequences
            for batch, following in zip(sequences.in_flight, sequences.in_flight[1:], strict=False):
                assert batch.number < following.number
                if not (sequences.unresolved or sequences.bump_wanted):
                    assert following.base_sequence == add_sequence(batch.base_sequence, batch.count)
            if sequences.in_flight and not sequences.bump_wanted:
                last = sequences.in_flight[-1]
                assert sequences.unresolved or sequences.next == add_sequence(last.base_sequence, last.count)

    def teardown(self) -> None:
        """Without further faults, everything is settled within a few rounds, and all memory is released."""
        if not hasattr(self, "logs"):
            return
        for _ in range(200):
            self._step()
            while self.client.wire:
                self.answer()
            self.now += 1.0
            if not self.accumulator.batches.unsettled:
                break
        self._step()
        assert not self.accumulator.batches.unsettled
        assert self.accumulator.pool.in_use == 0
        assert not self.accumulator.batches.unreleased
        written = {int(value[:6]) for log in self.logs for value in log.values}
        assert set(self.callback_counts) == set(self.sent)
        assert set(self.acknowledged) <= written
        assert self.sender.counters["record_send_total"] == len(self.acknowledged)
        assert self.sender.counters["record_error_total"] == len(self.errors)
        assert self.sender.counters["requests_in_flight"] == 0
        self.held.clear()
        assert len(self.accumulator.queues) == 0


SenderMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestSenderModel = SenderMachine.TestCase


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sender_model_for_long() -> None:
    """More examples, and longer ones."""
    longer = settings(max_examples=3_000, stateful_step_count=60, deadline=None)
    run_state_machine_as_test(SenderMachine, settings=longer)
