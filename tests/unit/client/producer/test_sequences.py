"""Sequence numbers of a partition: which batches may be sent, and the effects of responses."""

from __future__ import annotations

import pytest

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.sequences import PartitionSequences, ProducerIdentity, add_sequence
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.errors import NotEnoughReplicasError, OutOfOrderSequenceNumberError, UnknownProducerIdError
from triokafka.records import BatchBuilder
from triokafka.structs import TopicPartition

IDENTITY = ProducerIdentity(9, 3)


def batch(number: int, records: int = 2) -> ProducerBatch:
    builder = BatchBuilder(1000)
    made = ProducerBatch(TopicPartition("t", 0), (number,), builder, reserved=0, created_at=0.0, new_event=SettledEvent)
    for _ in range(records):
        made.append(0, None, b"v")
    return made


def sent(sequences: PartitionSequences, *batches: ProducerBatch) -> None:
    for one in batches:
        sequences.assign(one, IDENTITY)
        one.on_wire = True
        one.attempts += 1


def refused(one: ProducerBatch) -> None:
    one.on_wire = False


def test_sequence_numbers_count_records_and_do_not_change_in_retries() -> None:
    sequences = PartitionSequences()
    batches = [batch(1, 3), batch(2, 1), batch(3, 2)]
    sent(sequences, *batches)
    assert [b.base_sequence for b in batches] == [0, 3, 4]
    sent(sequences, batches[1])
    assert batches[1].base_sequence == 3
    assert (batches[1].producer_id, batches[1].producer_epoch) == IDENTITY


def test_sequence_numbers_wrap_to_zero_after_the_greatest() -> None:
    assert add_sequence(2**31 - 1, 1) == 0
    assert add_sequence(2**31 - 2, 5) == 3


def test_only_the_first_unanswered_batch_may_be_sent_again() -> None:
    sequences = PartitionSequences()
    known, first, second, third = batch(0), batch(1), batch(2), batch(3)
    sent(sequences, known)
    sequences.acknowledged(known)
    sent(sequences, first, second)
    assert not sequences.may_send(second)
    assert sequences.may_send(first)
    assert sequences.may_send(third)
    sequences.acknowledged(first)
    assert sequences.may_send(second)


def test_nothing_follows_the_first_batch_until_the_broker_has_it() -> None:
    """A broker that does not know the producer accepts any sequence number: it would write the second batch without the
    first.
    """
    sequences = PartitionSequences()
    first, second, third = batch(1), batch(2), batch(3)
    assert sequences.may_send(first)
    sent(sequences, first)
    assert not sequences.may_send(second)
    sequences.acknowledged(first)
    assert sequences.may_send(second)
    sent(sequences, second)
    assert sequences.may_send(third)


def test_no_new_batch_follows_a_retried_one() -> None:
    """The batch may be in the log already; after five more, a broker would not recognize it as a duplicate."""
    sequences = PartitionSequences()
    known, again, new = batch(0), batch(1), batch(2)
    sent(sequences, known)
    sequences.acknowledged(known)
    sent(sequences, again)
    assert sequences.may_send(new)
    refused(again)
    sent(sequences, again)
    assert not sequences.may_send(new)
    sequences.acknowledged(again)
    assert sequences.may_send(new)


def test_five_batches_are_in_flight_at_most() -> None:
    """The limit counts over all connections: a new leader gets none of the later batches before the first is
    acknowledged.
    """
    sequences = PartitionSequences()
    known, *five = [batch(number) for number in range(6)]
    sent(sequences, known)
    sequences.acknowledged(known)
    sent(sequences, *five)
    assert not sequences.may_send(batch(6))
    sequences.acknowledged(five[0])
    assert sequences.may_send(batch(6))


def test_batch_before_a_refused_one_keeps_its_numbers() -> None:
    """It may be in the log although its response was lost: under new sequence numbers it would be written twice."""
    sequences = PartitionSequences()
    known, doubtful, bad, behind = batch(0), batch(1), batch(2), batch(3)
    sent(sequences, known)
    sequences.acknowledged(known)
    sent(sequences, doubtful, bad, behind)
    sequences.failed(bad, fate_known=True)
    assert not sequences.bump_wanted
    assert sequences.may_send(doubtful)
    assert not sequences.may_send(batch(4))
    sequences.acknowledged(doubtful)
    assert sequences.should_retry(behind, OutOfOrderSequenceNumberError())
    assert sequences.bump_wanted


def test_out_of_order_behind_a_missing_batch_is_retried_with_the_same_numbers() -> None:
    sequences = PartitionSequences()
    first, second = batch(1), batch(2)
    sent(sequences, first, second)
    assert sequences.should_retry(second, OutOfOrderSequenceNumberError())
    assert not sequences.bump_wanted


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumberError, UnknownProducerIdError])
def test_lost_producer_state_starts_a_new_epoch_once_nothing_is_in_flight(error: type) -> None:
    """KIP-360."""
    sequences = PartitionSequences()
    first, second, third = batch(1), batch(2, 3), batch(3)
    sent(sequences, first)
    sequences.acknowledged(first)
    sent(sequences, second, third)
    refused(second)
    assert sequences.should_retry(second, error(), log_start_offset=0)
    assert sequences.bump_wanted
    assert not sequences.bump_due  # the third batch is still in flight
    assert not sequences.may_send(second)
    refused(third)
    assert sequences.bump_due
    sequences.restart(IDENTITY.bumped())
    assert [(b.producer_epoch, b.base_sequence) for b in (second, third)] == [(4, 0), (4, 3)]
    assert sequences.may_send(second)
    assert sequences.next == 5


def test_unknown_producer_id_error_without_a_log_start_is_retried_with_the_same_sequence_number() -> None:
    """The partition is moving: its new leader will return a clear result."""
    sequences = PartitionSequences()
    first = batch(1)
    sent(sequences, first)
    assert sequences.should_retry(first, UnknownProducerIdError(), log_start_offset=-1)
    assert not sequences.bump_wanted


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumberError, UnknownProducerIdError])
def test_renumbered_batch_does_not_use_an_epoch_per_attempt(error: type) -> None:
    sequences = PartitionSequences()
    first = batch(1)
    sent(sequences, first)
    refused(first)
    sequences.should_retry(first, error(), log_start_offset=0)
    sequences.restart(IDENTITY.bumped())
    assert sequences.should_retry(first, error(), log_start_offset=0)
    assert not sequences.bump_wanted


def test_second_loss_starts_another_epoch_once_the_first_epoch_has_worked() -> None:
    """Otherwise a renumbered batch whose predecessor is lost again would wait until it expires."""
    sequences = PartitionSequences()
    first, second = batch(1), batch(2)
    sent(sequences, first, second)
    refused(first)
    refused(second)
    assert sequences.should_retry(first, OutOfOrderSequenceNumberError())
    sequences.restart(IDENTITY.bumped())
    sequences.acknowledged(first)
    assert sequences.should_retry(second, OutOfOrderSequenceNumberError())
    assert sequences.bump_wanted


def test_batch_refused_permanently_leaves_a_gap_that_needs_a_new_epoch() -> None:
    sequences = PartitionSequences()
    first, second = batch(1), batch(2)
    sent(sequences, first, second)
    refused(first)
    sequences.failed(first, fate_known=True)
    assert sequences.bump_wanted
    assert not sequences.bump_due
    refused(second)
    assert sequences.bump_due


def test_batch_with_unknown_outcome_stops_new_ones_until_the_others_have_responses() -> None:
    sequences = PartitionSequences()
    first, second, third = batch(1), batch(2), batch(3)
    sent(sequences, first, second)
    refused(first)
    sequences.failed(first, fate_known=False)
    assert not sequences.may_send(third)
    sequences.resolve()
    assert sequences.unresolved
    refused(second)
    sequences.acknowledged(second)  # so the broker had the first batch as well
    sequences.resolve()
    assert not sequences.unresolved
    assert not sequences.bump_wanted
    assert sequences.may_send(third)


def test_unknown_outcome_of_the_last_batch_needs_a_new_epoch() -> None:
    sequences = PartitionSequences()
    first = batch(1)
    sent(sequences, first)
    refused(first)
    sequences.failed(first, fate_known=False)
    sequences.resolve()
    assert sequences.bump_due


def test_batch_that_was_never_sent_leaves_no_gap() -> None:
    sequences = PartitionSequences()
    sequences.failed(batch(1), fate_known=False)
    assert not sequences.unresolved
    assert not sequences.bump_wanted


def test_other_errors_are_retried_if_they_are_retriable() -> None:
    sequences = PartitionSequences()
    first = batch(1)
    sent(sequences, first)
    assert sequences.should_retry(first, NotEnoughReplicasError())
    assert not sequences.bump_wanted


def test_other_partitions_adopt_the_new_epoch_once_they_have_nothing_in_flight() -> None:
    sequences = PartitionSequences()
    first, second, third = batch(1), batch(2), batch(3)
    sent(sequences, first)
    newer = IDENTITY.bumped()
    sequences.assign(second, newer)
    assert (second.producer_epoch, second.base_sequence) == (3, 2)
    sequences.acknowledged(first)
    sequences.acknowledged(second)
    sequences.assign(third, newer)
    assert (third.producer_epoch, third.base_sequence) == (4, 0)


def test_used_up_epochs_need_a_new_producer_id() -> None:
    assert not ProducerIdentity(9, 32_767).bumped().known
