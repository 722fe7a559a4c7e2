"""A producer's counters: names and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COUNTERS: Final[Mapping[str, str]] = {
    "record_send_total": "Records that a broker acknowledged; with acks=0, that were written to a connection.",
    "record_error_total": "Records that were given up, for whatever reason.",
    "record_expired_total": "Those of them whose delivery_timeout_ms was over.",
    "record_retry_total": "Records in batches that were sent again, once per repetition.",
    "batch_total": "Batches that were sent, each counted once.",
    "batch_retry_total": "Attempts to send a batch that failed, and after which it was queued again.",
    "batch_split_total": "Batches that a broker found too large, and that went on as smaller ones.",
    "batch_error_total": "Batches that were given up.",
    "duplicate_batch_total": "Repeated batches that the broker had already, and forgot where (DUPLICATE_SEQUENCE).",
    "byte_total": "Bytes of batches in requests, repetitions included.",
    "record_byte_total": "Bytes of batches before compression, each counted once.",
    "compressed_byte_total": "Bytes of batches after compression, each counted once.",
    "queue_seconds_total": "Seconds that batches waited from their beginning to their first request, summed up.",
    "queue_seconds_max": "The longest such wait.",
    "request_total": "Produce requests handed to a connection.",
    "request_error_total": "Those of them that ended without an answer.",
    "request_seconds_total": "Seconds from handing over a request to its end, summed up.",
    "request_seconds_max": "The longest such time.",
    "requests_in_flight": "Produce requests that have not ended yet.",
    "throttle_seconds_total": "Seconds that brokers asked to wait because of quotas, summed up.",
    "throttle_seconds_max": "The longest such wait.",
    "epoch_bump_total": "How often batches had to be numbered anew under a new epoch.",
    "producer_id_total": "Producer ids received.",
}
"""Totals since the start by their names; ``_max`` are the greatest so far, and ``requests_in_flight`` goes down too."""


def new_counters() -> dict[str, float]:
    """All counters at 0."""
    return dict.fromkeys(COUNTERS, 0)
