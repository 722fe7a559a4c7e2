"""The polls of one reader, compared with the final log: a pure checker for anomalies of Jepsen's checker for Kafka.

The reader has assigned partitions, begins at their first record, never seeks, and reads committed records. Every
record of a run has a unique value. The checker finds:

- *poll-skip*: the reader passed an offset without its record, which is in the final log;
- *nonmonotonic-poll*: an offset is not above the one that the reader received before;
- *duplicate*: the reader received one value at two offsets;
- *inconsistent-offsets*: the final log has another value at an offset that was read, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from triokafka.structs import TopicPartition

Entry = tuple[int, bytes | None]
Poll = Mapping[TopicPartition, Sequence[Entry]]
"""The offset and value of each record that one poll returned."""

Place = tuple[TopicPartition, int]
_MOST_REPORTED: Final = 20


class ReaderHistory:
    """The polls of one reader, in order."""

    def __init__(self) -> None:
        self.polls: list[Poll] = []

    def anomalies(self, log: Poll, acknowledged: Collection[Place] = ()) -> list[str]:
        """Return what is wrong, one line per anomaly.

        ``log`` is the final log of each partition; ``acknowledged`` are the places of acknowledged records, which a
        line about a skipped record names.
        """
        found: list[str] = []
        for partition, entries in log.items():
            read = [(number, entry) for number, poll in enumerate(self.polls) for entry in poll.get(partition, ())]
            found += _out_of_order(partition, read, [offset for offset, _ in entries], acknowledged)
            found += _wrong_values(partition, read, dict(entries))
        return found

    def check(self, log: Poll, acknowledged: Collection[Place] = ()) -> None:
        """Raise AssertionError on any anomaly."""
        found = self.anomalies(log, acknowledged)
        assert not found, "\n".join([f"{len(found)} anomalies of the reader:", *found[:_MOST_REPORTED]])


def _out_of_order(
    partition: TopicPartition,
    read: Sequence[tuple[int, Entry]],
    offsets: Sequence[int],
    acknowledged: Collection[Place],
) -> list[str]:
    """Return the polls that go backwards or skip one of the log's ``offsets``."""
    found = []
    last = -1
    for number, (offset, _) in read:
        if offset <= last:
            found.append(f"nonmonotonic-poll: poll {number} returned {partition} at {offset} after {last}")
        for skipped in offsets:
            if last < skipped < offset:
                kind = "acknowledged" if (partition, skipped) in acknowledged else "committed"
                found.append(f"poll-skip: poll {number} passed the {kind} record of {partition} at {skipped}")
        last = offset
    return found


def _wrong_values(
    partition: TopicPartition, read: Sequence[tuple[int, Entry]], log: Mapping[int, bytes | None]
) -> list[str]:
    """Return the values that were read twice, and those that the final log does not have at their offsets."""
    found = []
    places: dict[bytes | None, int] = {}
    for number, (offset, value) in read:
        if (first := places.setdefault(value, offset)) != offset:
            found.append(f"duplicate: poll {number} returned {value!r} of {partition} at {offset}, before at {first}")
        if offset not in log or log[offset] != value:
            final = repr(log[offset]) if offset in log else "nothing"
            found.append(
                f"inconsistent-offsets: poll {number} returned {value!r} of {partition} at {offset}; "
                f"the final log has {final}"
            )
    return found
