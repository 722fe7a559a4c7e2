"""Coordinators with one defect each, to show that the checks find it; for the argument ``mutate`` of `scenario`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import trio

from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group import sync as syncs
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.consumer_group import reconcile
from triokafka.coordinator.group import group_shard as shards
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import OffsetChange
from triokafka.coordinator.offsets import commit
from triokafka.coordinator.offsets.store import OffsetStore
from triokafka.errors import CoordinatorLoadInProgressError
from triokafka.protocol.api.offset_commit import OffsetCommitResponse

Defect = Callable[[Broker], None]
"""A change of every broker before it starts."""


def nothing(broker: Broker) -> None:
    """No change of this broker: the defect is in the code."""


def answers_commits_before_they_are_appended(broker: Broker) -> None:
    """Store positions a moment after the acknowledgement."""
    runtime = broker.group_coordinator.runtime
    carry_out = runtime._carry_out

    def later(context: Any, effects: Any, **options: Any) -> None:
        if not any(isinstance(answer, OffsetCommitResponse) for _, answer in effects.answers):
            carry_out(context, effects, **options)
            return
        runtime._give(effects)
        nursery = broker.tasks._nursery
        assert nursery is not None
        nursery.start_soon(append, context, effects, options)

    async def append(context: Any, effects: Any, options: dict[str, Any]) -> None:
        await trio.sleep(0.1)
        carry_out(context, effects, **options)

    runtime._carry_out = later  # type: ignore[method-assign]


def joins_at_load_are_never_answered(broker: Broker) -> None:
    """Park a join that arrives while the shard loads, and never answer it."""
    shards = broker.group_coordinator._shards
    write = shards.ask

    async def parked(group_id: str, operation: Any, reply: Any) -> Any:
        try:
            return await write(group_id, operation, reply)
        except CoordinatorLoadInProgressError:
            if "join" not in operation.func.__name__:
                raise
            await trio.sleep_forever()

    shards.ask = parked  # type: ignore[method-assign]


@contextmanager
def _forgets_offsets() -> Iterator[None]:
    """Do not load committed positions."""
    replay = GroupShard.replay

    def forgetful(self: GroupShard, change: Any, offset: int, *, committed: bool) -> None:
        if self._loading is None or not isinstance(change, OffsetChange) or change.key.partition:
            replay(self, change, offset, committed=committed)

    with patch.object(GroupShard, "replay", forgetful):
        yield


@contextmanager
def _forgets_generations() -> Iterator[None]:
    """Start a loaded group with its first generation."""
    restore = shards.restore_group  # type: ignore[attr-defined]

    def forgetful(group_id: str, value: Any) -> ClassicGroup:
        group = restore(group_id, value)
        group.generation = 0
        return group

    with patch.object(shards, "restore_group", forgetful):
        yield


@contextmanager
def _forgets_members() -> Iterator[None]:
    """Give loaded members no session: members that died with the coordinator stay forever."""
    loaded = GroupShard.loaded

    def careless(self: GroupShard, effects: Any) -> None:
        loaded(self, effects)
        for group in self.groups.values():
            for member_id in group.members:
                effects.timers.cancel(rebalance.session_timer(group, member_id))

    with patch.object(GroupShard, "loaded", careless):
        yield


@contextmanager
def _shares_in_classic_groups() -> Iterator[None]:
    """Assign one partition to two members."""
    store = syncs._store

    def generous(group: Any, request: Any, *rest: Any) -> None:
        if len(request.assignments) > 1:
            request.assignments[1].assignment = request.assignments[0].assignment
        store(group, request, *rest)

    with patch.object(syncs, "_store", generous):
        yield


@contextmanager
def _shares_in_consumer_groups() -> Iterator[None]:
    """Assign a partition before the previous owner has revoked it."""
    step = reconcile._next

    def hasty(*given: Any) -> Any:
        return step(*given[:-1], lambda topic_id, number: False)  # type: ignore[call-arg]

    with patch.object(reconcile, "_next", hasty):
        yield


@contextmanager
def _takes_stale_commits() -> Iterator[None]:
    """Accept commits of members with an older generation."""
    with patch.object(commit, "check_classic_member", lambda *_, **__: None):
        yield


@contextmanager
def _does_not_wait_for_the_disk() -> Iterator[None]:
    """With ``flush.messages=1``, respond before the sync."""
    hasty = property(lambda log: log.log_end_offset, lambda log, offset: None)
    with patch.object(PartitionLog, "settled_offset", hasty, create=True):
        yield


@contextmanager
def _loses_every_other_overwrite() -> Iterator[None]:
    """Keep the first commit of a position when a partition loads."""
    replay = OffsetStore.replay

    def first_wins(self: OffsetStore, key: Any, value: Any, offset: int, *, committed: bool) -> None:
        if committed and value is not None and key.partition in self.newest_partitions(key.group_id, key.topic):
            return
        replay(self, key, value, offset, committed=committed)

    with patch.object(OffsetStore, "replay", first_wins):
        yield


IN_BROKERS: dict[str, Defect] = {
    "answers commits before they are appended": answers_commits_before_they_are_appended,
    "joins at load are never answered": joins_at_load_are_never_answered,
}
IN_CODE = {
    "forgets offsets when it loads": _forgets_offsets,
    "forgets generations when it loads": _forgets_generations,
    "gives loaded members no session": _forgets_members,
    "gives two classic members one partition": _shares_in_classic_groups,
    "gives a partition away before it is free": _shares_in_consumer_groups,
    "takes commits of older generations": _takes_stale_commits,
    "does not wait for the disk": _does_not_wait_for_the_disk,
    "keeps the oldest of several commits": _loses_every_other_overwrite,
}
DEFECTS = (*IN_BROKERS, *IN_CODE)


@contextmanager
def planted(name: str) -> Iterator[Defect]:
    """Plant a defect; return the change to apply to every broker."""
    if name in IN_BROKERS:
        yield IN_BROKERS[name]
        return
    with IN_CODE[name]():
        yield nothing
