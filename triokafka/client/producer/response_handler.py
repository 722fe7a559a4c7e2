"""Decides about each batch at the end of a produce request: acknowledge, retry, split or fail.

No waiting and no I/O: `RequestSender` calls the handler, and `IncompleteBatches` carries out the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from triokafka import errors
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.batch_log import BatchLog
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.client.producer.produce_request import ProduceAnswer
from triokafka.client.producer.splitting import split_records
from triokafka.client.producer.transactions.completion_check import completion_backoff
from triokafka.hooks import HookChain
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_UNKNOWN_SERVER_ERROR: Final = -1
FATAL: Final = (
    errors.ClusterAuthorizationFailedError,
    errors.InvalidProducerIdMappingError,
    errors.ProducerFencedError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.UnsupportedVersionError,
)
"""Errors that end an idempotent producer; any other fails its batch alone."""


class ResponseHandler:
    """Applies answers to one producer's batches.

    ``on_fatal`` gets an error that ends the producer, after all batches of its request. ``on_identity_lost`` is called
    when the producer needs another id. ``counters``, ``log`` and ``hooks`` are the sender's.
    """

    def __init__(
        self,
        batches: IncompleteBatches,
        client: NetworkClient,
        *,
        world: World,
        acks: int,
        retries: int,
        counters: dict[str, float],
        log: BatchLog,
        hooks: HookChain,
        on_identity_lost: Callable[[], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._batches = batches
        self._client = client
        self._world = world
        self._acks = acks
        self._retries = retries
        self._counters = counters
        self._log = log
        self._hooks = hooks or None
        self._on_identity_lost = on_identity_lost
        self._on_fatal = on_fatal
        self._fatal: Exception | None = None
        batches.add_failure_listener(self._count_failure)

    # ---------------------------------------------------------------- ends of a request

    def answered(
        self, batches: Sequence[ProducerBatch], answers: Mapping[TopicPartition, ProduceAnswer], now: float
    ) -> None:
        """Apply a response: each partition succeeds or fails by itself."""
        for batch in self._off_wire(batches):
            answer = answers.get(batch.topic_partition)
            if answer is None:
                error = errors.NetworkExceptionError(
                    f"the broker's answer has no result for {batch.topic_partition}, or contradictory ones"
                )
                self._failed(batch, error, None, now, retry=self._attempts_left(batch))
            elif answer.error_code:
                self._refused(batch, answer, now)
            else:
                self._written(batch, answer.base_offset, answer.log_append_time, now)
        self._report_fatal()

    def acknowledged(self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float) -> None:
        """Acknowledge the only batch of a request."""
        self._batches.off_wire(batch)
        self._written(batch, base_offset, log_append_time, now)

    def written(self, batches: Sequence[ProducerBatch], now: float) -> None:
        """Acknowledge the batches of a request that was written with ``acks=0``, which gets no response."""
        for batch in self._off_wire(batches):
            self._written(batch, -1, -1, now)

    def unanswered(self, batches: Sequence[ProducerBatch], error: Exception, now: float) -> None:
        """Retry or fail the batches of a request without a valid response. Whether the broker has them is unknown.

        With ``acks=0`` no batch is sent again: the broker may have the request, and duplicates are not allowed.
        """
        for batch in self._off_wire(batches):
            self._failed(batch, error, None, now, retry=self._acks != 0 and self._attempts_left(batch))

    def unsent(self, batches: Sequence[ProducerBatch], error: Exception, now: float) -> None:
        """Queue the batches again after a connection took nothing: no attempt was made, so none is counted."""
        logger.debug("produce request: nothing was sent; retrying: %s", error)
        for batch in self._off_wire(batches):
            batch.attempts -= 1
            batch.last_error = error
            wait = self._batches.settings.retry_backoff.delay(batch.attempts, self._world.random.random())
            self._batches.retry(batch, now, wait=wait)

    def impossible(self, batches: Sequence[ProducerBatch], error: errors.KafkaError) -> None:
        """Fail the batches: no request version of this broker can carry them, and nothing was sent."""
        for batch in self._off_wire(batches):
            self._give_up(batch, error, fate_known=batch.attempts == 1)
        self._report_fatal()

    def _off_wire(self, batches: Sequence[ProducerBatch]) -> Sequence[ProducerBatch]:
        for batch in batches:
            self._batches.off_wire(batch)
        return batches

    # ---------------------------------------------------------------- one batch

    def _written(self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float) -> None:
        if batch.done:
            self._batches.late_answer(batch, written=True)
            return
        records = batch.count
        size = batch.size if self._hooks else 0  # acknowledging drops the bytes
        self._counters["record_send_total"] += records
        self._batches.acknowledge(batch, base_offset, log_append_time, now)
        if self._hooks:
            age = now - batch.created_at
            self._hooks.on_batch_acknowledged(batch.topic_partition, records, size, base_offset, batch.attempts, age)

    def _refused(self, batch: ProducerBatch, answer: ProduceAnswer, now: float) -> None:
        error = _refusal(batch, answer)
        if isinstance(error, errors.DuplicateSequenceNumberError):
            self._counters["duplicate_batch_total"] += 1
            self._written(batch, -1, -1, now)  # the broker has it, but no longer its offset
            return
        if isinstance(error, errors.MessageSizeTooLargeError) and batch.count > 1 and not batch.done:
            self._split(batch, error)
            return
        self._client.metadata.update_leader(batch.topic_partition, answer.leader_id, answer.leader_epoch, answer.leader)
        self._failed(batch, error, answer, now, retry=not batch.done and self._should_retry(batch, error, answer))

    def _failed(
        self, batch: ProducerBatch, error: Exception, answer: ProduceAnswer | None, now: float, *, retry: bool
    ) -> None:
        """Retry or give up after a failed attempt."""
        if isinstance(error, errors.KafkaError) and error.invalid_metadata:
            self._client.request_metadata_update()
        if batch.done:
            self._batches.late_answer(batch, written=False)
        elif retry:
            self._counters["record_retry_total"] += batch.count
            self._counters["batch_retry_total"] += 1
            self._log.retried.append((batch.topic_partition.topic, batch.count))
            logger.debug("%s: attempt %d failed; retrying: %s", batch.topic_partition, batch.attempts, error)
            batch.last_error = error
            backoff = self._batches.settings.retry_backoff
            if isinstance(error, errors.ConcurrentTransactionsError):
                backoff = completion_backoff(backoff)
            self._batches.retry(batch, now, wait=backoff.delay(batch.attempts, self._world.random.random()))
            self._report_retry(batch, error)
        else:
            # An earlier attempt may have written the batch, or a broker that then failed with UNKNOWN_SERVER_ERROR, and
            # the batches behind it too: other sequence numbers would write those twice.
            fate_known = answer is not None and batch.attempts == 1 and answer.error_code != _UNKNOWN_SERVER_ERROR
            self._give_up(batch, error, fate_known=fate_known, record_errors=_record_errors(batch, error, answer))

    def _attempts_left(self, batch: ProducerBatch) -> bool:
        return batch.attempts <= self._retries

    def _should_retry(self, batch: ProducerBatch, error: errors.BrokerResponseError, answer: ProduceAnswer) -> bool:
        if not self._attempts_left(batch):
            return False
        if not self._batches.idempotent:
            return error.retriable
        queue = self._batches.queue_of(batch)
        retry = queue.sequences.should_retry(batch, error, log_start_offset=answer.log_start_offset)
        if queue.sequences.bump_wanted:
            if self._batches.settings.transactional:
                return False  # the transaction is aborted: only then may the producer take a new epoch
            self._batches.note_disturbed(queue)
        return retry

    def _give_up(
        self,
        batch: ProducerBatch,
        error: Exception,
        *,
        fate_known: bool,
        record_errors: dict[int, Exception] | None = None,
    ) -> None:
        if batch.done:
            self._batches.late_answer(batch, written=False)
            return
        if self._batches.idempotent:
            if isinstance(error, FATAL):
                self._fatal = error
            elif isinstance(error, errors.InvalidProducerEpochError) and not self._batches.settings.transactional:
                # Another producer uses this id and a newer epoch: only a new id helps.
                self._on_identity_lost()
        self._batches.fail(batch, error, fate_known=fate_known, record_errors=record_errors)

    def _split(self, batch: ProducerBatch, error: Exception) -> None:
        """Split a batch that the broker finds too large in halves, repeatedly (KIP-126); this counts as no attempt."""
        pieces, starts = split_records(batch, self._batches.settings)
        self._counters["batch_split_total"] += 1
        logger.debug(
            "%s: the broker refused a batch as too large; splitting it into %d batches",
            batch.topic_partition,
            len(pieces),
        )
        self._report_retry(batch, error)
        self._batches.split(batch, pieces, starts)

    # ---------------------------------------------------------------- events

    def _report_retry(self, batch: ProducerBatch, error: Exception) -> None:
        if self._hooks:
            self._hooks.on_batch_retried(batch.topic_partition, batch.count, batch.attempts, error)

    def _count_failure(self, batch: ProducerBatch) -> None:
        self._counters["record_error_total"] += batch.count
        self._counters["batch_error_total"] += 1
        self._log.failed.append((batch.topic_partition.topic, batch.count))
        if self._hooks and batch.error is not None:
            self._hooks.on_batch_failed(batch.topic_partition, batch.count, batch.error)

    def _report_fatal(self) -> None:
        # The other batches of the request got their outcomes first, which remain valid.
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            self._on_fatal(fatal)


def _refusal(batch: ProducerBatch, answer: ProduceAnswer) -> errors.BrokerResponseError:
    """Return the broker's error, with the partition and the remedy in its message."""
    kind = errors.for_code(answer.error_code)
    code = f" with the unknown error code {answer.error_code}" if answer.error_code not in errors.ERRORS else ""
    attempt = f" at attempt {batch.attempts}" if batch.attempts > 1 else ""
    said = f" The broker says: {answer.message}" if answer.message else ""
    return kind(
        f"{batch.count} records for {batch.topic_partition} were refused{code}{attempt}. {kind.advice}{said}".rstrip()
    )


def _record_errors(batch: ProducerBatch, error: Exception, answer: ProduceAnswer | None) -> dict[int, Exception] | None:
    """Return the errors of single records that the broker named (KIP-467). The errors of the other records say that
    those can be sent again."""
    if answer is None or not answer.record_errors:
        return None
    bad = {index: message for index, message in answer.record_errors.items() if 0 <= index < batch.count}
    if not bad:
        return None
    innocent = type(error)(
        f"not written, because {len(bad)} other records of the same batch of {batch.count} for"
        f" {batch.topic_partition} were refused; send it again. The broker says: {answer.message or error}"
    )
    by_index: dict[int, Exception] = dict.fromkeys(range(batch.count), innocent)
    # The code is the batch's: with several bad records it is unknown to which of them it belongs.
    kind = type(error) if len(bad) == 1 else errors.InvalidRecordError
    where = f"a record for {batch.topic_partition} was refused"
    by_index.update((index, kind(f"{where}: {message or error}")) for index, message in bad.items())
    return by_index
