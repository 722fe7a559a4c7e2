"""`TransactionManager`: the requests that follow from each state, and the effects of each response."""

from __future__ import annotations

from typing import Any

import pytest

from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.client.producer.transactions.coordinator_call import GROUP, CallOutcome
from triokafka.client.producer.transactions.transaction_manager import TransactionManager
from triokafka.client.producer.transactions.transaction_state import TransactionState as State
from triokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
)
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from triokafka.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BILLING = ConsumerGroupMetadata("billing", 3, "member-1", "instance-1")


class Bench:
    """A manager, and a coordinator played by the test."""

    def __init__(self, level: int = 1) -> None:
        self.level = level
        self.sent = False
        self.manager = TransactionManager("tx", 60_000, lambda: self.level)

    def call(self, kind: type[Any], *, idle: bool = True) -> Any:
        """Return the next request, which must be of this kind."""
        call = self.manager.next_call(idle=idle, sent=self.sent)
        assert call is not None, f"{kind.__name__} expected in {self.manager.state}"
        assert type(call.request) is kind
        return call

    def nothing_due(self, *, idle: bool = True) -> bool:
        return self.manager.next_call(idle=idle, sent=self.sent) is None

    def initialize(self, producer_id: int = 7, epoch: int = 0) -> TransactionManager:
        self.manager.initialize()
        response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        assert self.call(InitProducerIdRequest).answered(response) is CallOutcome.DONE
        return self.manager

    def begin(self, *partitions: TopicPartition) -> TransactionManager:
        """Begin a transaction with these partitions."""
        if self.manager.state in (State.UNINITIALIZED, State.INITIALIZING):
            self.initialize()
        self.manager.begin()
        self.sent = bool(partitions)
        for partition in partitions:
            self.manager.add_partition(partition)
        if partitions and not self.manager.implicit:
            assert self.call(AddPartitionsToTxnRequest).answered(added(*partitions)) is CallOutcome.DONE
        return self.manager

    def end(self, code: int = 0, **identity: int) -> CallOutcome:
        outcome: CallOutcome = self.call(EndTxnRequest).answered(EndTxnResponse(error_code=code, **identity))
        return outcome


def added(*partitions: TopicPartition, code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                ],
            )
            for topic, number in partitions
        ]
    )


def stored(*partitions: TopicPartition, code: int = 0) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic, partitions=[TxnOffsetCommitResponsePartition(partition_index=number, error_code=code)]
            )
            for topic, number in partitions
        ]
    )


# ---------------------------------------------------------------- the usual course


def test_initialization_gives_the_producer_its_id() -> None:
    bench = Bench()
    bench.manager.initialize()
    request = bench.call(InitProducerIdRequest).request
    assert (request.transactional_id, request.transaction_timeout_ms, request.producer_id) == ("tx", 60_000, -1)
    bench.initialize(producer_id=9, epoch=4)
    assert bench.manager.identity == ProducerIdentity(9, 4)
    assert bench.manager.state is State.READY


def test_partition_is_registered_once_before_its_first_batch() -> None:
    bench = Bench()
    manager = bench.begin()
    assert manager.add_partition(ORDERS_0) is False
    assert manager.add_partition(ORDERS_0) is False
    call = bench.call(AddPartitionsToTxnRequest)
    assert call.max_version == 3, "later versions are between brokers"
    assert [(t.name, t.partitions) for t in call.request.v3_and_below_topics] == [("orders", [0])]
    call.answered(added(ORDERS_0))
    assert manager.add_partition(ORDERS_0) is True
    assert bench.nothing_due()


def test_partitions_added_meanwhile_are_registered_together_in_the_next_request() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    call = bench.call(AddPartitionsToTxnRequest)
    manager.add_partition(ORDERS_1)
    call.answered(added(ORDERS_0))
    assert manager.is_added(ORDERS_0) and not manager.is_added(ORDERS_1)
    assert [t.partitions for t in bench.call(AddPartitionsToTxnRequest).request.v3_and_below_topics] == [[1]]


def test_commit_waits_for_all_batches() -> None:
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    assert bench.nothing_due(idle=False)
    call = bench.call(EndTxnRequest)
    assert call.request.committed is True and call.max_version == 4
    call.answered(EndTxnResponse())
    assert manager.state is State.READY and manager.committed is True
    assert manager.identity == ProducerIdentity(7, 0), "the epoch stays below transaction version 2"


def test_empty_transaction_ends_without_a_request() -> None:
    for level in (1, 2):
        bench = Bench(level)
        manager = bench.begin()
        manager.begin_commit()
        assert bench.nothing_due()
        assert manager.state is State.READY and manager.committed is True
        manager.begin()
        manager.begin_abort()
        assert bench.nothing_due()
        assert manager.committed is False


def test_second_transaction_registers_its_partitions_again() -> None:
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    bench.end()
    manager.begin()
    assert manager.add_partition(ORDERS_0) is False


def test_produce_registers_partitions_under_transaction_version_2() -> None:
    bench = Bench(2)
    manager = bench.begin()
    assert manager.add_partition(ORDERS_0) is True
    assert bench.nothing_due()
    bench.sent = True
    manager.begin_commit()
    call = bench.call(EndTxnRequest)
    assert call.min_version == 5
    call.answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert manager.identity == ProducerIdentity(7, 1), "every EndTxn gives a new epoch (KIP-890)"
    assert manager.identity_changes == 2


def test_abort_before_the_first_batch_was_sent_needs_no_request_under_transaction_version_2() -> None:
    """While the coordinator still completes the previous transaction, it would take this EndTxn for a zombie's."""
    bench = Bench(2)
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    manager.begin_abort()
    assert bench.nothing_due()
    assert manager.state is State.READY and manager.identity == ProducerIdentity(7, 0)


def test_exhausted_epochs_give_another_producer_id() -> None:
    bench = Bench(2)
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    bench.end(producer_id=8, producer_epoch=0)
    assert manager.identity == ProducerIdentity(8, 0)


# ---------------------------------------------------------------- offsets


def test_offsets_register_their_group_first() -> None:
    bench = Bench()
    manager = bench.begin()
    pending = manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5, "m", 2)})
    group = bench.call(AddOffsetsToTxnRequest)
    assert (group.request.group_id, group.key) == ("billing", "tx")
    group.answered(AddOffsetsToTxnResponse())
    call = bench.call(TxnOffsetCommitRequest)
    assert (call.key, call.key_type, call.max_version) == ("billing", GROUP, 4)
    request = call.request
    assert (request.generation_id, request.member_id, request.group_instance_id) == (3, "member-1", "instance-1")
    (partition,) = request.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (5, "m", 2)
    call.answered(stored(ORDERS_0))
    assert pending.done
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(6)})
    bench.call(TxnOffsetCommitRequest)  # the group is registered


def test_offset_commit_registers_its_group_under_transaction_version_2() -> None:
    bench = Bench(2)
    manager = bench.begin()
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5)})
    call = bench.call(TxnOffsetCommitRequest)
    assert call.min_version == 5
    call.answered(stored(ORDERS_0))
    manager.begin_commit()
    bench.call(EndTxnRequest)


def test_offset_commit_waits_for_the_registration_of_a_partition_under_transaction_version_2() -> None:
    bench = Bench(2)
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    bench.sent = True
    assert not manager.registers_group
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5)})
    manager.begin_commit()
    assert manager.registers_group
    assert manager.next_call(idle=True, sent=True, registering=True) is None
    bench.call(TxnOffsetCommitRequest).answered(stored(ORDERS_0))
    assert not manager.registers_group
    bench.call(EndTxnRequest)


def test_commit_sends_pending_offsets_first() -> None:
    bench = Bench(2)
    manager = bench.begin()
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5)})
    manager.begin_commit()
    bench.call(TxnOffsetCommitRequest).answered(stored(ORDERS_0))
    bench.call(EndTxnRequest)


def test_only_the_missing_offsets_are_sent_again() -> None:
    bench = Bench(2)
    manager = bench.begin()
    pending = manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5), ORDERS_1: OffsetAndMetadata(6)})
    response = stored(ORDERS_0)
    response.topics += stored(ORDERS_1, code=14).topics
    assert bench.call(TxnOffsetCommitRequest).answered(response) is CallOutcome.RETRY
    again = bench.call(TxnOffsetCommitRequest)
    assert [p.partition_index for t in again.request.topics for p in t.partitions] == [1]
    again.answered(stored(ORDERS_1))
    assert pending.done


@pytest.mark.parametrize("code", [22, 25, 27, 113])
def test_offsets_of_a_former_member_fail_the_transaction(code: int) -> None:
    bench = Bench(2)
    manager = bench.begin()
    pending = manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5)})
    bench.call(TxnOffsetCommitRequest).answered(stored(ORDERS_0, code=code))
    assert not pending.done
    assert manager.state is State.ABORTABLE_ERROR and isinstance(manager.error, CommitFailedError)


@pytest.mark.parametrize("code", [15, 16, 7])
def test_offsets_find_a_group_coordinator_that_moved(code: int) -> None:
    bench = Bench(2)
    bench.begin().add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(5)})
    call = bench.call(TxnOffsetCommitRequest)
    assert call.answered(stored(ORDERS_0, code=code)) is CallOutcome.FIND_AGAIN


# ---------------------------------------------------------------- answers with errors


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (14, CallOutcome.RETRY),
        (15, CallOutcome.FIND_AGAIN),
        (16, CallOutcome.FIND_AGAIN),
        (51, CallOutcome.RETRY_SOON),
    ],
)
def test_retriable_answers_repeat_the_request(code: int, outcome: CallOutcome) -> None:
    bench = Bench()
    bench.manager.initialize()
    assert bench.call(InitProducerIdRequest).answered(InitProducerIdResponse(error_code=code)) is outcome
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    assert bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0, code=code)) is outcome
    bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0))
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(1)})
    assert bench.call(AddOffsetsToTxnRequest).answered(AddOffsetsToTxnResponse(error_code=code)) is outcome
    bench.call(AddOffsetsToTxnRequest).answered(AddOffsetsToTxnResponse())
    bench.call(TxnOffsetCommitRequest).answered(stored(ORDERS_0))
    manager.begin_commit()
    assert bench.end(code) is outcome
    assert bench.end() is CallOutcome.DONE
    assert manager.committed is True


@pytest.mark.parametrize("code", [47, 90])
def test_fencing_fails_the_producer_whichever_request_reports_it(code: int) -> None:
    def at_init(bench: Bench) -> None:
        bench.manager.initialize()
        bench.call(InitProducerIdRequest).answered(InitProducerIdResponse(error_code=code))

    def at_partitions(bench: Bench) -> None:
        bench.begin().add_partition(ORDERS_0)
        bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0, code=code))

    def at_group(bench: Bench) -> None:
        bench.begin().add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(1)})
        bench.call(AddOffsetsToTxnRequest).answered(AddOffsetsToTxnResponse(error_code=code))

    def at_offsets(bench: Bench) -> None:
        at_group_ok = bench.begin()
        at_group_ok.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(1)})
        bench.call(AddOffsetsToTxnRequest).answered(AddOffsetsToTxnResponse())
        bench.call(TxnOffsetCommitRequest).answered(stored(ORDERS_0, code=code))

    def at_commit(bench: Bench) -> None:
        bench.begin(ORDERS_0).begin_commit()
        bench.end(code)

    def at_abort(bench: Bench) -> None:
        bench.begin(ORDERS_0).begin_abort()
        bench.end(code)

    for step in (at_init, at_partitions, at_group, at_offsets, at_commit, at_abort):
        bench = Bench()
        step(bench)
        assert bench.manager.state is State.FATAL_ERROR, step.__name__
        assert isinstance(bench.manager.error, ProducerFencedError)
        with pytest.raises(ProducerFencedError):
            bench.manager.begin()
        with pytest.raises(ProducerFencedError):
            bench.manager.check_can_send()
        assert bench.nothing_due()


@pytest.mark.parametrize(("code", "kind"), [(53, TransactionalIdAuthorizationFailedError), (48, InvalidTxnStateError)])
def test_other_fatal_answers_fail_the_producer(code: int, kind: type[KafkaError]) -> None:
    bench = Bench()
    bench.begin(ORDERS_0).begin_commit()
    bench.end(code)
    assert isinstance(bench.manager.error, kind) and bench.manager.state is State.FATAL_ERROR


def test_transaction_that_the_coordinator_has_aborted_is_followed_by_the_next_under_version_2() -> None:
    """It took too long. The coordinator refuses the commit, and answers the abort with the next epoch."""
    bench = Bench(2)
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    assert bench.end(48) is CallOutcome.DONE
    assert manager.state is State.ABORTABLE_ERROR
    assert isinstance(manager.error, InvalidTxnStateError) and "transaction_timeout_ms=60000" in str(manager.error)
    manager.begin_abort()
    bench.end(producer_id=7, producer_epoch=1)
    assert (manager.state, manager.identity.epoch, manager.committed) == (State.READY, 1, False)
    bench.begin(ORDERS_0).begin_abort()
    bench.end(48)
    assert manager.state is State.FATAL_ERROR, "an abort cannot be followed by an abort"


def test_refused_topic_fails_the_transaction_alone() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    manager.add_partition(ORDERS_1)
    response = added(ORDERS_0, code=29)
    response.results_by_topic_v3_and_below += added(ORDERS_1, code=55).results_by_topic_v3_and_below
    bench.call(AddPartitionsToTxnRequest).answered(response)
    assert isinstance(manager.error, TopicAuthorizationFailedError) and "orders" in str(manager.error)
    with pytest.raises(TransactionAbortableError) as raised:
        manager.check_can_send()
    assert raised.value.__cause__ is manager.error
    manager.begin_abort()
    assert bench.nothing_due(), "the coordinator does not know the transaction"
    bench.begin(ORDERS_1)


def test_coordinator_may_refuse_only_the_commit() -> None:
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    bench.end(120)
    assert manager.state is State.ABORTABLE_ERROR
    manager.begin_abort()
    bench.end()
    assert manager.committed is False and manager.state is State.READY


def test_lost_producer_id_gets_a_new_epoch_without_end_txn() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0, code=49))
    assert manager.state is State.ABORTABLE_ERROR
    manager.begin_abort()
    request = bench.call(InitProducerIdRequest).request
    assert (request.producer_id, request.producer_epoch) == (7, 0)
    assert manager.committed is False


# ---------------------------------------------------------------- failed batches


def test_failed_batch_fails_the_transaction_and_bumps_the_epoch_after_the_abort() -> None:
    """KIP-360: the gap in the sequence numbers ends with the epoch."""
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.fail_transaction(KafkaTimeoutError("expired"), lost_sequence=True)
    with pytest.raises(TransactionAbortableError):
        manager.begin_commit()
    manager.begin_abort()
    bench.end()
    assert manager.state is State.INITIALIZING
    request = bench.call(InitProducerIdRequest).request
    assert (request.producer_id, request.producer_epoch) == (7, 0)
    bench.call(InitProducerIdRequest).answered(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    assert manager.identity == ProducerIdentity(7, 1) and manager.state is State.READY


def test_end_txn_bumps_the_epoch_itself_under_transaction_version_2() -> None:
    bench = Bench(2)
    manager = bench.begin(ORDERS_0)
    manager.fail_transaction(KafkaTimeoutError("expired"), lost_sequence=True)
    manager.begin_abort()
    bench.end(producer_id=7, producer_epoch=1)
    assert manager.state is State.READY


def test_batch_that_fails_during_the_abort_still_bumps_the_epoch() -> None:
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.begin_abort()
    manager.fail_transaction(KafkaTimeoutError("expired"), lost_sequence=True)
    bench.end()
    assert manager.state is State.INITIALIZING


def test_upgraded_cluster_bumps_the_epoch_before_the_mode_changes() -> None:
    bench = Bench(1)
    manager = bench.begin(ORDERS_0)
    bench.level = 2
    assert not manager.implicit, "a transaction ends as it began"
    manager.begin_commit()
    bench.end()
    assert manager.state is State.INITIALIZING and manager.committed is True
    bench.call(InitProducerIdRequest).answered(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    assert manager.implicit


# ---------------------------------------------------------------- requests without an answer


def test_abort_repeats_a_registration_whose_answer_was_lost() -> None:
    """Otherwise the coordinator might open the transaction after the abort, and it would never end."""
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    bench.call(AddPartitionsToTxnRequest)  # no response
    manager.begin_abort()
    bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0))
    call = bench.call(EndTxnRequest)
    assert call.request.committed is False


def test_abort_ends_without_end_txn_when_the_repeated_registration_is_refused() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    bench.call(AddPartitionsToTxnRequest)  # no response
    manager.begin_abort()
    bench.call(AddPartitionsToTxnRequest).answered(added(ORDERS_0, code=3))
    assert bench.nothing_due()
    assert manager.state is State.READY


def test_transaction_never_registered_at_the_coordinator_needs_no_end_txn() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_partition(ORDERS_0)
    manager.begin_abort()
    assert bench.nothing_due()


def test_abort_repeats_the_registration_of_a_group_whose_answer_was_lost() -> None:
    bench = Bench()
    manager = bench.begin()
    manager.add_offsets(BILLING, {ORDERS_0: OffsetAndMetadata(1)})
    bench.call(AddOffsetsToTxnRequest)  # no response
    manager.begin_abort()
    bench.call(AddOffsetsToTxnRequest).answered(AddOffsetsToTxnResponse())
    bench.call(EndTxnRequest)


def test_end_txn_is_repeated_with_the_same_epoch() -> None:
    bench = Bench(2)
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    first = bench.call(EndTxnRequest).request
    assert bench.call(EndTxnRequest).request == first


# ---------------------------------------------------------------- wrong use


def test_calls_in_the_wrong_state_change_nothing() -> None:
    bench = Bench()
    manager = bench.manager
    for call in (manager.begin, manager.begin_commit, manager.begin_abort, manager.check_can_send):
        with pytest.raises(IllegalStateError):
            call()
        assert manager.state is State.UNINITIALIZED
    bench.begin(ORDERS_0)
    with pytest.raises(IllegalStateError, match="a transaction is open"):
        manager.begin()
    manager.begin_commit()
    for call in (manager.begin, manager.begin_commit, manager.check_can_send):
        with pytest.raises(IllegalStateError, match="being committed"):
            call()


def test_commit_can_become_an_abort_only_before_end_txn() -> None:
    bench = Bench()
    manager = bench.begin(ORDERS_0)
    manager.begin_commit()
    manager.begin_abort()
    bench.end()
    bench.begin(ORDERS_0)
    manager.begin_commit()
    bench.call(EndTxnRequest)
    with pytest.raises(IllegalStateError, match="the commit was sent"):
        manager.begin_abort()


def test_failed_batch_outside_of_a_transaction_changes_nothing() -> None:
    bench = Bench()
    manager = bench.initialize()
    manager.fail_transaction(KafkaTimeoutError("late"))
    assert manager.state is State.READY
