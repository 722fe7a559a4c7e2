"""Reconciliation of one member: from the partitions that it owns to its target, with one owner per partition at a time.

A pure function, called on every heartbeat. The member first revokes the partitions that are not in its target, and
stays in its epoch until it reports that it did. Then it enters the target's epoch and receives the free partitions of
its target; it receives the others as their holders release them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from triokafka.coordinator.consumer_group.member import MemberProgress, MemberState, Partitions
from triokafka.errors import FencedMemberEpochError

IsHeld = Callable[[UUID, int], bool]
"""Whether a member owns the partition or has not finished revoking it."""


def reconcile(
    progress: MemberProgress, *, target_epoch: int, target: Partitions, owned: Partitions | None, is_held: IsHeld
) -> MemberProgress:
    """Return the member's next state, or ``progress`` itself when there is nothing to change.

    Args:
        progress: the member's state.
        target_epoch: the epoch of ``target``.
        target: the member's target partitions.
        owned: the partitions that the member reports as owned; None when the request does not report them.
        is_held: whether another member holds a partition.

    Raises:
        FencedMemberEpochError: the member is in a state that this broker does not know; a newer coordinator stored it.
    """
    if progress.state is MemberState.STABLE:
        if progress.epoch == target_epoch:
            return progress
        return _next(progress, progress.epoch, target_epoch, target, owned, is_held)
    if progress.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, progress.revoking):
            return progress
        return _next(progress, progress.epoch + 1, target_epoch, target, owned, is_held)
    if progress.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(progress, progress.epoch, target_epoch, target, owned, is_held)
    if owned is None or owned:
        raise FencedMemberEpochError("the member's stored state is unknown to this coordinator; the member must rejoin")
    return _next(progress, target_epoch, target_epoch, target, owned, is_held)


def _next(
    progress: MemberProgress,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_held: IsHeld,
) -> MemberProgress:
    kept, revoking = _split(progress.assigned, target)
    if revoking and _still_owns(owned, revoking):
        return _moved(progress, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    waits = False
    for topic_id in sorted(target):
        for number in sorted(target[topic_id] - kept.get(topic_id, {}).keys()):
            if is_held(topic_id, number):
                waits = True
            else:
                kept.setdefault(topic_id, {})[number] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(progress, target_epoch, state, kept, {})


def _split(
    assigned: Mapping[UUID, Mapping[int, int]], target: Partitions
) -> tuple[dict[UUID, dict[int, int]], dict[UUID, dict[int, int]]]:
    """Split the assigned partitions into those that stay and those to revoke."""
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, numbers in assigned.items():
        wanted = target.get(topic_id, frozenset())
        for number, since in numbers.items():
            (kept if number in wanted else revoking).setdefault(topic_id, {})[number] = since
    return kept, revoking


def _still_owns(owned: Partitions | None, revoking: Mapping[UUID, Mapping[int, int]]) -> bool:
    """Whether the member may still use any of these partitions; True when it does not report what it owns."""
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(numbers) for topic_id, numbers in revoking.items())


def _moved(
    progress: MemberProgress,
    epoch: int,
    state: MemberState,
    assigned: Mapping[UUID, Mapping[int, int]],
    revoking: Mapping[UUID, Mapping[int, int]],
) -> MemberProgress:
    # Within one epoch the previous epoch stays, so that a heartbeat repeated from it is still recognised.
    previous = progress.epoch if epoch != progress.epoch else progress.previous_epoch
    return MemberProgress(epoch, previous, state, assigned, revoking)
