"""`TransactionManager`: the state machine of a transactional producer. Pure: no I/O, no waiting, no clock.

The user's calls change the state; `next_call` derives the next request to a coordinator from it; the request's
``answered`` applies the response. Because requests follow from the state, a request whose answer was lost is sent again
by asking for the next one.

Transactions run in one of two modes, chosen by the cluster's feature ``transaction.version``. Below level 2 the
producer registers every partition with AddPartitionsToTxn before it sends to it, and every group with AddOffsetsToTxn.
From level 2 on (KIP-890) Produce and TxnOffsetCommit register both, and EndTxn returns a new epoch, which fences every
request of the ended transaction that is still on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from triokafka import errors
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.client.producer.transactions.coordinator_call import GROUP, CallOutcome, CoordinatorCall
from triokafka.client.producer.transactions.coordinator_errors import (
    COORDINATOR_MOVED,
    FENCED,
    ID_LOST,
    NOT_A_MEMBER,
    error_of,
    retry_after,
)
from triokafka.client.producer.transactions.transaction_offsets import TransactionOffsets
from triokafka.client.producer.transactions.transaction_state import TRANSITIONS, TransactionState
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from triokafka.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
)
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, by_topic

_S = TransactionState

_IMPLICIT_LEVEL: Final = 2
_LAST_VERSION_OF_CLIENTS: Final = 3  # of AddPartitionsToTxn; later ones are between brokers
_LAST_EXPLICIT_END: Final = 4
_LAST_EXPLICIT_COMMIT: Final = 4


class TransactionManager:
    """The transactions of one producer, one after the other.

    ``transaction_version`` returns the level of the cluster's feature ``transaction.version`` as far as it is known.
    ``implicit`` says whether Produce and TxnOffsetCommit register partitions and groups. ``error`` is the reason for an
    abortable or fatal error. ``identity_changes`` counts the identities that the coordinator gave; with each of them
    sequence numbers start from 0. ``number`` counts the transactions; ``committed`` is the outcome of the last one,
    None while it is unknown.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, transaction_version: Callable[[], int]) -> None:
        self.transactional_id = transactional_id
        self.state = _S.UNINITIALIZED
        self.identity = ProducerIdentity()
        self.identity_changes = 0
        self.implicit = False
        self.error: errors.KafkaError | None = None
        self.committed: bool | None = None
        self.number = 0
        self.end_sent = False
        self._timeout_ms = timeout_ms
        self._transaction_version = transaction_version
        self._started = False
        self._bump_wanted = False
        self._new: dict[TopicPartition, None] = {}
        self._adding: tuple[TopicPartition, ...] = ()
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._adding_group: str | None = None
        self._offsets: deque[TransactionOffsets] = deque()

    # ---------------------------------------------------------------- states

    def _enter(self, state: TransactionState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise errors.IllegalStateError(
                f"transactional id {self.transactional_id!r}: impossible transition from {self.state.name} to"
                f" {state.name}"
            )
        self.state = state

    def fail(self, error: errors.KafkaError) -> None:
        """End every transaction of this producer: it was fenced, or may not use its transactional id."""
        if self.state is not _S.FATAL_ERROR:
            self._enter(_S.FATAL_ERROR)
            self.error = error

    def fail_transaction(self, error: errors.KafkaError, *, lost_sequence: bool = False) -> None:
        """Require that the open transaction is aborted. Does nothing when none is open.

        ``lost_sequence``: a numbered batch failed, so that sequence numbers of its partition have a gap.
        """
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING) and not self.end_sent:
            self._enter(_S.ABORTABLE_ERROR)
            self.error = error
        if self.state in (_S.ABORTABLE_ERROR, _S.ABORTING):
            self._bump_wanted = self._bump_wanted or lost_sequence

    def check_can_send(self) -> None:
        """Raise unless records may be added to a transaction now.

        Raises:
            IllegalStateError: no transaction is open, or it is being completed.
            TransactionAbortableError: it must be aborted; the error's cause is the reason.
            KafkaError: the fatal error.
        """
        if self.state is not _S.IN_TRANSACTION:
            self._refuse("cannot send or commit offsets outside of a transaction")

    def _refuse(self, problem: str) -> None:
        if self.state is _S.FATAL_ERROR and self.error is not None:
            raise self.error.fresh_copy()
        if self.state is _S.ABORTABLE_ERROR:
            raise self.abortable_error()
        raise errors.IllegalStateError(
            f"transactional id {self.transactional_id!r}: {problem}: {self.state.value}. Use 'async with"
            " producer.transaction()'"
        )

    def abortable_error(self) -> errors.TransactionAbortableError:
        """Return the error that says that the transaction must be aborted; its cause is the reason."""
        error = errors.TransactionAbortableError(
            f"the transaction of {self.transactional_id!r} must be aborted, because of: {self.error!r}"
        )
        error.__cause__ = self.error
        return error

    # ---------------------------------------------------------------- the user's calls

    def initialize(self) -> None:
        """Request the producer id, and fence older producers with this transactional id; once."""
        if self.state is _S.UNINITIALIZED:
            self._enter(_S.INITIALIZING)

    def begin(self) -> None:
        """Open a transaction. Sends nothing: the coordinator learns of it with its first partition or group.

        Raises:
            IllegalStateError: another one is open.
        """
        if self.state is not _S.READY:
            self._refuse("cannot begin a transaction")
        self._enter(_S.IN_TRANSACTION)
        self.committed = None
        self.number += 1

    def add_partition(self, partition: TopicPartition) -> bool:
        """Note that a batch for a partition will follow. Returns whether it may be sent now."""
        if self.implicit:
            return True
        if partition in self._added:
            return True
        if partition not in self._adding:
            self._new[partition] = None
        return False

    def is_added(self, partition: TopicPartition) -> bool:
        """Return whether batches for the partition may be sent."""
        return self.implicit or partition in self._added

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> TransactionOffsets:
        """Make a group's offsets part of the transaction. Raises as `check_can_send`."""
        self.check_can_send()
        pending = TransactionOffsets(group, offsets)
        if not pending.done:
            self._offsets.append(pending)
        return pending

    @property
    def registers_group(self) -> bool:
        """Whether TxnOffsetCommit, which registers its group, is due or on its way.

        Brokers that register a partition at the same moment collide with it: Apache Kafka refuses one of the two
        requests, for a tenth of a second. So the first batch of a partition waits meanwhile.
        """
        return self.implicit and bool(self._offsets) and self.state in (_S.IN_TRANSACTION, _S.COMMITTING)

    @property
    def unanswered(self) -> str:
        """What the coordinators must still confirm before EndTxn can be sent, for an error message."""
        if self._offsets:
            return f"the offsets of group {self._offsets[0].group.group_id!r} were not added to the transaction"
        return "the coordinator has not confirmed the partitions of the transaction"

    def begin_commit(self) -> None:
        """Commit once all batches are acknowledged. Raises as `check_can_send`."""
        if self.state is not _S.IN_TRANSACTION:
            self._refuse("cannot commit")
        self._enter(_S.COMMITTING)

    def begin_abort(self) -> None:
        """Abort once no batch is on the wire. Also ends a commit for which EndTxn was not sent.

        Raises:
            IllegalStateError: no transaction is open, or its commit was sent.
        """
        if self.state is _S.COMMITTING and self.end_sent:
            self._refuse("cannot abort: the commit was sent")
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR):
            self._refuse("cannot abort")
        self._enter(_S.ABORTING)
        self._new.clear()
        self._offsets.clear()

    # ---------------------------------------------------------------- the next request

    def next_call(self, *, idle: bool, sent: bool, registering: bool = False) -> CoordinatorCall | None:
        """Return the next request; None when nothing is due.

        ``idle``: no batch is queued or on the wire. ``sent``: the transaction has sent a batch. Under transaction
        version 2 the coordinator knows of the transaction only then, and while it completes the one before, it would
        take an EndTxn of the new epoch for a zombie's. ``registering``: a Produce request that registers its partition
        is on the wire, so that `registers_group` waits.

        A transaction that the coordinator does not know ends here, without a request.
        """
        if sent and self.implicit:
            self._started = True
        if self.state is _S.INITIALIZING:
            return self._init_call()
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            if self._new or self._adding:
                return self._add_partitions_call()
            if self._offsets:
                return None if registering else self._offsets_call(self._offsets[0])
            if self.state is _S.COMMITTING and idle:
                return self._end(commit=True)
        elif self.state is _S.ABORTING:
            # Without an answer it is unknown whether the coordinator has the transaction.
            if self._adding:
                return self._add_partitions_call()
            if self._adding_group is not None:
                return self._group_call(self._adding_group)
            if idle:
                return self._end(commit=False)
        return None

    def _end(self, *, commit: bool) -> CoordinatorCall | None:
        if isinstance(self.error, ID_LOST):
            # The coordinator accepts no EndTxn of an id that it does not know; a new epoch aborts the transaction.
            self._complete(commit, bump=True)
            return self._init_call()
        if not self._started:
            self._complete(commit, bump=self._bump_wanted)
            return self._init_call() if self.state is _S.INITIALIZING else None
        self.end_sent = True
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        if self.implicit:
            return self._call(request, self._ended, min_version=_LAST_EXPLICIT_END + 1)
        return self._call(request, self._ended, max_version=_LAST_EXPLICIT_END)

    def _call(
        self,
        request: InitProducerIdRequest | AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | EndTxnRequest,
        answered: Callable[..., CallOutcome],
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> CoordinatorCall:
        return CoordinatorCall(
            request, answered, self.transactional_id, min_version=min_version, max_version=max_version
        )

    # ---------------------------------------------------------------- InitProducerId

    def _init_call(self) -> CoordinatorCall:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
        )
        return self._call(request, self._initialized)

    def _initialized(self, response: InitProducerIdResponse) -> CallOutcome:
        error = error_of(response.error_code, f"a producer id for the transactional id {self.transactional_id!r}")
        if error is None:
            self._set_identity(response.producer_id, response.producer_epoch)
            self._enter(_S.READY)
            return CallOutcome.DONE
        if (outcome := retry_after(error)) is not None:
            return outcome
        self._fail_by(error)
        return CallOutcome.DONE

    def _set_identity(self, producer_id: int, epoch: int) -> None:
        self.identity = ProducerIdentity(producer_id, epoch)
        self.identity_changes += 1
        self.implicit = self._transaction_version() >= _IMPLICIT_LEVEL

    # ---------------------------------------------------------------- AddPartitionsToTxn

    def _add_partitions_call(self) -> CoordinatorCall:
        self._adding = (*self._adding, *self._new)
        self._new.clear()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in by_topic(self._adding).items()
            ],
        )
        return self._call(request, self._partitions_added, max_version=_LAST_VERSION_OF_CLIENTS)

    def _partitions_added(self, response: AddPartitionsToTxnResponse) -> CallOutcome:
        failures: dict[TopicPartition, errors.BrokerResponseError] = {}
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                partition = TopicPartition(topic.name, result.partition_index)
                if error := error_of(result.partition_error_code, f"adding {partition} to the transaction"):
                    failures[partition] = error
        adding, self._adding = self._adding, ()
        # The coordinator adds all partitions or none.
        if not failures:
            self._added.update(adding)
            self._started = True
            return CallOutcome.DONE
        self._put_back(adding)
        causes = list(failures.values())
        serious = [error for error in causes if not isinstance(error, errors.OperationNotAttemptedError)] or causes
        for error in serious:
            if isinstance(error, errors.UnknownTopicOrPartitionError):
                return CallOutcome.RETRY  # a new topic is not known everywhere yet
            if (outcome := retry_after(error)) is not None:
                return outcome
            if self._fails_producer(error):
                return CallOutcome.DONE
        refused = [p for p, error in failures.items() if isinstance(error, errors.TopicAuthorizationFailedError)]
        if refused:
            topics = ", ".join(sorted({partition.topic for partition in refused}))
            self.fail_transaction(errors.TopicAuthorizationFailedError(f"the principal may not write to {topics}"))
        else:
            self.fail_transaction(serious[0])
        return CallOutcome.DONE

    def _put_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator did not add the partitions: add them later, unless the transaction is aborted."""
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._new = {**dict.fromkeys(partitions), **self._new}

    # ---------------------------------------------------------------- offsets

    def _offsets_call(self, pending: TransactionOffsets) -> CoordinatorCall:
        group = pending.group
        if not self.implicit and group.group_id not in self._groups:
            return self._group_call(group.group_id)
        if self.implicit:
            self._started = True
        return CoordinatorCall(
            pending.request(self.transactional_id, self.identity),
            lambda response: self._offsets_answered(pending, response),
            group.group_id,
            GROUP,
            min_version=_LAST_EXPLICIT_COMMIT + 1 if self.implicit else None,
            max_version=None if self.implicit else _LAST_EXPLICIT_COMMIT,
        )

    def _group_call(self, group_id: str) -> CoordinatorCall:
        self._adding_group = group_id
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group_id,
        )
        return self._call(request, lambda response: self._group_added(group_id, response))

    def _group_added(self, group_id: str, response: AddOffsetsToTxnResponse) -> CallOutcome:
        self._adding_group = None
        error = error_of(response.error_code, f"adding group {group_id!r} to the transaction")
        if error is None:
            self._groups.add(group_id)
            self._started = True
            return CallOutcome.DONE
        if (outcome := retry_after(error)) is not None:
            return outcome
        if not self._fails_producer(error):
            self.fail_transaction(error)
        return CallOutcome.DONE

    def _offsets_answered(self, pending: TransactionOffsets, response: TxnOffsetCommitResponse) -> CallOutcome:
        outcome = CallOutcome.DONE
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                error = error_of(
                    result.error_code, f"offset of {partition} for group {pending.group.group_id!r} in the transaction"
                )
                if error is None:
                    pending.remaining.pop(partition, None)
                elif isinstance(error, (*COORDINATOR_MOVED, errors.RequestTimedOutError)):
                    outcome = CallOutcome.FIND_AGAIN
                elif (retry := retry_after(error)) is not None:
                    outcome = retry
                elif isinstance(error, errors.UnknownTopicOrPartitionError):
                    outcome = CallOutcome.RETRY
                else:
                    self._offset_refused(pending, error)
                    return CallOutcome.DONE
        if pending.done and self._offsets and self._offsets[0] is pending:
            self._offsets.popleft()
        elif outcome is CallOutcome.DONE and not pending.done:
            outcome = CallOutcome.RETRY  # the answer leaves partitions out
        return outcome

    def _offset_refused(self, pending: TransactionOffsets, error: errors.BrokerResponseError) -> None:
        if isinstance(error, NOT_A_MEMBER):
            reason = errors.CommitFailedError(
                f"group {pending.group.group_id!r} has gone on without this member, so its offsets cannot be part of"
                f" the transaction: {error!r}. Abort the transaction; the new owners read the records again"
            )
            reason.__cause__ = error
            self.fail_transaction(reason)
        elif isinstance(error, errors.UnsupportedForMessageFormatError):
            self.fail(error)
        elif not self._fails_producer(error):
            self.fail_transaction(error)

    # ---------------------------------------------------------------- EndTxn

    def _ended(self, response: EndTxnResponse) -> CallOutcome:
        committing = self.state is _S.COMMITTING
        what = "committing" if committing else "aborting"
        error = error_of(response.error_code, f"{what} the transaction of {self.transactional_id!r}")
        if error is None:
            if self.implicit and response.producer_id >= 0:
                upgraded = False
                self._set_identity(response.producer_id, response.producer_epoch)
            else:
                # The next transaction registers its partitions differently, and needs an epoch of its own.
                upgraded = not self.implicit and self._transaction_version() >= _IMPLICIT_LEVEL
            self._complete(committing, bump=upgraded or (self._bump_wanted and not self.implicit))
            return CallOutcome.DONE
        if (outcome := retry_after(error)) is not None:
            return outcome
        self.end_sent = False
        if committing and self.implicit and isinstance(error, errors.InvalidTxnStateError):
            # Every commit has an epoch of its own, so the coordinator refuses it for this reason alone. It answers the
            # abort that follows with the next epoch.
            self.fail_transaction(
                errors.InvalidTxnStateError(
                    f"the coordinator has aborted the transaction of {self.transactional_id!r}, which was open for"
                    f" longer than transaction_timeout_ms={self._timeout_ms}"
                )
            )
            return CallOutcome.DONE
        if self._fails_producer(error) or isinstance(error, ID_LOST):
            if self.state is _S.ABORTING:
                self.error = error  # `_end` takes a new epoch
            return CallOutcome.DONE
        if committing and isinstance(error, errors.TransactionAbortableError):
            self.fail_transaction(error)
        else:
            self.fail(error)
        return CallOutcome.DONE

    def _complete(self, committed: bool, *, bump: bool) -> None:
        """The transaction has ended. ``bump``: the next one needs a new epoch, which the coordinator must give."""
        self._enter(_S.INITIALIZING if bump else _S.READY)
        self.committed = committed
        self.error = None
        self.end_sent = self._started = self._bump_wanted = False
        self._adding_group = None
        self._new.clear()
        self._adding = ()
        self._added.clear()
        self._groups.clear()
        self._offsets.clear()

    # ---------------------------------------------------------------- errors

    def _fails_producer(self, error: errors.BrokerResponseError) -> bool:
        """Apply an error that is fatal, or after which the producer needs a new epoch. False for any other."""
        if isinstance(error, ID_LOST):
            self.fail_transaction(error, lost_sequence=True)
            return True
        if isinstance(error, (*FENCED, errors.TransactionalIdAuthorizationFailedError, errors.InvalidTxnStateError)):
            self._fail_by(error)
            return True
        return False

    def _fail_by(self, error: errors.BrokerResponseError) -> None:
        if isinstance(error, FENCED):
            fenced = errors.ProducerFencedError(
                f"another producer with the transactional id {self.transactional_id!r} has started, or the transaction"
                f" took longer than transaction_timeout_ms={self._timeout_ms}. Close this producer"
            )
            fenced.__cause__ = error
            self.fail(fenced)
        else:
            self.fail(error)
