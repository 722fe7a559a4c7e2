"""The task that sends a transaction manager's requests to coordinators, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.backoff import Backoff
from triokafka.client.producer.transactions.completion_check import CompletionCheck, completion_backoff
from triokafka.client.producer.transactions.coordinator_call import CallOutcome, CoordinatorCall
from triokafka.errors import KafkaError, ProtocolError, UnencodableValueError
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.describe_transactions import DescribeTransactionsRequest
from triokafka.protocol.api.end_txn import EndTxnRequest

logger = logging.getLogger(__name__)

_CONNECTION: Final = "transactions"
"""A connection of its own: the coordinator's broker may also receive long Produce requests."""
_COMPLETING: Final = "Prepare"
"""The names of the states in which a coordinator completes a transaction begin with this."""
_PROMPT_CHECKS: Final = 5
"""The checks that follow each other without a wait."""
_LONGEST_CHECK: Final = 0.05
"""The seconds after which the next request is sent without knowing that the transaction is complete."""


class TransactionTask:
    """Sends calls until cancelled.

    ``next_call`` returns the next call, None when there is none until `wake`. ``on_answer`` is called after every
    answer and at the end of each check of ``completion``, ``on_fatal`` with an error that no retry resolves.
    """

    def __init__(
        self,
        client: NetworkClient,
        backoff: Backoff,
        next_call: Callable[[], CoordinatorCall | None],
        on_answer: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        *,
        completion: CompletionCheck,
    ) -> None:
        self._client = client
        self._backoff = backoff
        self._next_call = next_call
        self._on_answer = on_answer
        self._on_fatal = on_fatal
        self._completion = completion
        self._completion_backoff = completion_backoff(backoff)
        self._woken = trio.Event()
        self.last_error: KafkaError | None = None

    def wake(self) -> None:
        """Ask for the next call."""
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled."""
        world, completion = self._client.world, self._completion
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
                completion.refused(began)
                self._on_answer()
                await trio.sleep(self._completion_backoff.delay(refusals, world.random.random()))
                continue
            if outcome is CallOutcome.DONE:
                failures = refusals = 0
                self.last_error = None
                if isinstance(call.request, EndTxnRequest):
                    completion.transaction_ended(now, now - began)
                    if completion.pending:
                        self._on_answer()
                        await self._check_completion(call)
                else:
                    completion.accepted()
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

    async def _check_completion(self, ended: CoordinatorCall) -> None:
        """Ask the coordinator until it has completed the transaction."""
        random = self._client.world.random
        checks = 0
        with trio.move_on_after(_LONGEST_CHECK):
            while await self._is_completing(ended):
                checks += 1
                if checks >= _PROMPT_CHECKS:
                    wait = self._completion_backoff.delay(checks - _PROMPT_CHECKS + 1, random.random())
                    await trio.sleep(wait)
        self._completion.finished(in_vain=not checks)

    async def _is_completing(self, ended: CoordinatorCall) -> bool:
        """Whether the coordinator says that it has not written all markers; False also if it says nothing."""
        client = self._client
        request = DescribeTransactionsRequest(transactional_ids=[ended.key])
        try:
            node = await client.find_coordinator(ended.key, ended.key_type)
            response = await client.send(node.node_id, request, purpose=_CONNECTION)
        except KafkaError as error:
            logger.debug("%s: its coordinator does not describe the transaction: %s", ended.key, error)
            return False
        return any(state.transaction_state.startswith(_COMPLETING) for state in response.transaction_states)
