"""The one task that empties the accumulator: which batches go out now, and what their answers mean.

It never waits for a broker: requests are handed to the network client, and answers come back as calls. Every wake-up
runs `Sender.step`, which is all there is to it; between wake-ups it sleeps until linger, back-off or a timeout ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.produce_request import ProduceAnswer, build_request, read_response
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.client.producer.splitting import split_records
from triokafka.errors import (
    BrokerResponseError,
    DuplicateSequenceNumberError,
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    NetworkExceptionError,
    ProtocolError,
    UnsupportedVersionError,
    for_code,
)
from triokafka.network.cluster import NetworkClient
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.produce import ProduceRequest, ProduceResponse
from triokafka.world import World

logger = logging.getLogger(__name__)

_NEVER: Final = float("inf")
_TRANSACTION_TIMEOUT_MS: Final = 60_000  # of no consequence without a transactional id, but must be within bounds
_FIRST_ZSTD_VERSION: Final = 7


class Sender:
    """Drives one producer's accumulator over one network client.

    ``start_identity_task`` starts `fetch_identity` as a task of the producer; ``on_fatal`` is told of errors after
    which the producer cannot go on. ``counters`` are totals since the start.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        client: NetworkClient,
        *,
        world: World,
        acks: int,
        retries: int,
        idempotence_required: bool,
        start_identity_task: Callable[[], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self.identity = ProducerIdentity()
        self.counters = {
            "record_send_total": 0,
            "record_error_total": 0,
            "record_retry_total": 0,
            "batch_split_total": 0,
            "byte_total": 0,
            "request_total": 0,
        }
        self._accumulator = accumulator
        self._client = client
        self._world = world
        self._acks = acks
        self._retries = retries
        self._idempotence_required = idempotence_required
        self._start_identity_task = start_identity_task
        self._on_fatal = on_fatal
        self._identity_wanted = False
        self._task: trio.lowlevel.Task | None = None
        self._woken = False

    # ---------------------------------------------------------------- the task

    def wake(self) -> None:
        """Have `step` run soon: something changed. Costs next to nothing when that is due already."""
        self._woken = True
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken = False
            wait = self.step(self._world.now())
            if self._woken:
                await trio.lowlevel.checkpoint()
                continue
            if wait == _NEVER:
                await self._sleep()
            else:
                with trio.move_on_after(wait):
                    await self._sleep()

    async def _sleep(self) -> None:
        self._task = trio.lowlevel.current_task()

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def step(self, now: float) -> float:
        """Do all that can be done now (`client/SND-1`); returns seconds until there may be more, unless woken
        before."""
        accumulator, client = self._accumulator, self._client
        self._restart_partitions()
        accumulator.take_expired(now)
        expiry = accumulator.next_expiry(now)
        if not accumulator.queued:
            return expiry
        if accumulator.settings.idempotent and not self.identity.known:
            self._want_identity()
            return expiry
        while True:
            cluster = client.cluster
            ready = accumulator.ready(cluster, now)
            wait = min(ready.next_check, expiry)
            if ready.leaderless:
                self._ask_for_leaders(now)
            nodes = []
            for node in ready.nodes:
                if client.ready(node):
                    nodes.append(node)
                else:
                    wait = min(wait, client.ready_delay(node))
            if not nodes:
                return wait
            drained = accumulator.drain(cluster, nodes, now, self.identity)
            if not drained:
                return wait
            for node, batches in drained.items():
                self._send(node, batches)

    def _ask_for_leaders(self, now: float) -> None:
        for topic in self._accumulator.waiting_topics():
            self._client.metadata.use_topic(topic, now)  # must not expire while records wait
        self._client.request_metadata_update()

    # ---------------------------------------------------------------- requests

    def _send(self, node: int, batches: list[ProducerBatch]) -> None:
        acks = self._acks

        def done(response: ProduceResponse | None, error: Exception | None) -> None:
            try:
                self._answered(batches, response, error)
            except Exception as bug:
                # The connection would only log it, and the records would hang until they expire.
                self._on_fatal(bug)

        try:
            topic_ids = {t.name: t.topic_id for t in self._client.cluster.topics.values() if t.topic_id.int}
            version = self._client.version_for(
                node,
                ProduceRequest,
                min_version=_FIRST_ZSTD_VERSION if self._compresses_zstd else None,
                max_version=None if all(b.topic_partition.topic in topic_ids for b in batches) else 12,
            )
            request = build_request(batches, version, acks=acks, timeout_ms=self._request_timeout_ms, ids=topic_ids)
            self._client.submit(node, request, version, done, expect_response=acks != 0)
        except KafkaError as error:
            self._answered(
                batches, None, error, refused_here=isinstance(error, (UnsupportedVersionError, ProtocolError))
            )
            return
        self.counters["request_total"] += 1
        self.counters["byte_total"] += sum(batch.size for batch in batches)

    @property
    def _compresses_zstd(self) -> bool:
        return self._accumulator.settings.compression_type == "zstd"

    @property
    def _request_timeout_ms(self) -> int:
        return int(self._client.config.request_timeout_ms)

    def _answered(
        self,
        batches: list[ProducerBatch],
        response: ProduceResponse | None,
        error: Exception | None,
        *,
        refused_here: bool = False,
    ) -> None:
        accumulator = self._accumulator
        for batch in batches:
            accumulator.off_wire(batch)
        if response is not None:
            answers = read_response(response, self._client.cluster.topic_names)
            for batch in batches:
                answer = answers.get(batch.topic_partition)
                if answer is None:
                    missing = NetworkExceptionError(f"the broker did not answer for {batch.topic_partition}")
                    self._failed_attempt(batch, missing, None)
                else:
                    self._settle(batch, answer)
        elif error is not None:
            for batch in batches:
                if refused_here:
                    self._give_up(batch, error, fate_known=True)
                else:
                    self._failed_attempt(batch, error, None)
        else:
            for batch in batches:
                self._written(batch, -1, -1)
        self.wake()

    def _settle(self, batch: ProducerBatch, answer: ProduceAnswer) -> None:
        if not answer.error_code:
            self._written(batch, answer.base_offset, answer.log_append_time)
            return
        detail = f": {answer.message}" if answer.message else ""
        error = for_code(answer.error_code)(f"{batch.count} records for {batch.topic_partition}{detail}")
        if isinstance(error, DuplicateSequenceNumberError):
            self._written(batch, -1, -1)  # the broker has it, but forgot where
        else:
            self._failed_attempt(batch, error, answer)

    def _written(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        if batch.done:
            self._accumulator.late_answer(batch, written=True)
            return
        self.counters["record_send_total"] += batch.count
        self._accumulator.acknowledge(batch, base_offset, log_append_time)

    def _failed_attempt(self, batch: ProducerBatch, error: Exception, answer: ProduceAnswer | None) -> None:
        """A request failed, or a broker refused the batch: try again, split, or give up (`client/SND-10`)."""
        accumulator = self._accumulator
        if isinstance(error, KafkaError) and error.invalid_metadata:
            self._client.request_metadata_update()
        if batch.done:
            accumulator.late_answer(batch, written=False)
            return
        if isinstance(error, MessageSizeTooLargeError) and batch.count > 1:
            self._split(batch)
            return
        if self._should_retry(batch, error):
            known_leader = answer is not None and self._take_new_leader(batch, answer)
            self.counters["record_retry_total"] += batch.count
            logger.debug("%s: attempt %d failed, trying again: %s", batch.topic_partition, batch.attempts, error)
            chance = self._world.random.random()
            accumulator.retry(batch, self._world.now(), chance=chance, at_once=known_leader)
            return
        record_errors: dict[int, Exception] | None = None
        if answer is not None and answer.record_errors:
            record_errors = {
                index: InvalidRecordError(message or str(error)) for index, message in answer.record_errors.items()
            }
        self._give_up(batch, error, fate_known=answer is not None, record_errors=record_errors)

    def _should_retry(self, batch: ProducerBatch, error: Exception) -> bool:
        if batch.attempts > self._retries or self._acks == 0:
            return False
        if not isinstance(error, BrokerResponseError):
            # The connection ended, or the answer was no answer: whether the broker has the batch is unknown.
            return True
        if not self._accumulator.settings.idempotent:
            return error.retriable
        queue = self._accumulator.queue(batch.topic_partition)
        retry = queue.sequences.should_retry(batch, error)
        if queue.sequences.bump_wanted:
            self._accumulator.note_trouble(queue)
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
            self._accumulator.late_answer(batch, written=False)
            return
        self.counters["record_error_total"] += batch.count
        self._accumulator.fail(batch, error, fate_known=fate_known, record_errors=record_errors)

    def _take_new_leader(self, batch: ProducerBatch, answer: ProduceAnswer) -> bool:
        """Use the leader that the error reply names (KIP-951); True when it is news, and no back-off is needed."""
        return self._client.metadata.update_leader(
            batch.topic_partition, answer.leader_id, answer.leader_epoch, answer.leader
        )

    def _split(self, batch: ProducerBatch) -> None:
        """Halve a batch that the broker finds too large, as often as it takes (KIP-126)."""
        accumulator = self._accumulator
        pieces, starts = split_records(batch, accumulator.settings)
        self.counters["batch_split_total"] += 1
        logger.debug("%s: too large a batch is sent as %d smaller ones", batch.topic_partition, len(pieces))
        accumulator.split(batch, pieces, starts, self._world.now())

    # ---------------------------------------------------------------- idempotence

    def _restart_partitions(self) -> None:
        if self._accumulator.queues.take_lost_numbers() and self.identity.known:
            self.identity = self.identity.bumped()
        for queue in self._accumulator.take_restarts():
            numbered_by = queue.sequences.identity
            if numbered_by.producer_id == self.identity.producer_id and numbered_by.epoch >= self.identity.epoch:
                self.identity = self.identity.bumped()
            if not self.identity.known:
                self._accumulator.note_trouble(queue)  # epochs are used up: wait for a new id
                self._want_identity()
                continue
            logger.info("%s: numbering batches anew with %s", queue.topic_partition, self.identity)
            queue.sequences.restart(self.identity)

    def _want_identity(self) -> None:
        if not self._identity_wanted:
            self._identity_wanted = True
            self._start_identity_task()

    async def fetch_identity(self) -> None:
        """Get a producer id, trying until there is one; a task of its own."""
        backoff = self._accumulator.settings.retry_backoff
        failures = 0
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        try:
            while True:
                error: Exception
                try:
                    response = await self._client.send_to_least_loaded(request)
                    if not response.error_code:
                        self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
                        return
                    error = for_code(response.error_code)("the broker gave no producer id")
                    if not error.retriable:
                        raise error
                except UnsupportedVersionError as unsupported:
                    if self._idempotence_required:
                        raise
                    logger.warning("idempotence is off: %s", unsupported)
                    self._accumulator.disable_idempotence()
                    return
                except KafkaError as failure:
                    if not failure.retriable:
                        raise
                    error = failure
                failures += 1
                logger.debug("no producer id yet: %s", error)
                await trio.sleep(backoff.delay(failures, self._world.random.random()))
        except KafkaError as fatal:
            self._on_fatal(fatal)
        finally:
            self._identity_wanted = False
            self.wake()
