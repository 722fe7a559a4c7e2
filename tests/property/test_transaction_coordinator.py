"""Random schedules of transactions under version 2: producers, a moving coordinator, markers, and the reads of
consumers.

The coordinator runs on a log that lags, fails and loses uncommitted records. Requests and markers are delayed, lost,
and repeated at any later time. The records visible to the readers of every partition follow from the coordinator's log
alone, and are computed from it independently: under version 2 every transaction has its own producer id and epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar

import pytest

from tests.property.coordinator_life import DEFECTS, watched
from tests.property.lives import Draw, Life, survive
from tests.unit.coordinator.rig import ScriptedLog, StillWorld
from triokafka.broker_stub.log.producer_state import Marker, ProducerStates
from triokafka.broker_stub.log.verification_guard import VerificationGuard
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.transaction import ending, initialization, partitions
from triokafka.coordinator.transaction.completion import complete
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.coordinator_type import transaction_coordinator_type
from triokafka.coordinator.transaction.marker_queue import Completion, MarkerQueue, MarkerRequest
from triokafka.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionChange, decode, encode
from triokafka.coordinator.transaction.state import TransactionState
from triokafka.coordinator.transaction.timed_out_transactions import abort_with_new_id
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
)
from triokafka.records.batch import CONTROL, TRANSACTIONAL, BatchInfo
from triokafka.structs import TopicPartition

PARTITION = 0
NAMES = ("a", "b")
TOPIC_PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
TIMEOUT_MS = 30_000
VERSION = 2
FATAL = (ProducerFencedError, InvalidTxnStateError)


def header(producer_id: int, epoch: int, offset: int, *, sequence: int = -1, control: bool = False) -> BatchInfo:
    """Return the header of a batch of one record."""
    attributes = TRANSACTIONAL | (CONTROL if control else 0)
    return BatchInfo(0, offset, 60, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)


@lru_cache(maxsize=1_000)
def told(record: CoordinatorRecord) -> tuple[str, TransactionMetadata]:
    """Return the content of a record of the coordinator's log, which has one encoding."""
    change = decode(record.key, record.value)
    assert change is not None and change.value is not None
    assert encode(change, VERSION) == record
    return change.transactional_id, change.value


@dataclass
class Entry:
    """A record in a partition. ``value`` is None for a marker."""

    producer_id: int
    epoch: int
    value: int | None
    commits: bool = False


@dataclass
class Log:
    """One partition: the real producer state over a list of entries."""

    entries: list[Entry] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)

    def append(self, write: Write, guard: VerificationGuard | None) -> None:
        """Append a client's batch, or find that it is a duplicate."""
        batch = header(write.producer_id, write.epoch, len(self.entries), sequence=write.sequence)
        if self.producers.duplicate_of(batch) is None:
            self.producers.check(batch)
            self.producers.check_verified(batch, guard)
            self.producers.replay(batch)
            self.entries.append(Entry(write.producer_id, write.epoch, write.value))

    def end(self, completion: Completion) -> None:
        """Append a marker."""
        batch = header(completion.producer_id, completion.producer_epoch, len(self.entries), control=True)
        marker = Marker(completion.commits, completion.coordinator_epoch)
        self.producers.check_marker(batch, marker, version=completion.version)
        self.producers._end_transaction(batch, marker)
        self.entries.append(Entry(completion.producer_id, completion.producer_epoch, None, completion.commits))

    def last_stable_offset(self) -> int:
        first = self.producers.first_unstable_offset
        self.producers.committed(len(self.entries))
        first = self.producers.first_unstable_offset
        return len(self.entries) if first is None else first

    def visible(self) -> list[Entry]:
        """Return the records that a read_committed consumer gets: those below the last stable offset whose marker
        commits.
        """
        seen: list[Entry] = []
        pending: dict[int, list[Entry]] = {}
        for entry in self.entries[: self.last_stable_offset()]:
            if entry.value is not None:
                pending.setdefault(entry.producer_id, []).append(entry)
            else:
                ended = pending.pop(entry.producer_id, [])
                seen += ended if entry.commits else []
        return seen

    def first_open(self) -> int | None:
        """Return the first record without a marker behind it, computed from the entries."""
        first: dict[int, int] = {}
        for offset, entry in enumerate(self.entries):
            if entry.value is None:
                first.pop(entry.producer_id, None)
            else:
                first.setdefault(entry.producer_id, offset)
        return min(first.values(), default=None)


@dataclass(frozen=True)
class Write:
    """A Produce request."""

    name: str
    producer_id: int
    epoch: int
    sequence: int
    partition: TopicPartition
    value: int


@dataclass(frozen=True)
class End:
    """An EndTxn request."""

    name: str
    producer_id: int
    epoch: int
    commits: bool


@dataclass(frozen=True)
class Init:
    """An InitProducerId request; with ``epoch``, of a producer that continues."""

    name: str
    producer_id: int = -1
    epoch: int = NO_EPOCH


Request = Write | End | Init


@dataclass
class Sent:
    """A request in flight: the coordinator's reply, and the guard of a write that waits for it."""

    request: Request
    reply: Reply[Any] | None = None
    guard: VerificationGuard | None = None


@dataclass
class Client:
    """A producer that follows the protocol, one request at a time."""

    name: str
    producer_id: int = -1
    epoch: int = NO_EPOCH
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    waits_for: Sent | None = None
    written: list[int] = field(default_factory=list)
    must_abort: bool = False
    is_dead: bool = False


class TransactionLife(Life):
    """A coordinator, three partitions, and producers of two transactional ids, some of them zombies."""

    STEPS: ClassVar = {
        "act": 40,
        "answers": 40,
        "markers_are_sent": 16,
        "markers_arrive": 16,
        "old_request_arrives_again": 6,
        "old_markers_arrive_again": 3,
        "new_client": 2,
        "coordinator_moves": 2,
        "log_lags_or_not": 3,
        "high_watermark_moves": 6,
        "appends_fail": 2,
        "time_passes": 3,
        "epochs_run_out": 1,
    }

    def __init__(self, draw: Draw) -> None:
        DEFECTS.found.clear()
        self.world = StillWorld()
        self.log = ScriptedLog()
        self.queue = MarkerQueue(lambda partition: 1)
        kind = transaction_coordinator_type(
            TransactionCoordinatorConfig(transactional_id_expiration_ms=10**12),
            self.queue,
            lambda: VERSION,
            lambda partition, name: self.exhausted.append(name),
        )
        self.runtime: CoordinatorRuntime[TransactionShard, TransactionChange] = CoordinatorRuntime(
            self.world, self.log, kind, partitions=1, wake=lambda: None
        )
        self.epoch = 0
        self.exhausted: list[str] = []
        """Ids that wait for a new producer id to end their transaction with."""
        self.logs = {partition: Log() for partition in TOPIC_PARTITIONS}
        self.next_id = 100
        self.next_value = 0
        self.clients = [Client(name) for name in NAMES]
        self.history: list[Request] = []
        self.strays: list[Sent] = []
        self.marker_requests: list[MarkerRequest] = []
        self.old_marker_requests: list[MarkerRequest] = []
        self.acknowledged: dict[tuple[int, int], list[int]] = {}
        """The values of each transaction whose commit was acknowledged."""
        self._load()

    # --- the coordinator ---

    def _load(self) -> None:
        self.epoch += 1
        self.runtime.load(PARTITION, self.epoch)
        self.runtime.load_all()

    def _write(self, operation: Any) -> None:
        self.runtime.write(PARTITION, lambda shard, effects: operation(shard, effects=effects))

    def _start(self, sent: Sent) -> None:
        """Deliver a request; its response arrives later. Raises an immediate refusal."""
        request = sent.request
        reply: Reply[Any] = Reply()
        sent.reply = reply
        if isinstance(request, Write):
            producers = self.logs[request.partition].producers
            sent.guard = producers.begin_verification(
                request.producer_id, request.epoch, request.sequence, bumps_epochs=True, now_ms=0
            )
            if sent.guard is None:
                reply.set(None)
                return
            operation = partial(
                partitions.add,
                transactional_id=request.name,
                producer_id=request.producer_id,
                producer_epoch=request.epoch,
                partitions=[request.partition],
                version=VERSION,
                reply=reply,
                may_wait=request.value % 2 == 0,
            )
            self._write(operation)
            return
        for new_id in (None, self.next_id):
            try:
                self._write(self._operation(request, new_id, reply))
            except ProducerIdNeeded:
                self.next_id += 1
            else:
                return

    @staticmethod
    def _operation(request: Init | End, new_id: int | None, reply: Reply[Any]) -> Any:
        if isinstance(request, Init):
            expected = None if request.epoch == NO_EPOCH else ProducerIdAndEpoch(request.producer_id, request.epoch)
            return partial(
                initialization.initialize,
                transactional_id=request.name,
                timeout_ms=TIMEOUT_MS,
                expected=expected,
                new_producer_id=new_id,
                reply=reply,
            )
        return partial(
            ending.end,
            transactional_id=request.name,
            producer_id=request.producer_id,
            producer_epoch=request.epoch,
            commits=request.commits,
            version=VERSION,
            new_producer_id=new_id,
            reply=reply,
        )

    def _finish_write(self, sent: Sent) -> None:
        request = sent.request
        assert isinstance(request, Write)
        self.logs[request.partition].append(request, sent.guard)

    # --- steps ---

    def act(self, draw: Draw) -> None:
        """A client sends its next request."""
        free = [client for client in self.clients if not client.is_dead and client.waits_for is None]
        if not free:
            return
        client = draw.of(free)
        request: Request
        if client.epoch == NO_EPOCH:
            request = Init(client.name)
        elif client.must_abort or (client.written and draw.one_in(8)):
            request = End(client.name, client.producer_id, client.epoch, commits=False)
        elif client.written and draw.one_in(2):
            request = End(client.name, client.producer_id, client.epoch, commits=True)
        else:
            partition = draw.of(TOPIC_PARTITIONS)
            self.next_value += 1
            sequence = client.sequences.get(partition, 0)
            request = Write(client.name, client.producer_id, client.epoch, sequence, partition, self.next_value)
        self._send(client, request)

    def _send(self, client: Client, request: Request) -> None:
        client.waits_for = sent = Sent(request)
        self.history.append(request)
        try:
            self._start(sent)
        except KafkaError as error:
            assert sent.reply is not None
            sent.reply.fail(error)

    def answers(self, draw: Draw) -> None:
        """Deliver the available responses to their clients, or lose them."""
        for client in self.clients:
            sent = client.waits_for
            if sent is None or sent.reply is None or not sent.reply.is_set:
                continue
            client.waits_for = None
            try:
                value = sent.reply.value
                if isinstance(sent.request, Write):
                    self._finish_write(sent)
                if draw.one_in(10):
                    raise NotEnoughReplicasError("the answer is lost")
            except FATAL:
                client.is_dead = not isinstance(sent.request, Write)
                client.must_abort = True
            except BrokerResponseError as error:
                self._failed(client, sent.request, error)
            else:
                self._succeeded(client, sent.request, value)
        for sent in self.strays[:]:
            if sent.reply is not None and sent.reply.is_set:
                self.strays.remove(sent)
                try:
                    _ = sent.reply.value
                    if isinstance(sent.request, Write):
                        self._finish_write(sent)
                except BrokerResponseError:
                    pass

    def _failed(self, client: Client, request: Request, error: BrokerResponseError) -> None:
        """Repeat a request after a transient error; abort after any other."""
        passing = getattr(error, "retriable", False) or isinstance(error, ConcurrentTransactionsError)
        if isinstance(request, Write) and (not passing or isinstance(error, OutOfOrderSequenceNumberError)):
            client.must_abort = True
        elif passing or isinstance(request, Init):
            self._send(client, request)
        else:
            client.is_dead = True

    def _succeeded(self, client: Client, request: Request, value: Any) -> None:
        if isinstance(request, Write):
            client.sequences[request.partition] = request.sequence + 1
            client.written.append(request.value)
            return
        if isinstance(request, End) and request.commits:
            self.acknowledged[request.producer_id, request.epoch] = client.written
        client.written = []
        client.must_abort = False
        client.sequences = {}
        client.producer_id, client.epoch = value

    def markers_are_sent(self, draw: Draw) -> None:
        self.marker_requests += self.queue.due(self.world.clock)
        self._complete()

    def _complete(self) -> None:
        for completion in self.queue.take_done():
            operation = partial(
                complete,
                transactional_id=completion.transactional_id,
                producer_id=completion.producer_id,
                producer_epoch=completion.producer_epoch,
            )
            try:
                self._write(operation)
            except KafkaError:
                pass

    def markers_arrive(self, draw: Draw) -> None:
        """A request for markers arrives; its response may be lost."""
        if not self.marker_requests:
            return
        request = self.marker_requests.pop(draw.below(len(self.marker_requests)))
        codes = self._write_markers(request)
        self.old_marker_requests.append(request)
        self.queue.answered(request, None if draw.one_in(4) else codes, self.world.clock)
        self._complete()

    def _write_markers(self, request: MarkerRequest) -> list[dict[TopicPartition, int]]:
        codes: list[dict[TopicPartition, int]] = []
        for completion, asked in request.markers:
            found = {}
            for number in asked:
                try:
                    self.logs[number].end(completion)
                    found[number] = 0
                except BrokerResponseError as error:
                    found[number] = error.code
            codes.append(found)
        return codes

    def old_request_arrives_again(self, draw: Draw) -> None:
        """Deliver an earlier request once more; no client waits for the response."""
        if self.history:
            sent = Sent(draw.of(self.history[::-1]))
            if isinstance(sent.request, Init) and sent.request.epoch == NO_EPOCH:
                return  # this is a new producer, which `new_client` creates
            try:
                self._start(sent)
            except KafkaError:
                return
            self.strays.append(sent)

    def old_markers_arrive_again(self, draw: Draw) -> None:
        if self.old_marker_requests:
            self._write_markers(draw.of(self.old_marker_requests[::-1]))

    def new_client(self, draw: Draw) -> None:
        """Another producer starts with a transactional id; the old one becomes a zombie."""
        if len(self.clients) < 6:
            self.clients.append(Client(draw.of(NAMES)))

    def coordinator_moves(self, draw: Draw) -> None:
        self.runtime.unload(PARTITION)
        if draw.one_in(2):
            self.log.lose_uncommitted(PARTITION)
        else:
            self.log.high_watermarks[PARTITION] = len(self.log.records.get(PARTITION, []))
        self._load()

    def log_lags_or_not(self, draw: Draw) -> None:
        self.log.commits_at_once = draw.one_in(2)

    def high_watermark_moves(self, draw: Draw) -> None:
        end, mark = len(self.log.records.get(PARTITION, [])), self.log.high_watermark(PARTITION)
        if end > mark:
            self.log.high_watermarks[PARTITION] = mark + 1 + draw.below(end - mark)
            self.runtime.high_watermark_changed(PARTITION, self.log.high_watermarks[PARTITION])

    def appends_fail(self, draw: Draw) -> None:
        self.log.fails_with = NotEnoughReplicasError("too few replicas")
        self.log.failures_left = 1 + draw.below(3)

    def time_passes(self, draw: Draw) -> None:
        self._pass(draw.of((0.05, 1.0, 12.0, 45.0)))

    def _pass(self, seconds: float) -> None:
        end = self.world.clock + seconds
        while (due := self.runtime.next_deadline()) <= end:
            self.world.clock = max(self.world.clock, due)
            self.runtime.fire_due()
            self._abort_exhausted()
        self.world.clock = end

    def _abort_exhausted(self) -> None:
        while self.exhausted:
            name, self.next_id = self.exhausted.pop(), self.next_id + 1
            try:
                self._write(partial(abort_with_new_id, transactional_id=name, new_producer_id=self.next_id))
            except KafkaError:
                pass

    def epochs_run_out(self, draw: Draw) -> None:
        """An unused id gets the last epochs of its producer id, as after 32,000 transactions."""
        name = draw.of(NAMES)
        if any(client.name == name and not client.is_dead for client in self.clients if client.epoch != NO_EPOCH):
            return

        def operation(shard: TransactionShard, *, effects: Any) -> None:
            current = shard.transactions.get(name)
            if current is not None and current.state is TransactionState.EMPTY and shard.is_settled(name):
                used_up = LAST_CLIENT_EPOCH - draw.below(3)
                shard.write(name, current._replace(producer_epoch=max(used_up, current.producer_epoch)), effects)

        self._write(operation)

    # --- the invariants ---

    def decided(self, end: int) -> dict[tuple[int, int], bool]:
        """Return the outcomes in the coordinator's log, by producer id and the epoch of the records."""
        found: dict[tuple[int, int], bool] = {}
        epochs: dict[str, tuple[int, int]] = {}
        newest: dict[str, TransactionMetadata] = {}
        for record in self.log.records.get(PARTITION, [])[:end]:
            name, value = told(record)
            if newest.get(name) == value:
                continue  # stored once more, before a final refusal
            newest[name] = value
            if value.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
                commits = value.state is TransactionState.PREPARE_COMMIT
                before = epochs[name]
                assert found.setdefault(before, commits) == commits, f"{before} is decided twice"
                assert (value.producer_id, value.producer_epoch) > before
            epochs[name] = value.producer_id, value.producer_epoch
        return found

    def check(self) -> None:
        assert not DEFECTS.found, DEFECTS.found[0].getMessage()
        decided = self.decided(self.log.high_watermark(PARTITION))
        for log in self.logs.values():
            stable, first = log.last_stable_offset(), log.first_open()
            assert stable == (len(log.entries) if first is None else first)
            for entry in log.visible():
                assert decided.get((entry.producer_id, entry.epoch)), f"{entry} is visible, but was not committed"
        self._check_replay()

    def _check_replay(self) -> None:
        """Check that the state equals the replayed log."""
        replayed = dict(told(record) for record in self.log.records.get(PARTITION, []))
        shard = self.runtime.read(PARTITION, lambda shard: shard)
        present = {name: value._replace(last_producer_epoch=NO_EPOCH) for name, value in shard.transactions.items()}
        assert present == replayed

    def finish(self) -> None:
        """Once everything has arrived and time has passed, every transaction is complete or absent, and none hangs."""
        self.log.fails_with, self.log.commits_at_once = None, True
        for _ in range(60):
            self._pass(1.0)
            self.high_watermark_moves(Draw(10**6))
            self.log.high_watermarks[PARTITION] = len(self.log.records.get(PARTITION, []))
            self.runtime.high_watermark_changed(PARTITION, self.log.high_watermarks[PARTITION])
            self.markers_are_sent(Draw(0))
            while self.marker_requests:
                self.markers_arrive(Draw(0))
            for client in self.clients:
                if client.waits_for is not None:
                    self.answers(Draw(0))
            self.check()
        shard = self.runtime.read(PARTITION, lambda shard: shard)
        assert not shard.ongoing and all(value.state in (0, 4, 5) for value in shard.transactions.values())
        decided = self.decided(len(self.log.records.get(PARTITION, [])))
        for log in self.logs.values():
            assert log.first_open() is None, "a transaction hangs"
            wanted = [e for e in log.entries if e.value is not None and decided.get((e.producer_id, e.epoch))]
            assert sorted(e.value or 0 for e in log.visible()) == sorted(e.value or 0 for e in wanted)
        seen = {entry.value for log in self.logs.values() for entry in log.visible()}
        for identity, values in self.acknowledged.items():
            assert decided.get(identity), f"the commit of {identity} was acknowledged, but not decided"
            assert set(values) <= seen, f"{identity} was committed, but lacks records"


@pytest.mark.timeout(300)
def test_transaction_invariants_hold_in_random_schedules() -> None:
    with watched():
        survive(TransactionLife, range(500))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_transaction_invariants_hold_in_many_random_schedules() -> None:
    with watched():
        survive(TransactionLife, range(500, 20_000))
