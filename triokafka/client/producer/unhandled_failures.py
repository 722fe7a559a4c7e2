"""Failures that reached no caller: leaving the producer's block raises them."""

from __future__ import annotations

import logging
from typing import Final

from triokafka.client.producer.batch import ProducerBatch

logger = logging.getLogger(__name__)

_MOST_REMEMBERED: Final = 1_000


class UnhandledFailures:
    """Failed batches up to a bound; beyond it, only one error and the number of records with unobserved failures."""

    def __init__(self) -> None:
        self._batches: list[ProducerBatch] = []
        self._beyond = 0
        self._error_beyond: Exception | None = None

    def note(self, batch: ProducerBatch) -> None:
        """Remember a failed batch; its deliveries may still be awaited later."""
        if not batch.unobserved_failures:
            return  # callbacks got the failures
        if len(self._batches) >= _MOST_REMEMBERED:
            self._batches = [known for known in self._batches if known.unobserved_failures]
        if len(self._batches) < _MOST_REMEMBERED:
            self._batches.append(batch)
            return
        self._beyond += batch.unobserved_failures
        self._error_beyond = batch.error
        batch.notify_observed(self._observed_beyond)

    def _observed_beyond(self) -> None:
        self._beyond -= 1

    def report(self, error: BaseException | None) -> None:
        """Raise the unobserved failures as an `ExceptionGroup`, or add a note to the ``error`` that ends the block."""
        unobserved = [batch for batch in self._batches if batch.unobserved_failures]
        self._batches.clear()
        count = sum(batch.unobserved_failures for batch in unobserved) + self._beyond
        if not count:
            return
        text = f"{count} records were not delivered, and no task awaited their deliveries"
        errors = [batch.error for batch in unobserved if batch.error is not None]
        if self._beyond and self._error_beyond is not None:
            errors.append(self._error_beyond)
        if error is None:
            raise ExceptionGroup(text, errors)
        error.add_note(f"{text}: {errors[0]}")
        logger.error("%s: %s", text, errors[0])
