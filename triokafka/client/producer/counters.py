"""A producer's counters: names and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COUNTERS: Final[Mapping[str, str]] = {
    "record_send_total": "Records that a broker acknowledged; with acks=0, records written to a connection.",
    "record_error_total": "Records that failed, for any reason.",
    "record_expired_total": "Records that failed because delivery_timeout_ms was over.",
    "record_retry_total": "Records in retried batches, counted once per retry.",
    "batch_total": "Batches that were sent, each counted once.",
    "batch_retry_total": "Failed attempts to send a batch after which the batch was queued again.",
    "batch_split_total": "Batches that a broker found too large and the producer split.",
    "batch_error_total": "Batches that failed.",
    "duplicate_batch_total": "Retried batches that the broker already had, at an offset it no longer knew"
    " (DUPLICATE_SEQUENCE).",
    "byte_total": "Bytes of batches in requests, retries included.",
    "record_byte_total": "Bytes of batches before compression, each counted once.",
    "compressed_byte_total": "Bytes of batches after compression, each counted once.",
    "queue_seconds_total": "Seconds from the creation of a batch to its first request, summed over batches.",
    "queue_seconds_max": "Longest time from the creation of a batch to its first request, in seconds.",
    "request_total": "Produce requests handed to a connection.",
    "request_error_total": "Produce requests that ended without an answer.",
    "request_seconds_total": "Seconds from sending a Produce request to its end, summed over requests.",
    "request_seconds_max": "Longest time from sending a Produce request to its end, in seconds.",
    "requests_in_flight": "Produce requests that have not ended yet.",
    "throttle_seconds_total": "Throttle time of brokers because of quotas, in seconds, summed over answers.",
    "throttle_seconds_max": "Longest throttle time of an answer, in seconds.",
    "epoch_bump_total": "How often the producer began a new epoch and renumbered batches.",
    "producer_id_total": "Producer ids received.",
}
"""Name and meaning of every counter: totals since the start, except ``_max`` (maximum) and ``requests_in_flight``."""


def new_counters() -> dict[str, float]:
    """Return all counters at 0."""
    return dict.fromkeys(COUNTERS, 0)
