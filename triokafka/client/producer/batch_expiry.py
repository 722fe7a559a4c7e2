"""``delivery_timeout_ms``: fails the batches that are not acknowledged in time.

Pure: no I/O, no waiting, time is an argument (seconds on the world's clock).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.errors import KafkaTimeoutError

_NEVER: Final = float("inf")


def take_expired(
    batches: IncompleteBatches, now: float, explain: Callable[[ProducerBatch], str] = lambda batch: ""
) -> list[ProducerBatch]:
    """Fail the batches older than the delivery timeout, queued or on the wire, the oldest first.

    ``explain`` ends the error message of a batch with the reason of the delay.
    """
    timeout = batches.settings.delivery_timeout
    expired: list[ProducerBatch] = []
    for batch in batches.unsettled:
        # Compared as `next_expiry` does, or rounding could make the sender wait for 0 seconds again and again.
        if batch.created_at + timeout > now:
            break
        expired.append(batch)
    # Write all messages first: a batch may be delayed by one that fails here too.
    for batch, error in [(batch, _expiry_error(batch, now, explain(batch))) for batch in expired]:
        if not batch.on_wire:
            batches.unqueue(batch)
        batches.fail(batch, error)
    return expired


def next_expiry(batches: IncompleteBatches, now: float) -> float:
    """Seconds until the oldest batch expires; infinity without one."""
    for batch in batches.unsettled:
        return max(0.0, batch.created_at + batches.settings.delivery_timeout - now)
    return _NEVER


def _expiry_error(batch: ProducerBatch, now: float, why: str) -> KafkaTimeoutError:
    waited = round((now - batch.created_at) * 1000)
    tried = f"after {batch.attempts} attempts" if batch.attempts else "never sent"
    error = KafkaTimeoutError(
        f"{batch.count} records for {batch.topic_partition} were not acknowledged within {waited} ms"
        f" (delivery_timeout_ms), {tried}{why}"
    )
    error.__cause__ = batch.last_error
    return error
