"""What happened to a producer's batches since its metrics last looked."""

from __future__ import annotations


class BatchLog:
    """Lists that the sender fills and the metrics empty.

    ``sent`` has, for each batch at its first request: topic, records, bytes before and after compression, and seconds
    since its creation. ``retried`` and ``failed`` have topic and records of a batch.
    """

    __slots__ = ("failed", "retried", "sent")

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, int, int, float]] = []
        self.retried: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []
