"""The result of appending to one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class AppendOutcome:
    """One partition's part of a Produce request.

    ``record_errors`` has the rejected records of the batch: index in the batch and reason. ``leader`` is the leader id
    and epoch to report if another broker leads. ``flushing``: with acks=1, the records wait for a
    flush because of ``flush.messages``.
    """

    error_code: int = 0
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    flushing: bool = False
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    leader: tuple[int, int] | None = None

    @property
    def required_offset(self) -> int:
        """The high watermark that commits the records: the offset after the last one."""
        return self.last_offset + 1
