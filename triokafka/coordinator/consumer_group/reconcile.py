"""How one member gets from what it owns to what it is to own, without two members ever owning one partition.

A pure function: it is asked at every heartbeat. First the member is told to give up what is no longer its own, and
stays in its epoch until it says that it did; then it enters the epoch of the target and gets what is free of it; what
others still hold it gets as they let go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from triokafka.coordinator.consumer_group.member import MemberState, Partitions, Progress
from triokafka.errors import FencedMemberEpochError

IsHeld = Callable[[UUID, int], bool]
"""Whether any member owns a partition or has still to give it up."""


def reconcile(
    progress: Progress, *, target_epoch: int, target: Partitions, owned: Partitions | None, is_held: IsHeld
) -> Progress:
    """The next step of a member, or ``progress`` itself when there is nothing to do or to wait for.

    Args:
        progress: where the member is.
        target_epoch: the epoch that ``target`` was computed for.
        target: what the member is to own in the end.
        owned: what the member says that it owns; None when it did not say.

    Raises:
        FencedMemberEpochError: a newer coordinator left the member in a state that this one does not know.
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
        raise FencedMemberEpochError("the member is in a state that this coordinator does not know; it must join anew")
    return _next(progress, target_epoch, target_epoch, target, owned, is_held)


def _next(
    progress: Progress, epoch: int, target_epoch: int, target: Partitions, owned: Partitions | None, is_held: IsHeld
) -> Progress:
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
    """What of the assigned partitions is to stay, and what is to go."""
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, numbers in assigned.items():
        wanted = target.get(topic_id, frozenset())
        for number, since in numbers.items():
            (kept if number in wanted else revoking).setdefault(topic_id, {})[number] = since
    return kept, revoking


def _still_owns(owned: Partitions | None, revoking: Mapping[UUID, Mapping[int, int]]) -> bool:
    """Whether the member may still use any of these; one that does not say what it owns may."""
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(numbers) for topic_id, numbers in revoking.items())


def _moved(
    progress: Progress,
    epoch: int,
    state: MemberState,
    assigned: Mapping[UUID, Mapping[int, int]],
    revoking: Mapping[UUID, Mapping[int, int]],
) -> Progress:
    # Asked again with the same epoch, it must still be told from a repeat of the epoch before that.
    previous = progress.epoch if epoch != progress.epoch else progress.previous_epoch
    return Progress(epoch, previous, state, assigned, revoking)
