"""The transaction coordinator's operations on a scripted log and a still clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.unit.coordinator.rig import ScriptedLog, StillWorld
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.transaction import ending, initialization, partitions
from triokafka.coordinator.transaction.completion import complete
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.coordinator_type import transaction_coordinator_type
from triokafka.coordinator.transaction.marker_queue import NO_LEADER, Completion, MarkerQueue
from triokafka.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionChange, decode, encode
from triokafka.coordinator.transaction.state import TransactionState
from triokafka.coordinator.transaction.timed_out_transactions import abort_with_new_id
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.errors import (
    ConcurrentTransactionsError,
    ConfigurationError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    ProducerFencedError,
    ProtocolError,
    TransactionCoordinatorFencedError,
)
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STATE = TransactionState


class Rig:
    """One shard; ``completions`` are the decided transactions that were passed to the marker writer."""

    def __init__(self, *, transaction_version: int = 2, **config: int) -> None:
        self.world = StillWorld()
        self.log = ScriptedLog()
        self.completions: list[Completion] = []
        self.forgotten = 0
        self.exhausted: list[str] = []
        self.version = transaction_version
        kind = transaction_coordinator_type(
            TransactionCoordinatorConfig(**config), self, lambda: self.version, self.abort_with_new_id
        )
        self.runtime: CoordinatorRuntime[TransactionShard, TransactionChange] = CoordinatorRuntime(
            self.world, self.log, kind, partitions=1, wake=lambda: None
        )
        self.epoch = 6
        self.next_id = 100
        self.load()

    def add(self, completion: Completion) -> None:
        """Add a completion, as the marker writer does."""
        self.completions.append(completion)

    def forget(self, partition: int) -> None:
        """Drop a partition, as the marker writer does."""
        self.forgotten += 1

    def abort_with_new_id(self, partition: int, name: str) -> None:
        """Abort with a new producer id, as the coordinator's task does at the next opportunity."""
        self.exhausted.append(name)

    def load(self) -> None:
        """Lead the partition in a new epoch, with the records in the log."""
        self.runtime.unload(0)
        self.epoch += 1
        self.runtime.load(0, self.epoch)
        self.runtime.load_all()

    def write(self, operation: Any) -> None:
        self.runtime.write(0, lambda shard, effects: operation(shard, effects=effects))

    def pass_time(self, seconds: float) -> None:
        """Advance both clocks; every deadline fires at its own time."""
        end = self.world.clock + seconds
        while (due := self.runtime.next_deadline()) <= end:
            self.world.clock = max(self.world.clock, due)
            self.runtime.fire_due()
            while self.exhausted:
                name, self.next_id = self.exhausted.pop(), self.next_id + 1
                self.write(partial(abort_with_new_id, transactional_id=name, new_producer_id=self.next_id - 1))
        self.world.clock = end

    def __getitem__(self, name: str) -> TransactionMetadata:
        return self.runtime.read(0, lambda shard: shard.transactions[name])

    def init(
        self, name: str = "tx", *, timeout_ms: int = 60_000, expected: tuple[int, int] | None = None
    ) -> ProducerIdAndEpoch:
        """Send InitProducerId; return the response or raise the error."""
        for new_id in (None, self.next_id):
            reply: Reply[ProducerIdAndEpoch] = Reply()
            try:
                self.write(
                    partial(
                        initialization.initialize,
                        transactional_id=name,
                        timeout_ms=timeout_ms,
                        expected=None if expected is None else ProducerIdAndEpoch(*expected),
                        new_producer_id=new_id,
                        reply=reply,
                    )
                )
            except ProducerIdNeeded:
                self.next_id += 1
            else:
                return reply.value
        raise AssertionError

    def add_partitions(
        self, producer: ProducerIdAndEpoch, *added: TopicPartition, name: str = "tx", may_wait: bool = False
    ) -> Reply[None]:
        """Send AddPartitionsToTxn."""
        reply: Reply[None] = Reply()
        self.write(
            partial(
                partitions.add,
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                partitions=added or (T0,),
                version=2,
                reply=reply,
                may_wait=may_wait,
            )
        )
        return reply

    def end(
        self, producer: ProducerIdAndEpoch, *, commits: bool = True, name: str = "tx", version: int = 2
    ) -> ProducerIdAndEpoch:
        """Send EndTxn; return the response or raise the error."""
        for new_id in (None, self.next_id):
            reply: Reply[ProducerIdAndEpoch] = Reply()
            try:
                self.write(
                    partial(
                        ending.end,
                        transactional_id=name,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.epoch,
                        commits=commits,
                        version=version,
                        new_producer_id=new_id,
                        reply=reply,
                    )
                )
            except ProducerIdNeeded:
                self.next_id += 1
            else:
                return reply.value
        raise AssertionError

    def complete(self) -> None:
        """Complete the first decided transaction, as when all of its markers are written."""
        done = self.completions.pop(0)
        self.write(
            partial(
                complete,
                transactional_id=done.transactional_id,
                producer_id=done.producer_id,
                producer_epoch=done.producer_epoch,
            )
        )

    def use_up_epochs(self, epoch: int = LAST_CLIENT_EPOCH, name: str = "tx") -> ProducerIdAndEpoch:
        """Set the epoch of an idle id."""
        self.write(lambda shard, effects: shard.write(name, self[name]._replace(producer_epoch=epoch), effects))
        return ProducerIdAndEpoch(self[name].producer_id, epoch)


def test_decision_reaches_the_marker_writer_once_with_the_bumped_epoch_and_the_leader_epoch() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer, T0, T1)
    assert rig.end(producer) == (100, 1)
    assert rig.completions == [Completion(0, 7, "tx", 100, 1, True, 2, (T0, T1))]
    assert rig["tx"].state is STATE.PREPARE_COMMIT
    rig.complete()
    assert (rig["tx"].state, rig["tx"].partitions, rig["tx"].producer_epoch) == (STATE.COMPLETE_COMMIT, (), 1)


def test_decision_reaches_the_marker_writer_only_once_committed() -> None:
    """Otherwise markers could end a transaction that the next coordinator decides differently."""
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    rig.log.commits_at_once = False
    with pytest.raises(RuntimeError):
        rig.end(producer)  # no answer yet
    assert rig.completions == []
    rig.log.high_watermarks[0] += 1
    rig.runtime.high_watermark_changed(0, rig.log.high_watermarks[0])
    assert len(rig.completions) == 1


def test_decision_lost_with_its_coordinator_has_not_reached_the_marker_writer() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    rig.log.commits_at_once = False
    with pytest.raises(RuntimeError):
        rig.end(producer)
    rig.log.lose_uncommitted(0)
    rig.log.commits_at_once = True
    rig.load()
    assert rig.completions == [] and rig["tx"].state is STATE.ONGOING
    rig.end(producer, commits=False)
    assert [one.commits for one in rig.completions] == [False]


def test_loaded_decision_reaches_the_marker_writer_again_under_the_new_epoch() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    rig.end(producer, commits=False)
    rig.completions.clear()
    rig.load()
    assert [(one.commits, one.coordinator_epoch) for one in rig.completions] == [(False, 8)]
    rig.complete()
    assert rig["tx"].state is STATE.COMPLETE_ABORT


def test_log_of_large_transactions_is_loaded_in_steps() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer, *(TopicPartition("t", number) for number in range(5_000)))
    for number in range(30):
        rig.add_partitions(producer, TopicPartition("u", number))
    rig.runtime.unload(0)
    rig.runtime.load(0, rig.epoch + 1)
    steps = 0
    while rig.runtime.is_loading:
        rig.runtime.load_step()
        steps += 1
    assert steps >= 3, "150,000 partitions are no single step"
    assert len(rig["tx"].partitions) == 5_030


def test_open_transaction_is_aborted_after_its_timeout() -> None:
    rig = Rig()
    producer = rig.init(timeout_ms=25_000)
    other = rig.init("other", timeout_ms=60_000)
    rig.add_partitions(producer)
    rig.add_partitions(other, T1, name="other")
    rig.pass_time(25.0)
    assert rig["tx"].state is STATE.ONGOING
    rig.pass_time(10.0)
    assert rig["tx"].state is STATE.PREPARE_ABORT
    assert rig["other"].state is STATE.ONGOING
    with pytest.raises(InvalidTxnStateError):
        rig.end(producer)
    rig.complete()
    with pytest.raises(ProducerFencedError):
        _ = rig.add_partitions(producer).value


def test_hundreds_of_timeouts_are_found_in_one_scan() -> None:
    """Many programs may crash at the same time."""
    rig = Rig()
    for number in range(350):
        rig.add_partitions(rig.init(f"tx-{number}", timeout_ms=1_000), name=f"tx-{number}")
    rig.pass_time(11.0)
    assert len(rig.completions) == 350


def test_timeout_is_found_after_a_load() -> None:
    rig = Rig()
    rig.add_partitions(rig.init(timeout_ms=1_000))
    rig.load()
    rig.pass_time(12.0)
    assert rig["tx"].state is STATE.PREPARE_ABORT


def test_timed_out_transaction_ends_although_an_append_fails_first() -> None:
    rig = Rig()
    rig.add_partitions(rig.init(timeout_ms=1_000))
    rig.log.fails_with, rig.log.failures_left = NotEnoughReplicasError("too few"), 1
    rig.pass_time(11.0)
    assert rig["tx"].state is STATE.ONGOING
    rig.pass_time(10.0)
    assert rig["tx"].state is STATE.PREPARE_ABORT


def test_completion_is_stored_although_an_append_fails_first() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    rig.end(producer)
    rig.log.fails_with, rig.log.failures_left = NotEnoughReplicasError("too few"), 2
    rig.complete()
    assert rig["tx"].state is STATE.PREPARE_COMMIT
    rig.pass_time(1.0)
    assert rig["tx"].state is STATE.COMPLETE_COMMIT


def test_idle_ids_expire_and_others_do_not() -> None:
    rig = Rig(transactional_id_expiration_ms=3_600_000, remove_expired_transactions_interval_ms=60_000)
    rig.init("idle")
    open_one = rig.init("open", timeout_ms=900_000)
    rig.add_partitions(open_one, name="open")
    rig.pass_time(3_500.0)
    rig.init("fresh")
    rig.pass_time(200.0)
    shard = rig.runtime.read(0, lambda shard: shard)
    assert "idle" not in shard.transactions and "fresh" in shard.transactions
    assert "open" in shard.transactions
    rig.load()
    assert "idle" not in rig.runtime.read(0, lambda shard: shard).transactions
    assert rig.init("idle").producer_id == 103


@pytest.mark.parametrize("level", [1, 2])
def test_zombie_that_goes_on_does_not_abort_the_transaction_of_its_successor(level: int) -> None:
    """The same holds for a late duplicate of the request with which the producer continued."""
    rig = Rig(transaction_version=level)
    zombie = rig.init()
    producer = rig.init(expected=rig.init())
    rig.add_partitions(producer)
    for epoch in (zombie.epoch, producer.epoch - 1):
        with pytest.raises(ProducerFencedError):
            rig.init(expected=zombie._replace(epoch=epoch))
    assert rig["tx"].state is STATE.ONGOING
    assert rig.end(producer).producer_id == producer.producer_id


def test_exhausted_epochs_give_a_new_producer_id_at_initialization() -> None:
    rig = Rig()
    rig.init()
    rig.use_up_epochs()
    assert rig.init() == (101, 0)
    assert rig["tx"].previous_producer_id == 100


def test_end_of_the_last_epoch_gives_a_new_producer_id_and_its_retry_too() -> None:
    rig = Rig()
    rig.init()
    last = rig.use_up_epochs()
    rig.add_partitions(last)
    assert rig.end(last) == (101, 0)
    assert (rig["tx"].producer_id, rig["tx"].producer_epoch) == (100, MAX_EPOCH)
    assert [(one.producer_id, one.producer_epoch) for one in rig.completions] == [(100, MAX_EPOCH)]
    with pytest.raises(ConcurrentTransactionsError):
        rig.end(last)
    rig.complete()
    assert rig.end(last) == (101, 0)
    with pytest.raises(InvalidTxnStateError):
        rig.end(last, commits=False)


def test_producer_that_got_a_new_id_waits_for_the_markers_of_its_last_transaction() -> None:
    """It has the new id with the response to EndTxn, before the markers are written and the id is in use: it is a known
    producer.
    """
    rig = Rig()
    rig.init()
    last = rig.use_up_epochs()
    rig.add_partitions(last)
    following = rig.end(last)
    waiting = rig.add_partitions(following, may_wait=True)
    with pytest.raises(ConcurrentTransactionsError):
        rig.add_partitions(following)
    for commits in (True, False):
        with pytest.raises(ConcurrentTransactionsError):
            rig.end(following, commits=commits)
    with pytest.raises(ConcurrentTransactionsError):
        rig.init(expected=following)
    with pytest.raises(InvalidProducerIdMappingError):
        _ = rig.add_partitions(following._replace(producer_id=7)).value
    rig.complete()
    assert waiting.value is None
    assert rig.end(following) == (following.producer_id, 1)


@pytest.mark.parametrize("level", [1, 2])
def test_fence_of_the_last_epoch_does_not_overflow(level: int) -> None:
    rig = Rig(transaction_version=level)
    rig.init()
    last = rig.use_up_epochs()
    rig.add_partitions(last)
    with pytest.raises(ConcurrentTransactionsError):
        rig.init()
    assert rig["tx"].producer_epoch == MAX_EPOCH
    rig.complete()
    assert rig.init().producer_id > 100


def test_timeout_of_the_last_epoch_gives_a_new_producer_id() -> None:
    """Under version 2 the end of a transaction reserves an epoch for fencing, also if the coordinator ended it."""
    rig = Rig()
    rig.init()
    last = rig.use_up_epochs()
    rig.add_partitions(last)
    rig.pass_time(80.0)
    assert rig["tx"].state is STATE.PREPARE_ABORT
    rig.complete()
    assert (rig["tx"].producer_id, rig["tx"].producer_epoch) == (101, 0)
    assert rig.end(last, commits=False) == (101, 0)


def test_addition_waits_for_the_end_of_the_last_transaction() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    following = rig.end(producer)
    with pytest.raises(ConcurrentTransactionsError):
        rig.add_partitions(following)
    waiting = [rig.add_partitions(following, one, may_wait=True) for one in (T0, T1)]
    assert not any(reply.is_set for reply in waiting)
    rig.complete()
    assert all(reply.is_set for reply in waiting)
    assert rig["tx"].partitions == (T0, T1)
    assert rig["tx"].state is STATE.ONGOING


def test_addition_waits_only_for_a_short_time() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    waiting = rig.add_partitions(rig.end(producer), may_wait=True)
    rig.pass_time(0.05)
    assert not waiting.is_set
    rig.pass_time(0.06)
    with pytest.raises(ConcurrentTransactionsError):
        _ = waiting.value


def test_waiting_addition_fails_when_the_coordinator_moves() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    waiting = rig.add_partitions(rig.end(producer), may_wait=True)
    rig.load()
    with pytest.raises(NotCoordinatorError):
        _ = waiting.value


@pytest.mark.parametrize("state", [STATE.EMPTY, STATE.COMPLETE_COMMIT, STATE.COMPLETE_ABORT])
@pytest.mark.parametrize("retry", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_end_under_version_2_follows_the_table(state: TransactionState, retry: bool, commits: bool) -> None:
    rig = Rig()
    producer = rig.init()
    if state is STATE.EMPTY:
        producer = rig.init()
    else:
        rig.add_partitions(producer)
        rig.end(producer, commits=state is STATE.COMPLETE_COMMIT)
        rig.complete()
    current = ProducerIdAndEpoch(rig["tx"].producer_id, rig["tx"].producer_epoch)
    sent = current._replace(epoch=current.epoch - 1) if retry else current
    matches = commits is (state is STATE.COMPLETE_COMMIT)
    if retry and state is STATE.EMPTY:
        with pytest.raises(ProducerFencedError):
            rig.end(sent, commits=commits)
    elif retry and matches:
        assert rig.end(sent, commits=commits) == current
        assert rig.completions == []
    elif not retry and not commits:
        assert rig.end(sent, commits=False) == current._replace(epoch=current.epoch + 1)
        assert [one.partitions for one in rig.completions] == [()]
    else:
        with pytest.raises(InvalidTxnStateError):
            rig.end(sent, commits=commits)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_end_of_the_next_transaction_waits_for_the_markers_of_the_last(before: bool, commits: bool) -> None:
    """The producer has the bumped epoch with the first response, before the markers are written: it is not a zombie."""
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    following = rig.end(producer, commits=before)
    with pytest.raises(ConcurrentTransactionsError):
        rig.end(following, commits=commits)
    with pytest.raises(ConcurrentTransactionsError if commits is before else InvalidTxnStateError):
        rig.end(producer, commits=commits)
    with pytest.raises(ProducerFencedError):
        rig.end(producer._replace(epoch=producer.epoch - 1), commits=commits)
    rig.complete()
    rig.add_partitions(following)
    assert rig.end(following, commits=commits).epoch == following.epoch + 1


@pytest.mark.parametrize("commits", [False, True])
def test_version_1_repeats_the_outcome_and_refuses_the_other(commits: bool) -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    assert rig.end(producer, commits=commits, version=0) == (-1, -1)
    with pytest.raises(ConcurrentTransactionsError):
        rig.end(producer, commits=commits, version=0)
    with pytest.raises(InvalidTxnStateError):
        rig.end(producer, commits=not commits, version=0)
    rig.complete()
    assert rig["tx"].producer_epoch == producer.epoch
    assert rig.end(producer, commits=commits, version=0) == (-1, -1)
    with pytest.raises(InvalidTxnStateError):
        rig.end(producer, commits=not commits, version=0)


def test_unknown_ids_and_producers_are_refused() -> None:
    rig = Rig()
    with pytest.raises(InvalidProducerIdMappingError):
        rig.end(ProducerIdAndEpoch(1, 0))
    producer = rig.init()
    with pytest.raises(InvalidProducerIdMappingError):
        rig.end(ProducerIdAndEpoch(1, 0))
    with pytest.raises(InvalidProducerIdMappingError):
        _ = rig.add_partitions(ProducerIdAndEpoch(1, 0)).value
    with pytest.raises(ProducerFencedError):
        _ = rig.add_partitions(producer._replace(epoch=5)).value


@contextmanager
def unanswered() -> Iterator[None]:
    """The block needs a response that has not arrived yet."""
    with pytest.raises(RuntimeError) as caught:
        yield
    assert not isinstance(caught.value, KafkaError)


def cut_off(rig: Rig) -> Rig:
    """Another coordinator takes over the committed records; ``rig`` does not notice, and no replica follows it."""
    successor = Rig()
    successor.log.records = {0: list(rig.log.records[0])}
    successor.log.high_watermarks = dict(rig.log.high_watermarks)
    successor.epoch, successor.next_id = rig.epoch, rig.next_id
    successor.load()
    rig.log.commits_at_once = False
    return successor


@pytest.mark.parametrize("commits", [False, True])
def test_coordinator_that_is_cut_off_does_not_confirm_a_transaction_that_began_elsewhere(commits: bool) -> None:
    """An old client's transactions have one epoch. The second was aborted; the old coordinator has the first."""
    rig = Rig(transaction_version=1)
    producer = rig.init()
    rig.add_partitions(producer)
    rig.end(producer, commits=True, version=0)
    rig.complete()
    successor = cut_off(rig)
    successor.version = 1
    successor.add_partitions(producer)
    successor.end(producer, commits=False, version=0)
    with unanswered():  # neither "committed" nor that it cannot be aborted
        rig.end(producer, commits=commits, version=0)
    rig.log.fails_with = NotEnoughReplicasError("too few")
    with pytest.raises((ConcurrentTransactionsError, CoordinatorNotAvailableError)):
        rig.end(producer, commits=commits, version=0)


@pytest.mark.parametrize("of", ["end", "addition", "initialization", "replaced id"])
def test_coordinator_that_is_cut_off_gives_no_final_refusal(of: str) -> None:
    """The producer has a new epoch from the next coordinator."""
    rig = Rig()
    producer = rig.init()
    successor = cut_off(rig)
    if of == "replaced id":
        successor.use_up_epochs()
    current = successor.init()
    successor.add_partitions(current)
    with unanswered():
        if of == "end":
            rig.end(current)
        elif of == "initialization":
            rig.init(expected=(current.producer_id, current.epoch + 3))
        else:
            _ = rig.add_partitions(current).value
    with pytest.raises((ProducerFencedError, InvalidProducerIdMappingError)):
        successor.end(producer)


def test_decision_that_is_stored_once_more_is_not_handed_over_twice() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add_partitions(producer)
    rig.end(producer)
    queue = MarkerQueue(lambda partition: 1)
    with pytest.raises(ProducerFencedError):
        rig.end(producer._replace(epoch=7))
    for completion in rig.completions:
        queue.add(completion)
    assert len(queue) == 1 and rig["tx"].state is STATE.PREPARE_COMMIT


@pytest.mark.parametrize("level", [0, 1, 2])
def test_records_have_kafkas_versions_and_are_read_back(level: int) -> None:
    """Version 0 while ``transaction.version`` is 0: older brokers read only that."""
    value = TransactionMetadata(
        7,
        3,
        previous_producer_id=6,
        next_producer_id=9,
        timeout_ms=1_000,
        state=STATE.PREPARE_COMMIT,
        partitions=(T0, T1, TopicPartition("u", 0)),
        start_ms=5,
        last_update_ms=6,
        client_transaction_version=2,
    )
    key, stored = encode(TransactionChange("tx", value), level)
    assert stored is not None and stored[:2] == (b"\x00\x00" if level == 0 else b"\x00\x01")
    read = decode(key, stored)
    if level == 0:
        value = value._replace(previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)
    assert read == TransactionChange("tx", value)
    assert encode(TransactionChange("tx", None), level) == (key, None)
    assert decode(key, None) == TransactionChange("tx", None)
    assert decode(b"\x00\x07x", b"") is None


def test_empty_transaction_stores_no_partitions() -> None:
    _, stored = encode(TransactionChange("tx", TransactionMetadata(7, 0, timeout_ms=1)), 0)
    assert stored == (
        b"\x00\x00"
        + (7).to_bytes(8, "big")
        + b"\x00\x00"
        + (1).to_bytes(4, "big")
        + b"\x00"
        + b"\xff" * 4
        + b"\xff" * 16
    )


def test_damaged_records_are_refused() -> None:
    key, stored = encode(TransactionChange("tx", TransactionMetadata(7, 0)), 0)
    assert stored is not None
    with pytest.raises(ProtocolError):
        decode(None, stored)
    with pytest.raises(ProtocolError):
        decode(key, stored[:16] + b"\x63" + stored[17:])


def test_impossible_transitions_are_refused() -> None:
    with pytest.raises(IllegalStateError):
        TransactionMetadata(1, 0).completed(0)
    with pytest.raises(ConfigurationError):
        TransactionCoordinatorConfig(transaction_max_timeout_ms=0)


# --- the queue of markers


def completion(number: int = 1, *partitions: TopicPartition, partition: int = 0) -> Completion:
    return Completion(partition, 7, f"tx{number}", number, 1, True, 2, partitions or (T0, T1))


def test_markers_of_one_broker_share_a_request_and_one_is_in_flight() -> None:
    queue = MarkerQueue(lambda partition: partition.partition)
    first, second = completion(1), completion(2, T0)
    queue.add(first)
    requests = queue.due(0.0)
    assert [(one.node_id, one.markers) for one in requests] == [(0, ((first, (T0,)),)), (1, ((first, (T1,)),))]
    queue.add(second)
    third = completion(3, T0)
    queue.add(third)
    assert queue.due(0.0) == []
    assert queue.answered(requests[0], [{T0: 0}], 0.0) == []
    (gathered,) = queue.due(0.0)
    assert gathered.markers == ((second, (T0,)), (third, (T0,)))
    assert queue.take_done() == []
    queue.answered(requests[1], [{T1: 0}], 0.0)
    assert queue.take_done() == [first]
    assert len(queue) == 2


def test_failed_markers_are_repeated_at_the_current_leader() -> None:
    leaders = {T0: 1, T1: NO_LEADER}
    queue = MarkerQueue(leaders.get)
    queue.add(completion())
    (request,) = queue.due(0.0)
    assert queue.without_leader == 1
    queue.answered(request, [{T0: NotLeaderForPartitionError.code}], 0.0)
    leaders.update({T0: 2, T1: 2})
    assert queue.due(0.0) == []
    deadline = queue.next_deadline()
    assert deadline is not None and 0 < deadline <= 0.1
    (request,) = queue.due(deadline)
    assert (request.node_id, set(request.markers[0][1])) == (2, {T0, T1})
    assert queue.without_leader == 0
    queue.answered(request, None, 1.0)
    later = queue.next_deadline()
    assert later is not None and later - 1.0 > deadline
    (request,) = queue.due(later)
    queue.answered(request, [{T0: 0, T1: 0}], 2.0)
    assert queue.take_done() == [completion()]


def test_missing_partition_needs_no_marker() -> None:
    queue = MarkerQueue(lambda partition: None)
    queue.add(completion())
    assert queue.due(0.0) == []
    assert queue.take_done() == [completion()]


def test_partition_with_a_newer_epoch_needs_no_marker_and_a_newer_coordinator_writes_its_own() -> None:
    queue = MarkerQueue(lambda partition: 1)
    queue.add(completion(1, T0))
    queue.add(completion(2, T0, T1))
    (request,) = queue.due(0.0)
    notes = queue.answered(
        request,
        [{T0: InvalidProducerEpochError.code}, {T0: TransactionCoordinatorFencedError.code, T1: 0}],
        0.0,
    )
    assert len(notes) == 2
    assert queue.take_done() == [completion(1, T0)]
    assert len(queue) == 0


class Counted(TopicPartition):
    """Counts how often any is hashed."""

    hashes = 0

    def __hash__(self) -> int:
        Counted.hashes += 1
        return super().__hash__()


def test_work_of_a_marker_does_not_grow_with_the_partitions_of_its_transaction() -> None:
    counts = []
    for size in (50, 200):
        queue = MarkerQueue(lambda partition: 1)
        Counted.hashes = 0
        partitions = [Counted("t", number) for number in range(size)]
        queue.add(completion(1, *partitions))
        (request,) = queue.due(0.0)
        queue.answered(request, [dict.fromkeys(partitions, 0)], 0.0)
        assert len(queue.take_done()) == 1
        counts.append(Counted.hashes / size)
    assert counts[1] < counts[0] * 1.1


def test_question_about_one_partition_does_not_visit_all_of_a_large_transaction() -> None:
    rig = Rig()
    producer = rig.init()
    members = [Counted("t", number) for number in range(500)]
    rig.add_partitions(producer, *members)
    reply: Reply[Mapping[TopicPartition, int]] = Reply()
    asked: dict[str, Any] = {
        "transactional_id": "tx",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    rig.write(partial(partitions.verify, **asked, partitions=members[:1], reply=reply))
    Counted.hashes = 0
    for one in members:
        rig.add_partitions(producer, one)
        rig.write(partial(partitions.verify, **asked, partitions=[one, T1], reply=Reply()))
    assert Counted.hashes < 10 * len(members)
    assert reply.value == {members[0]: 0}


def test_forgotten_partition_of_the_coordinator_is_not_continued() -> None:
    queue = MarkerQueue(lambda partition: 1)
    queue.add(completion(1))
    queue.add(completion(2, partition=3))
    (request,) = queue.due(0.0)
    queue.forget(0)
    queue.answered(request, [{T0: 0, T1: 0}, {T0: 0, T1: 0}], 0.0)
    assert queue.take_done() == [completion(2, partition=3)]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_fence_bumps_the_epoch_once(level: int) -> None:
    rig = Rig(transaction_version=level)
    producer = rig.init(timeout_ms=1_000)
    rig.add_partitions(producer)
    rig.pass_time(12.0)
    assert [(one.producer_epoch, one.version) for one in rig.completions] == [(1, 2 if level == 2 else 0)]
    rig.complete()
    assert rig.init() == (100, 2)


def test_producer_continues_after_the_coordinator_aborted_its_transaction_under_version_2() -> None:
    """Its abort is answered with the next epoch, its commit refused, and InitProducerId may continue its identity."""
    for continues in ("abort", "init"):
        rig = Rig()
        producer = rig.init(timeout_ms=1_000)
        rig.add_partitions(producer)
        if continues == "abort":
            rig.pass_time(12.0)
            rig.complete()
            with pytest.raises(InvalidTxnStateError):
                rig.end(producer)
            following = rig.end(producer, commits=False)
        else:
            with pytest.raises(ConcurrentTransactionsError):
                rig.init(expected=producer)
            rig.complete()
            following = rig.init(expected=producer)
        assert following == (producer.producer_id, 1)
        rig.add_partitions(following)
        with pytest.raises(ConcurrentTransactionsError):
            rig.init()
        rig.complete()
        successor = rig.init()
        with pytest.raises(ProducerFencedError):
            rig.end(following, commits=False)
        assert successor.epoch == 3
