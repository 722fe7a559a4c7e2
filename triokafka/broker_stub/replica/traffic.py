"""How much was written and read through the partitions of a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Totals since the start, over all topics.

    ``bytes_in`` and ``records_in`` are what clients appended, ``bytes_out`` what was put into answers for consumers,
    and ``replication_bytes_out`` into those for followers. Requests and failures are counted by partition.
    """

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
    produces: int = 0
    failed_produces: int = 0
    fetches: int = 0
    failed_fetches: int = 0

    def appended(self, size: int, records: int) -> None:
        """A client's batch is in a log."""
        self.produces += 1
        self.bytes_in += size
        self.records_in += records

    def refused(self) -> None:
        """A client's batch was not appended."""
        self.produces += 1
        self.failed_produces += 1

    def answered(self, size: int, *, follower: bool) -> None:
        """Records went into the answer to a fetch."""
        if follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size
