"""The new consumer protocol (KIP-848): patterns, limits, the way back, and what an administrator does with groups."""

from __future__ import annotations

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import ConsumerDriver, Record, Spot

UNKNOWN_MEMBER_ID = 25


def _member(case: Case, topic: str, group: str, protocol: str = "consumer", **options: object) -> ConsumerDriver:
    consumer = case.client.consumer(group, group_protocol=protocol, heartbeat_interval_ms=200, **options)
    consumer.subscribe([topic])
    return consumer


def _joined(case: Case, topic: str, group: str, partitions: int = 1, **options: object) -> ConsumerDriver:
    consumer = _member(case, topic, group, **options)  # type: ignore[arg-type]
    case.together([consumer], lambda shares, records: len(shares[0]) == partitions)
    return consumer


def _halves(case: Case, members: list[ConsumerDriver], partitions: int = 4) -> None:
    def settled(now: list[set[Spot]], _: list[Record]) -> bool:
        return [len(share) for share in now] == [partitions // len(now)] * len(now) and not set.intersection(*now)

    case.together(members, settled)


def _own_code(case: Case, code: int) -> int | None:
    """With which code a client hands out what ends it: confluent-kafka has one of its own for all that is fatal."""
    return None if case.client.name == "confluent-kafka" else code


@scenario
def listed_by_type(case: Case) -> None:
    """Groups are listed by type, classic and consumer."""
    topic, classic, newer = case.topic(), case.name(), case.name()
    _joined(case, topic, classic, protocol="classic")
    _joined(case, topic, newer)
    assert {classic, newer} & case.client.groups(types=["classic"]) == {classic}
    assert {classic, newer} & case.client.groups(types=["consumer"]) == {newer}
    assert {classic, newer} <= case.client.groups(types=["classic", "consumer"])


@scenario
def listed_by_type_and_state(case: Case) -> None:
    """Groups are listed by type and state at once: both must fit."""
    topic, group = case.topic(), case.name()
    member = _joined(case, topic, group)
    member.commit({(topic, 0): (0, "")})
    assert group in case.client.groups(["Stable"], ["consumer"])
    assert group not in case.client.groups(["Stable"], ["classic"])
    assert group not in case.client.groups(["Empty"], ["consumer"])
    member.close()
    case.until(lambda: group in case.client.groups(["Empty"], ["consumer"]))
    assert group not in case.client.groups(["Stable"], ["consumer"])


@scenario
def pattern(case: Case) -> None:
    """The broker finds the topics that match a pattern, and leaves the others."""
    stem = case.name()
    for end in ("a", "b", "other"):
        case.client.create_topic(f"{stem}.{end}")
    case.until(lambda: {f"{stem}.{end}" for end in ("a", "b", "other")} <= case.client.topics())
    consumer = case.client.consumer(case.name(), group_protocol="consumer")
    consumer.subscribe_server_pattern(f"{stem}\\.[ab]")
    case.together([consumer], lambda now, records: now[0] == {(f"{stem}.a", 0), (f"{stem}.b", 0)})


@scenario
def pattern_sees_new_topics(case: Case) -> None:
    """A topic that is created takes its place under a pattern of a running group."""
    stem = case.name()
    case.client.create_topic(f"{stem}.a")
    consumer = case.client.consumer(case.name(), group_protocol="consumer")
    consumer.subscribe_server_pattern(f"{stem}\\..*")
    case.together([consumer], lambda now, records: now[0] == {(f"{stem}.a", 0)})
    case.client.create_topic(f"{stem}.b", 2)
    expected = {(f"{stem}.a", 0), (f"{stem}.b", 0), (f"{stem}.b", 1)}
    case.together([consumer], lambda now, records: now[0] == expected)


@scenario
def pattern_that_is_none(case: Case) -> None:
    """A pattern that is not of RE2's syntax is refused with INVALID_REGULAR_EXPRESSION (128)."""
    consumer = case.client.consumer(case.name(), group_protocol="consumer")
    consumer.subscribe_server_pattern("(")
    assert case.until_refused(consumer).code == _own_code(case, 128)


@scenario
def unknown_topic_comes(case: Case) -> None:
    """Who has subscribed to a topic that does not exist yet has it when it does."""
    topic, group = case.name(), case.name()
    consumer = _member(case, topic, group, metadata_max_age_ms=500, allow_auto_create_topics=False)

    def joined() -> bool:
        consumer.poll()
        return case.client.describe_group(group).state == "Stable"

    case.until(joined)
    case.client.create_topic(topic, 2)
    case.together([consumer], lambda now, records: now[0] == {(topic, 0), (topic, 1)})


@scenario
def partitions_stay_while_another_joins(case: Case) -> None:
    """A member keeps what stays its own while another joins: nobody stops for all."""
    topic, group = case.topic(partitions=4), case.name()
    first = _joined(case, topic, group, partitions=4)
    second = _member(case, topic, group)
    fewest = 4

    def settled(now: list[set[Spot]], _: list[Record]) -> bool:
        nonlocal fewest
        fewest = min(fewest, len(now[0])) if now[0] else fewest
        return [len(share) for share in now] == [2, 2]

    case.together([first, second], settled)
    assert fewest == 2


@scenario
def a_full_group(case: Case) -> None:
    """A group of group.consumer.max.size members takes no more: GROUP_MAX_SIZE_REACHED (81)."""
    topic, group = case.topic(partitions=3), case.name()
    _halves(case, [_member(case, topic, group) for _ in range(3)], partitions=3)
    one_more = _member(case, topic, group)
    assert case.until_refused(one_more).code == _own_code(case, 81)
    assert len(case.client.describe_group(group).members) == 3


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
def a_stranger_commits_nothing(case: Case) -> None:
    """Who has not joined does not commit for a group that has members: UNKNOWN_MEMBER_ID (25)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group)
    stranger = case.client.consumer(group)
    stranger.assign(topic, {0: 0})
    assert case.refusal(lambda: stranger.commit({(topic, 0): (5, "")})) in (UNKNOWN_MEMBER_ID, None)
    assert case.client.group_offsets(group) == {}


@scenario
def offsets_altered_while_active(case: Case) -> None:
    """The offsets of a group with members are not moved by an administrator: UNKNOWN_MEMBER_ID (25)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group)
    assert case.refusal(lambda: case.client.alter_group_offsets(group, {(topic, 0): 1})) == UNKNOWN_MEMBER_ID


@scenario
def offsets_deleted_while_subscribed(case: Case) -> None:
    """Offsets of a topic that a member has subscribed to are kept: GROUP_SUBSCRIBED_TO_TOPIC (86)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group).commit({(topic, 0): (0, "")})
    assert case.refusal(lambda: case.client.delete_group_offsets(group, [(topic, 0)])) == 86


@scenario
def deleted(case: Case) -> None:
    """A group is deleted with its offsets once its members have left; before, NON_EMPTY_GROUP (68)."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group)
    consumer.commit({(topic, 0): (0, "")})
    assert case.refusal(lambda: case.client.delete_group(group)) == 68
    consumer.close()
    case.until(lambda: case.client.describe_group(group).state == "Empty")
    case.client.delete_group(group)
    assert group not in case.client.groups()
    assert case.client.group_offsets(group) == {}


@scenario
def static_member_is_removed(case: Case) -> None:
    """An administrator puts a static member out of its group."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group, group_instance_id="one").close()
    assert len(case.client.describe_group(group).members) == 1
    case.client.remove_static_member(group, "one")
    case.until(lambda: case.client.describe_group(group).state == "Empty")


@scenario
def back_to_classic_when_empty(case: Case) -> None:
    """A group whose members have left goes on as a classic one, at its offsets."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 6)
    newer = _member(case, topic, group)
    case.take(newer, 6)
    newer.commit()
    newer.close()
    case.fill(topic, 2)
    assert [r.offset for r in case.take(_member(case, topic, group, protocol="classic"), 2)] == [6, 7]


@scenario
def back_to_classic_while_running(case: Case) -> None:
    """When the last member of the new protocol leaves, the classic ones go on as a classic group."""
    topic, group = case.topic(partitions=4), case.name()
    classic = _joined(case, topic, group, partitions=4, protocol="classic", partition_assignment_strategy="range")
    newer = _member(case, topic, group)
    _halves(case, [classic, newer])
    assert group in case.client.groups(types=["consumer"])
    newer.close()
    case.together([classic], lambda now, records: len(now[0]) == 4)
    assert group in case.client.groups(types=["classic"])
