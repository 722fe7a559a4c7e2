"""Final refusals wait until the log has confirmed that this broker still coordinates the transactional id.

A broker that is cut off from the others may not know that another one coordinates its ids now. It then still has the
state before the transaction that a client asks about. Clients give up after a final refusal, so such a refusal must not
rest on old state. It waits for a write, which the replicas accept from the present leader only: a broker that is cut
off answers nothing, and the client asks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.errors import InvalidProducerIdMappingError, InvalidTxnStateError, ProducerFencedError


@contextmanager
def final_refusals(
    shard: TransactionShard, transactional_id: str, reply: Reply[Any], effects: TransactionEffects
) -> Iterator[None]:
    """Fail ``reply`` with a final error of the block once it is confirmed. An unknown id fails at once."""
    try:
        yield
    except (InvalidProducerIdMappingError, InvalidTxnStateError, ProducerFencedError) as error:
        if transactional_id not in shard.transactions:
            raise
        confirm(shard, transactional_id, effects)
        effects.answer_error(reply, error)


def confirm(shard: TransactionShard, transactional_id: str, effects: TransactionEffects) -> None:
    """Let the answers in ``effects`` wait for a record: the state of a known id once more, unless one is on its way."""
    if not effects.records and shard.is_settled(transactional_id):
        shard.write(transactional_id, shard.transactions[transactional_id], effects)
