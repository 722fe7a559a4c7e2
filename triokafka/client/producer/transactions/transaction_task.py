"""The task that sends a transaction manager's requests to coordinators, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.backoff import Backoff
from triokafka.client.producer.transactions.completion_pause import CompletionPause, completion_backoff
from triokafka.client.producer.transactions.coordinator_call import CallOutcome, CoordinatorCall
from triokafka.errors import KafkaError, ProtocolError, UnencodableValueError
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.end_txn import EndTxnRequest

logger = logging.getLogger(__name__)

_CONNECTION: Final = "transactions"
"""A connection of its own: the coordinator's broker may also receive long Produce requests."""


class TransactionTask:
    """Sends calls until cancelled.

    ``next_call`` returns the next call, None when there is none until `wake`. ``on_answer`` is called after every
    answer and at the end of each ``pause``, ``on_fatal`` with an error that no retry resolves.
    """

    def __init__(
        self,
        client: NetworkClient,
        backoff: Backoff,
        next_call: Callable[[], CoordinatorCall | None],
        on_answer: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        *,
        pause: CompletionPause,
    ) -> None:
        self._client = client
        self._backoff = backoff
        self._next_call = next_call
        self._on_answer = on_answer
        self._on_fatal = on_fatal
        self._pause = pause
        self._woken = trio.Event()
        self.last_error: KafkaError | None = None

    def wake(self) -> None:
        """Ask for the next call."""
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled."""
        world, pause = self._client.world, self._pause
        soon = completion_backoff(self._backoff)
        failures = refusals = 0
        while True:
            self._woken = trio.Event()
            call = self._next_call()
            if call is None:
                await self._woken.wait()
                continue
            began = world.now()
            outcome = await self._send(call)
            now = world.now()
            if outcome is CallOutcome.RETRY_SOON:
                refusals += 1
                pause.refused(began)
                self._on_answer()
                await trio.sleep(soon.delay(refusals, world.random.random()))
                continue
            if outcome is CallOutcome.DONE:
                failures = refusals = 0
                self.last_error = None
                if isinstance(call.request, EndTxnRequest):
                    pause.transaction_ended(now, now - began)
                    self._on_answer()
                    await trio.sleep(max(0.0, pause.remaining(now)))
                else:
                    pause.accepted(began)
                self._on_answer()
                continue
            self._on_answer()
            if outcome is CallOutcome.FIND_AGAIN:
                self._client.forget_coordinator(call.key, call.key_type)
            failures += 1
            await trio.sleep(self._backoff.delay(failures, world.random.random()))

    async def _send(self, call: CoordinatorCall) -> CallOutcome:
        client = self._client
        try:
            node = await client.find_coordinator(call.key, call.key_type)
            response = await client.send(
                node.node_id,
                call.request,
                min_version=call.min_version,
                max_version=call.max_version,
                purpose=_CONNECTION,
            )
        except KafkaError as error:
            self.last_error = error
            is_answer = isinstance(error, ProtocolError) and not isinstance(error, UnencodableValueError)
            if error.retriable or is_answer:
                logger.debug("%s for %r failed; retrying: %s", call.name, call.key, error)
                return CallOutcome.FIND_AGAIN
            self._on_fatal(error)
            return CallOutcome.DONE
        return call.answered(response)
