"""ConsumerGroupHeartbeat: a member joins, says what it wants and owns, and is led to what it is to own (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from triokafka.coordinator.consumer_group.advance import Circumstances, Speaker, advance
from triokafka.coordinator.consumer_group.assign import STRATEGIES
from triokafka.coordinator.consumer_group.changes import ConsumerGroupChange
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    MemberProfile,
    Partitions,
    Progress,
    partitions_of,
)
from triokafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_FIRST_OWN_IDS: Final = 1


class Beat(NamedTuple):
    """One heartbeat of a member that stays: what the request says and who sent it."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: frozenset[str] | None
    pattern: str | None
    server_assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str

    @classmethod
    def of(cls, request: ConsumerGroupHeartbeatRequest, *, member_id: str, client_id: str, client_host: str) -> Beat:
        """Read a request that `check` let through; ``member_id`` is its own, or the one made for it."""
        names, owned = request.subscribed_topic_names, request.topic_partitions
        return cls(
            member_id=member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=None if names is None else frozenset(names),
            pattern=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=None if owned is None else partitions_of((one.topic_id, one.partitions) for one in owned),
            client_id=client_id,
            client_host=client_host,
        )

    @property
    def is_joining(self) -> bool:
        """Whether the member begins, with nothing."""
        return self.member_epoch == JOINING

    @property
    def says_everything(self) -> bool:
        """Whether nothing is left out, as in the first heartbeat and in those after a failure: then the answer leaves
        nothing out either."""
        return self.is_joining or (
            self.rebalance_timeout_ms >= 0
            and (self.topic_names is not None or self.pattern is not None)
            and self.owned is not None
        )


class Outcome(NamedTuple):
    """What a heartbeat leads to: the changes to write, and the member as it is once they are written."""

    changes: list[ConsumerGroupChange]
    profile: MemberProfile
    progress: Progress
    tells_assignment: bool
    """Whether the answer says what the member owns."""


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str] = tuple(STRATEGIES)) -> None:
    """Refuse a request that is wrong by itself; ``assignors`` are those that the broker offers.

    Raises:
        InvalidRequestError: a field is missing, empty or out of range.
        UnsupportedAssignorError: there is no such assignor.
    """
    for name in ("group_id", "instance_id", "rack_id"):
        text = getattr(request, name)
        if text is not None and not text.strip():
            raise InvalidRequestError(f"the {name} is empty")
    epoch = request.member_epoch
    if not request.member_id.strip() and (request.member_id or epoch != JOINING or version >= _FIRST_OWN_IDS):
        raise InvalidRequestError("the member_id is empty")
    if epoch < LEAVING_FOR_NOW:
        raise InvalidRequestError(f"{epoch} is no epoch of a member")
    if epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise InvalidRequestError("a member that leaves for now must have an instance_id")
    if epoch == JOINING:
        if request.rebalance_timeout_ms < 0:
            raise InvalidRequestError("the first heartbeat must have a rebalance_timeout_ms")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("a member that joins owns no partitions: topic_partitions must be empty")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError(
                "the first heartbeat must say what it subscribes to, in subscribed_topic_names or _regex"
            )
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise UnsupportedAssignorError(f"there is no assignor {assignor!r}; there are {', '.join(assignors)}")


def leaves(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it is the last heartbeat of a member, for good or for now."""
    return request.member_epoch in (LEAVING, LEAVING_FOR_NOW)


def heartbeat(group: ConsumerGroup, beat: Beat, at: Circumstances) -> Outcome:
    """Decide what follows from a heartbeat.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, FencedMemberEpochError: it is not this member's turn to speak: it
            must give up everything and join anew.
        UnreleasedInstanceIdError: another process has this instance, and has not left.
        GroupMaxSizeReachedError: there is no room for one more.
        InvalidRegularExpressionError: see `look_up`.
    """
    speaker = Speaker.of(group, beat.member_id, _known_as(group, beat, at.max_size))
    if speaker.known_as == beat.member_id and beat.is_joining and speaker.progress.previous_epoch != JOINING:
        speaker = speaker.anew()
    profile = _updated(speaker.profile, beat)
    step = advance(group, beat.member_id, speaker, profile, beat.owned, at)
    tells = beat.says_everything or step.progress.assigned_partitions != speaker.progress.assigned_partitions
    return Outcome(step.changes, profile, step.progress, tells)


def _known_as(group: ConsumerGroup, beat: Beat, max_size: int) -> str | None:
    """The member id under which the group knows the speaker; None for a new member."""
    if beat.instance_id is None:
        if beat.member_id in group.profiles:
            if not beat.is_joining:
                _check_epoch(group, beat)
            return beat.member_id
        known = None
    else:
        known = group.static_members.get(beat.instance_id)
        if known is not None and not beat.is_joining:
            if known != beat.member_id:
                raise FencedInstanceIdError(
                    f"instance {beat.instance_id!r} is now member {known}, not {beat.member_id}"
                )
            _check_epoch(group, beat)
            return known
        if known is not None:
            releases = group.is_away(known) or group.profiles[known].classic is not None
            if known != beat.member_id and not releases:
                raise UnreleasedInstanceIdError(f"instance {beat.instance_id!r} is member {known}, which has not left")
            return known
    if not beat.is_joining:
        named = beat.member_id if beat.instance_id is None else f"instance {beat.instance_id!r}"
        raise UnknownMemberIdError(f"group {group.group_id!r} has no member {named}")
    if len(group.profiles) >= max_size:
        raise GroupMaxSizeReachedError(
            f"group {group.group_id!r} has {max_size} members, which is the most it may have"
        )
    return None


def _check_epoch(group: ConsumerGroup, beat: Beat) -> None:
    progress = group.progress_of(beat.member_id)
    if beat.member_epoch == progress.epoch:
        return
    if beat.member_epoch == progress.previous_epoch < progress.epoch and beat.owned is not None:
        # The answer with its new epoch was lost; but it must not use what it had to give up since.
        assigned = progress.assigned_partitions
        if all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in beat.owned.items()):
            return
    raise FencedMemberEpochError(
        f"member {beat.member_id} is in epoch {progress.epoch}, the request of {beat.member_epoch};"
        " it must give up its partitions and join anew"
    )


def _updated(before: MemberProfile | None, beat: Beat) -> MemberProfile:
    profile = before or MemberProfile()
    return profile._replace(
        instance_id=_newer(beat.instance_id, profile.instance_id),
        rack_id=_newer(beat.rack_id, profile.rack_id),
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=profile.topic_names if beat.topic_names is None else beat.topic_names,
        pattern=profile.pattern if beat.pattern is None else beat.pattern,
        rebalance_timeout_ms=beat.rebalance_timeout_ms
        if beat.rebalance_timeout_ms >= 0
        else profile.rebalance_timeout_ms,
        server_assignor=_newer(beat.server_assignor, profile.server_assignor),
        classic=None,
    )


def _newer(said: str | None, known: str | None) -> str | None:
    return known if said is None else said
