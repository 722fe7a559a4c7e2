"""Committed offsets of one shard: the newest value of each, and the committed value that readers see.

Only replay changes them. Validation, expiry and responses are elsewhere in this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from triokafka.coordinator.group.records import CommittedOffset, OffsetKey
from triokafka.coordinator.offsets.pending import PendingOffsets
from triokafka.coordinator.runtime.journal import Journal

_EMPTY: Mapping[str, Mapping[int, CommittedOffset]] = {}


class OffsetStore:
    """Offsets by group, topic and partition. ``pending`` holds the offsets of open transactions."""

    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._journal: Journal[OffsetKey, CommittedOffset] = Journal(lambda key: key.group_id)

    def replay(self, key: OffsetKey, value: CommittedOffset | None, offset: int, *, committed: bool) -> None:
        """Apply the record at ``offset``; ``committed`` when the high watermark is already past it."""
        if self.pending:
            if value is None:
                self.pending.forget(key)
            else:
                self.pending.overtaken(key, offset)
        self._put(key, value, offset, committed=committed)

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> list[str]:
        """Apply a transaction's marker at ``offset``: store its pending offsets, or drop them when it aborts.

        Of several commits of one offset, the one that was written last wins, whichever transaction ends last. Returns
        the groups that had pending offsets.
        """
        ended = self.pending.end(producer_id)
        for key, (record_offset, value) in ended if commits else ():
            if value is None:
                continue
            self.pending.overtaken(key, record_offset)
            self._put(key, value, offset, committed=committed)
        return list({key.group_id: None for key, _ in ended})

    def commit(self, high_watermark: int) -> None:
        """Make everything below ``high_watermark`` visible to readers."""
        self._journal.commit(high_watermark)

    def groups(self) -> Iterable[str]:
        """Return the groups with offsets in the newest state, pending ones included."""
        return {**self._groups, **dict.fromkeys(self.pending.groups())} if self.pending else self._groups.keys()

    def changing_groups(self) -> Iterable[str]:
        """Return the groups with uncommitted changes; the newest state may no longer hold them."""
        return self._journal.owners()

    def has(self, group_id: str) -> bool:
        """Whether the group has offsets in the newest state, pending ones included."""
        return group_id in self._groups or self.has_pending(group_id)

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of the group."""
        return bool(self.pending) and self.pending.has_group(group_id)

    def newest(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Iterate over a group's offsets in the newest state. Operations that write must use this state."""
        for topic, partitions in self._groups.get(group_id, _EMPTY).items():
            for partition, value in partitions.items():
                yield OffsetKey(group_id, topic, partition), value

    def newest_partitions(self, group_id: str, topic: str) -> Mapping[int, CommittedOffset]:
        """Return a group's offsets on one topic, in the newest state."""
        return self._groups.get(group_id, _EMPTY).get(topic, {})

    def newest_one(self, key: OffsetKey) -> CommittedOffset | None:
        """Return the newest value of one offset."""
        return self._groups.get(key.group_id, _EMPTY).get(key.topic, {}).get(key.partition)

    def newest_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return a group's offsets by topic and partition, in the newest state."""
        return self._groups.get(group_id, _EMPTY)

    def removable(self, group_id: str) -> Iterator[OffsetKey]:
        """Iterate over the keys that the removal of a group needs tombstones for: newest values and pending ones."""
        for key, _ in self.newest(group_id):
            yield key
        if self.pending:
            for key in self.pending.of_group(group_id):
                if self.newest_one(key) is None:
                    yield key

    def read(self, key: OffsetKey) -> CommittedOffset | None:
        """Return the committed value of one offset."""
        return self._journal.committed(key, self.newest_one(key))

    def read_group(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """Return a group's committed offsets by topic and partition."""
        result = {topic: dict(partitions) for topic, partitions in self._groups.get(group_id, _EMPTY).items()}
        for key in self._journal.keys_of(group_id):
            value = self.read(key)
            if value is not None:
                result.setdefault(key.topic, {})[key.partition] = value
            else:
                result.get(key.topic, {}).pop(key.partition, None)
        return {topic: partitions for topic, partitions in result.items() if partitions}

    def read_has(self, group_id: str) -> bool:
        """Whether the group has committed offsets."""
        if self._journal.keys_of(group_id):
            return bool(self.read_group(group_id))
        return group_id in self._groups

    def _put(self, key: OffsetKey, value: CommittedOffset | None, offset: int, *, committed: bool) -> None:
        if committed:
            previous = None
        else:
            previous = self._groups.get(key.group_id, _EMPTY).get(key.topic, {}).get(key.partition)
            self._journal.note(offset, key, previous)
        if value is not None:
            group_id, topic, partition = key
            try:
                self._groups[group_id][topic][partition] = value
            except KeyError:
                self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value
            return
        topics = self._groups.get(key.group_id)
        partitions = topics.get(key.topic) if topics is not None else None
        if topics is None or partitions is None:
            return
        partitions.pop(key.partition, None)
        if not partitions:
            del topics[key.topic]
            if not topics:
                del self._groups[key.group_id]

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())
