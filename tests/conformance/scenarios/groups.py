"""Groups: sharing partitions, committing, static members, and what an administrator does with groups."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import ConsumerDriver, NotOffered, Record


def _member(case: Case, topic: str, group: str, **options: object) -> ConsumerDriver:
    consumer = case.client.consumer(group, heartbeat_interval_ms=200, **options)
    consumer.subscribe([topic])
    return consumer


def _spots(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


def _joined(case: Case, topic: str, group: str, partitions: int = 1, **options: object) -> ConsumerDriver:
    consumer = _member(case, topic, group, **options)
    case.together([consumer], lambda shares, records: shares[0] == _spots(topic, partitions))
    return consumer


@scenario
def alone(case: Case) -> None:
    """The only member of a group reads all partitions."""
    topic = case.topic(partitions=3)
    for partition in range(3):
        case.fill(topic, 10, partition=partition)
    consumer = _member(case, topic, case.name())
    assert len(case.take(consumer, 30)) == 30
    assert consumer.assignment() == _spots(topic, 3)


@scenario
def commit_and_resume(case: Case) -> None:
    """Who comes back reads on where the group had committed."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 10)
    consumer = _member(case, topic, group)
    case.take(consumer, 10)
    consumer.commit()
    consumer.close()
    case.fill(topic, 4)
    again = _member(case, topic, group)
    assert [record.offset for record in case.take(again, 4)] == [10, 11, 12, 13]


@scenario
def nothing_committed(case: Case) -> None:
    """Who did not commit reads the same again."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 5)
    consumer = _member(case, topic, group)
    case.take(consumer, 5)
    assert consumer.committed((topic, 0)) is None
    consumer.close()
    assert [record.offset for record in case.take(_member(case, topic, group), 5)] == list(range(5))


@scenario
def auto_commit_on_close(case: Case) -> None:
    """With enable.auto.commit leaving commits what was read."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 8)
    consumer = _member(case, topic, group, enable_auto_commit=True)
    case.take(consumer, 8)
    consumer.poll()
    consumer.close()
    assert case.client.group_offsets(group)[(topic, 0)][0] == 8


@scenario
def auto_commit_by_time(case: Case) -> None:
    """With enable.auto.commit positions are committed every auto.commit.interval.ms."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 8)
    consumer = _member(case, topic, group, enable_auto_commit=True, auto_commit_interval_ms=100)
    case.take(consumer, 8)

    def committed() -> bool:
        consumer.poll()
        return case.client.group_offsets(group).get((topic, 0), (0, ""))[0] == 8

    case.until(committed)


@scenario
def offsets_with_text(case: Case) -> None:
    """An offset is committed with a text beside it, also backwards."""
    topic, group = case.topic(partitions=2), case.name()
    consumer = _joined(case, topic, group, partitions=2)
    consumer.commit({(topic, 0): (42, "a note"), (topic, 1): (7, "")})
    consumer.commit({(topic, 0): (41, "bäck")})
    assert consumer.committed((topic, 0)) == 41
    assert case.client.group_offsets(group) == {(topic, 0): (41, "bäck"), (topic, 1): (7, "")}


@scenario
def commit_without_joining(case: Case) -> None:
    """Who assigns partitions by hand commits for a group nobody has joined."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 5)
    consumer = case.client.consumer(group)
    consumer.assign(topic, {0: 0})
    case.take(consumer, 5)
    consumer.commit({(topic, 0): (3, "")})
    consumer.close()
    again = case.client.consumer(group)
    again.assign(topic, {0: None})
    assert [record.offset for record in case.take(again, 2)] == [3, 4]


def _shared(strategy: str) -> Callable[[Case], None]:
    def steps(case: Case) -> None:
        topic, group = case.topic(partitions=4), case.name()
        for partition in range(4):
            case.fill(topic, 5, partition=partition)
        # A farewell that a moving coordinator refuses is not repeated by every client: then the session decides.
        options = {"partition_assignment_strategy": strategy, "session_timeout_ms": 6_000}
        first = _joined(case, topic, group, partitions=4, **options)
        second = _member(case, topic, group, **options)
        shares: list[set[tuple[str, int]]] = []

        def settled(now: list[set[tuple[str, int]]], _: list[Record]) -> bool:
            shares[:] = now
            return [len(share) for share in now] == [2, 2] and now[0] | now[1] == _spots(topic, 4)

        case.together([first, second], settled)
        assert case.client.describe_group(group).assignor == strategy
        second.close()
        case.together([first], lambda now, records: now[0] == _spots(topic, 4))

    steps.__doc__ = f"Two members share the partitions by {strategy}; when one leaves, the other takes over."
    return steps


for _strategy in ("range", "roundrobin", "sticky", "cooperative-sticky"):
    _steps = _shared(_strategy)
    _steps.__name__ = f"shared_by_{_strategy.replace('-', '_')}"
    scenario(_steps)


@scenario
def more_members_than_partitions(case: Case) -> None:
    """A member too many gets nothing, and takes over when the other leaves."""
    topic, group = case.topic(), case.name()
    first = _joined(case, topic, group)
    second = _member(case, topic, group)

    def both_in(now: list[set[tuple[str, int]]], _: list[Record]) -> bool:
        return len(case.client.describe_group(group).members) == 2 and sorted(map(len, now)) == [0, 1]

    case.together([first, second], both_in)
    owner, other = (first, second) if first.assignment() else (second, first)
    owner.close()
    case.together([other], lambda now, records: now[0] == {(topic, 0)})


@scenario
def most_voted_assignor(case: Case) -> None:
    """Members that name several assignors settle on one that all know."""
    topic, group = case.topic(partitions=2), case.name()
    first = _joined(case, topic, group, partitions=2, partition_assignment_strategy="range,roundrobin")
    second = _member(case, topic, group, partition_assignment_strategy="roundrobin")
    case.together([first, second], lambda now, records: [len(share) for share in now] == [1, 1])
    assert case.client.describe_group(group).assignor == "roundrobin"


@scenario
def no_common_assignor(case: Case) -> None:
    """A member with no assignor in common with the group is refused with INCONSISTENT_GROUP_PROTOCOL (23)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group, partition_assignment_strategy="range")
    stranger = _member(case, topic, group, partition_assignment_strategy="roundrobin")
    assert case.until_refused(stranger).code == 23


@scenario
def session_timeout_too_short(case: Case) -> None:
    """A session timeout below group.min.session.timeout.ms is refused with INVALID_SESSION_TIMEOUT (26)."""
    topic = case.topic()
    member = _member(case, topic, case.name(), session_timeout_ms=700)
    assert case.until_refused(member).code == 26


@scenario
def subscribed_by_pattern(case: Case) -> None:
    """A subscription by pattern takes matching topics and leaves the others."""
    stem = case.name()
    for end in ("a", "b", "other"):
        case.client.create_topic(f"{stem}.{end}")
    case.until(lambda: {f"{stem}.{end}" for end in ("a", "b", "other")} <= case.client.topics())
    consumer = case.client.consumer(case.name(), heartbeat_interval_ms=200, metadata_max_age_ms=500)
    consumer.subscribe_pattern(f"{stem}\\.[ab]")
    case.together([consumer], lambda now, records: now[0] == {(f"{stem}.a", 0), (f"{stem}.b", 0)})


@scenario
def static_member_comes_back(case: Case) -> None:
    """A static member that closes and comes back is the same member, and nobody rebalances (KIP-345)."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group, group_instance_id="one")
    consumer.close()
    assert case.client.describe_group(group).state == "Stable"
    again = _joined(case, topic, group, group_instance_id="one")
    assert len(case.client.describe_group(group).members) == 1
    again.close()


@scenario
def static_member_is_fenced(case: Case) -> None:
    """Of two with the same group.instance.id the older can no longer commit: FENCED_INSTANCE_ID (82)."""
    if case.client.name == "aiokafka":
        raise NotOffered("a consumer of aiokafka that is fenced joins again")
    topic, group = case.topic(), case.name()
    older = _joined(case, topic, group, group_instance_id="one")
    _joined(case, topic, group, group_instance_id="one")
    # Some have heard it from a heartbeat before, and then have their own words.
    assert case.refusal(lambda: older.commit({(topic, 0): (5, "")})) in (82, None)
    assert case.client.group_offsets(group) == {}


@scenario
def static_member_is_removed(case: Case) -> None:
    """An administrator puts a static member out of its group."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group, group_instance_id="one").close()
    case.client.remove_static_member(group, "one")
    assert case.client.describe_group(group).state == "Empty"


@scenario
def listed(case: Case) -> None:
    """Groups are listed, active ones and empty ones."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group)
    assert group in case.client.groups()
    consumer.commit({(topic, 0): (0, "")})
    consumer.close()
    assert group in case.client.groups()


@scenario
def listed_by_state(case: Case) -> None:
    """Groups are listed by state (KIP-518)."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group)
    assert group in case.client.groups(["Stable"])
    assert group not in case.client.groups(["Empty"])
    consumer.commit({(topic, 0): (0, "")})
    consumer.close()
    case.until(lambda: group in case.client.groups(["Empty"]))
    assert group not in case.client.groups(["Stable"])


@scenario
def described(case: Case) -> None:
    """A group is described with its state, assignor, members and what they have."""
    topic, group = case.topic(partitions=2), case.name()
    _joined(case, topic, group, partitions=2, partition_assignment_strategy="range")
    found = case.client.describe_group(group)
    assert (found.state, found.assignor, len(found.members)) == ("Stable", "range", 1)
    (member,) = found.members
    assert member.id.startswith(member.client_id)
    assert member.host == "/127.0.0.1"
    assert member.assignment == _spots(topic, 2)


@scenario
def described_empty(case: Case) -> None:
    """A group that everybody left, but that has committed, is described as Empty."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group)
    consumer.commit({(topic, 0): (0, "")})
    consumer.close()
    case.until(lambda: case.client.describe_group(group).state == "Empty")
    assert case.client.describe_group(group).members == ()


@scenario
def offsets_altered(case: Case) -> None:
    """An administrator moves the offsets of an empty group."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 9)
    case.client.alter_group_offsets(group, {(topic, 0): 6})
    assert case.client.group_offsets(group)[(topic, 0)][0] == 6
    assert [record.offset for record in case.take(_member(case, topic, group), 3)] == [6, 7, 8]


@scenario
def offsets_altered_while_active(case: Case) -> None:
    """The offsets of a group with members are not moved by an administrator: UNKNOWN_MEMBER_ID (25)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group)
    assert case.refusal(lambda: case.client.alter_group_offsets(group, {(topic, 0): 1})) == 25


@scenario
def offsets_deleted(case: Case) -> None:
    """An administrator deletes what a group has committed (KIP-496)."""
    topic, group = case.topic(partitions=2), case.name()
    case.client.alter_group_offsets(group, {(topic, 0): 1, (topic, 1): 2})
    case.client.delete_group_offsets(group, [(topic, 0)])
    assert set(case.client.group_offsets(group)) == {(topic, 1)}


@scenario
def offsets_deleted_while_subscribed(case: Case) -> None:
    """Offsets of a topic that a member has subscribed to are kept: GROUP_SUBSCRIBED_TO_TOPIC (86)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group).commit({(topic, 0): (0, "")})
    assert case.refusal(lambda: case.client.delete_group_offsets(group, [(topic, 0)])) == 86


@scenario
def deleted(case: Case) -> None:
    """An empty group is deleted with its offsets."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group)
    consumer.commit({(topic, 0): (0, "")})
    consumer.close()
    case.until(lambda: case.client.describe_group(group).state == "Empty")
    case.client.delete_group(group)
    assert group not in case.client.groups()
    assert case.client.group_offsets(group) == {}


@scenario
def deleted_while_active(case: Case) -> None:
    """A group with members is not deleted: NON_EMPTY_GROUP (68)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group)
    assert case.refusal(lambda: case.client.delete_group(group)) == 68


@scenario
def deleted_unknown(case: Case) -> None:
    """A group that does not exist is not deleted: GROUP_ID_NOT_FOUND (69)."""
    group = case.name()
    assert case.refusal(lambda: case.client.delete_group(group)) == 69


@scenario
def offsets_go_with_their_topic(case: Case) -> None:
    """The committed offsets of a deleted topic are gone."""
    topic, other, group = case.topic(), case.topic(), case.name()
    for name in (topic, other):
        consumer = case.client.consumer(group)
        consumer.assign(name, {0: 0})
        consumer.commit({(name, 0): (0, "")})
        consumer.close()
    case.client.delete_topic(topic)
    case.until(lambda: set(case.client.group_offsets(group)) == {(other, 0)})


@scenario
def new_protocol_shares(case: Case) -> None:
    """Members with group.protocol=consumer share the partitions; when one leaves, the other takes over (KIP-848)."""
    topic, group = case.topic(partitions=4), case.name()
    first = _joined(case, topic, group, partitions=4, group_protocol="consumer")
    second = _member(case, topic, group, group_protocol="consumer")

    def settled(now: list[set[tuple[str, int]]], _: list[Record]) -> bool:
        return [len(share) for share in now] == [2, 2] and now[0] | now[1] == _spots(topic, 4)

    case.together([first, second], settled)
    second.close()
    case.together([first], lambda now, records: now[0] == _spots(topic, 4))


@scenario
def new_protocol_resumes(case: Case) -> None:
    """A group with group.protocol=consumer commits, and reads on from there (KIP-848)."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 10)
    consumer = _member(case, topic, group, group_protocol="consumer")
    case.take(consumer, 10)
    consumer.commit()
    consumer.close()
    case.fill(topic, 4)
    again = _member(case, topic, group, group_protocol="consumer")
    assert [record.offset for record in case.take(again, 4)] == [10, 11, 12, 13]
    assert case.client.group_offsets(group)[(topic, 0)][0] == 10


@scenario
def new_protocol_described(case: Case) -> None:
    """A group with group.protocol=consumer is listed, and described with the server's assignor (KIP-848)."""
    topic, group = case.topic(partitions=2), case.name()
    _joined(case, topic, group, partitions=2, group_protocol="consumer")
    assert group in case.client.groups()
    found = case.client.describe_group(group)
    assert (found.state, found.assignor) == ("Stable", "uniform")
    assert [member.assignment for member in found.members] == [_spots(topic, 2)]


@scenario
def new_protocol_takes_over_a_classic_group(case: Case) -> None:
    """A group that was a classic one goes on with group.protocol=consumer, at its offsets (KIP-848)."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 6)
    classic = _member(case, topic, group)
    case.take(classic, 6)
    classic.commit()
    classic.close()
    case.fill(topic, 2)
    assert [r.offset for r in case.take(_member(case, topic, group, group_protocol="consumer"), 2)] == [6, 7]
