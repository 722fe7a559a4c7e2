"""The identity of an idempotent producer: its producer id from InitProducerId, and the bumps of its epoch (KIP-360).

The sequence numbers of each partition are in `sequences`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.errors import KafkaError, ProtocolError, UnsupportedVersionError, for_code
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.world import World

logger = logging.getLogger(__name__)

_TRANSACTION_TIMEOUT_MS: Final = 60_000  # unused without a transactional id, but brokers check it


class Idempotence:
    """Holds the producer's ``identity``: producer id and epoch.

    ``start_task`` starts `fetch_identity` as a task of the producer, ``wake`` wakes the sender. ``required``: without
    idempotence the producer fails. ``transactional``: a transaction coordinator gives the identity.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        client: NetworkClient,
        *,
        world: World,
        counters: dict[str, float],
        required: bool,
        transactional: bool,
        start_task: Callable[[], None],
        wake: Callable[[], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self.identity = ProducerIdentity()
        self._accumulator = accumulator
        self._batches = accumulator.batches
        self._client = client
        self._world = world
        self._counters = counters
        self._required = required
        self._transactional = transactional
        self._start_task = start_task
        self._wake = wake
        self._on_fatal = on_fatal
        self._identity_wanted = False

    def use(self, identity: ProducerIdentity) -> None:
        """Use the producer id and epoch that the transaction coordinator gave."""
        if identity.producer_id != self.identity.producer_id:
            self._counters["producer_id_total"] += 1
        elif identity != self.identity:
            self._counters["epoch_bump_total"] += 1
        self.identity = identity

    def restart_partitions(self) -> None:
        """Number the batches of disturbed partitions from 0 under a new epoch; call it before batches are drained."""
        if self._transactional:
            return  # a new epoch comes from the coordinator, at the end of a transaction
        lost = self._accumulator.queues.take_lost_numbers()
        if lost and self.identity.known and not self._accumulator.closing:  # then no queue is created again
            self._bump_epoch()
        for queue in self._batches.take_restarts():
            numbered_by = queue.sequences.identity
            if numbered_by.producer_id == self.identity.producer_id and numbered_by.epoch >= self.identity.epoch:
                self._bump_epoch()
            if not self.identity.known:
                self._batches.note_disturbed(queue)  # epochs are used up: wait for a new id
                self.want_identity()
                continue
            logger.info("%s: the sequence restarts with %s", queue.topic_partition, self.identity)
            queue.sequences.restart(self.identity)

    def _bump_epoch(self) -> None:
        self._counters["epoch_bump_total"] += 1
        self.identity = self.identity.bumped()

    def forget_identity(self) -> None:
        """Forget the identity, which no broker accepts any longer; the next batch needs a new one."""
        self.identity = ProducerIdentity()

    def want_identity(self) -> None:
        """Start the task that fetches an identity. A transactional producer gets its own from the coordinator."""
        if not self._transactional and not self._identity_wanted:
            self._identity_wanted = True
            self._start_task()

    async def fetch_identity(self) -> None:
        """Ask brokers for a producer id until one gives it; run as a separate task."""
        backoff = self._batches.settings.retry_backoff
        failures = 0
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        try:
            while True:
                error: Exception
                try:
                    response = await self._client.send_to_least_loaded(request)
                    if not response.error_code and response.producer_id >= 0:
                        self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
                        self._counters["producer_id_total"] += 1
                        return
                    error = for_code(response.error_code)("the broker gave no producer id")
                    if response.error_code and not error.retriable:
                        raise error
                except UnsupportedVersionError as unsupported:
                    if self._required:
                        raise
                    logger.warning(
                        "Producer: idempotence is off, because the broker does not support it: %s", unsupported
                    )
                    self._batches.disable_idempotence()
                    return
                except KafkaError as failure:
                    if not failure.retriable and not isinstance(failure, ProtocolError):
                        raise
                    error = failure  # another broker may give a valid response
                failures += 1
                logger.debug("producer id: the request failed; retrying: %s", error)
                await trio.sleep(backoff.delay(failures, self._world.random.random()))
        except KafkaError as fatal:
            self._on_fatal(fatal)
        finally:
            self._identity_wanted = False
            self._wake()
