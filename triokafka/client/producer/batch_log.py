"""What happened to a producer's batches since its metrics last looked."""

from __future__ import annotations


class BatchLog:
    """Lists that the sender fills and the metrics empty.

    ``sent`` has, for each batch at its first request: topic, records, bytes before and after compression, and seconds
    since its creation. ``retried`` and ``failed`` have topic and records of a batch. ``request_seconds`` has, for each
    Produce request that ended, the seconds since it was sent.
    """

    __slots__ = ("failed", "request_seconds", "retried", "sent")

    def __init__(self) -> None:
        self.request_seconds: list[float] = []
        self.sent: list[tuple[str, int, int, int, float]] = []
        self.retried: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []
