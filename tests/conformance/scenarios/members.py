"""Members of groups: static ones, sessions, limits, who may commit, what a running group discovers; both protocols."""

from __future__ import annotations

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import ConsumerDriver, Record, Refused, Spot

UNKNOWN_MEMBER_ID = 25


def _member(case: Case, topic: str, group: str, **options: object) -> ConsumerDriver:
    consumer = case.client.consumer(group, heartbeat_interval_ms=200, **options)
    consumer.subscribe([topic])
    return consumer


def _joined(case: Case, topic: str, group: str, partitions: int = 1, **options: object) -> ConsumerDriver:
    consumer = _member(case, topic, group, **options)
    case.together([consumer], lambda shares, records: len(shares[0]) == partitions)
    return consumer


def _halves(case: Case, members: list[ConsumerDriver], partitions: int = 4) -> list[set[Spot]]:
    """Poll until the members share the partitions; who has what."""
    found: list[set[Spot]] = []

    def settled(now: list[set[Spot]], _: list[Record]) -> bool:
        found[:] = now
        return [len(share) for share in now] == [partitions // len(now)] * len(now) and not set.intersection(*now)

    case.together(members, settled)
    return found


def _fatal(case: Case, code: int) -> int | None:
    """With which code a client hands out what ends it: confluent-kafka has one of its own for all that is fatal."""
    return None if case.client.name == "confluent-kafka" else code


@scenario
def a_static_member_finds_its_partitions_again(case: Case) -> None:
    """A static member that restarts has the partitions that it had, and the other keeps its own (KIP-345)."""
    topic, group = case.topic(partitions=4), case.name()
    first, second = (_member(case, topic, group, group_instance_id=name) for name in ("one", "two"))
    before = _halves(case, [first, second])
    first.close()
    again = _member(case, topic, group, group_instance_id="one")
    assert _halves(case, [again, second]) == before
    assert len(case.client.describe_group(group).members) == 2


@scenario
def a_static_member_that_stays_away_is_put_out(case: Case) -> None:
    """A static member that closes and does not come back within session.timeout.ms is put out of the group."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group, group_instance_id="one", session_timeout_ms=2_000)
    consumer.commit({(topic, 0): (0, "")})
    consumer.close()
    assert len(case.client.describe_group(group).members) == 1
    case.until(lambda: case.client.describe_group(group).state == "Empty")


@scenario
def a_removed_member_commits_nothing(case: Case) -> None:
    """A member that an administrator has put out can no longer commit: UNKNOWN_MEMBER_ID (25)."""
    topic, group = case.topic(), case.name()
    consumer = _joined(case, topic, group, group_instance_id="one")
    case.client.remove_static_member(group, "one")
    # Some have their own words for it.
    assert case.refusal(lambda: consumer.commit({(topic, 0): (5, "")})) in (UNKNOWN_MEMBER_ID, None)
    assert case.client.group_offsets(group) == {}


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
def session_timeout_too_long(case: Case) -> None:
    """A session timeout above group.max.session.timeout.ms is refused with INVALID_SESSION_TIMEOUT (26)."""
    member = _member(case, case.topic(), case.name(), session_timeout_ms=2_000_000, max_poll_interval_ms=2_100_000)
    assert case.until_refused(member).code == 26


@scenario
def a_full_group(case: Case) -> None:
    """A group of group.max.size members takes no more: GROUP_MAX_SIZE_REACHED (81)."""
    topic, group = case.topic(partitions=4), case.name()
    members = [_member(case, topic, group) for _ in range(4)]
    _halves(case, members)
    one_more = _member(case, topic, group)
    # aiokafka does not know this error.
    assert case.until_refused(one_more).code == (None if case.client.name == "aiokafka" else 81)
    assert len(case.client.describe_group(group).members) == 4


@scenario
def described_unknown(case: Case) -> None:
    """A group that does not exist is described as Dead, by newer clients refused with GROUP_ID_NOT_FOUND (69)."""
    group = case.name()
    try:
        assert case.client.describe_group(group).state == "Dead"
    except Refused as refusal:
        assert refusal.code == 69


@scenario
def offsets_of_a_group_that_never_was(case: Case) -> None:
    """A group that does not exist has committed nothing, and that is no error."""
    assert case.client.group_offsets(case.name()) == {}


@scenario
def stable_offsets(case: Case) -> None:
    """Who asks for stable offsets, as read_committed does, gets what was committed in no transaction (KIP-447)."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 6)
    consumer = _joined(case, topic, group)
    consumer.commit({(topic, 0): (4, "")})
    consumer.close()
    again = _member(case, topic, group, isolation_level="read_committed")
    assert [record.offset for record in case.take(again, 2)] == [4, 5]
    assert again.committed((topic, 0)) == 4
    again.close()


@scenario
def stable_offsets_for_an_administrator(case: Case) -> None:
    """An administrator who asks for stable offsets gets what was committed in no transaction."""
    topic, group = case.topic(partitions=2), case.name()
    consumer = case.client.consumer(group)
    consumer.assign(topic, {0: 0, 1: 0})
    consumer.commit({(topic, 0): (3, "a note"), (topic, 1): (5, "")})
    consumer.close()
    expected = {(topic, 0): (3, "a note"), (topic, 1): (5, "")}
    assert case.client.group_offsets(group, require_stable=True) == expected


@scenario
def offsets_deleted_of_an_unknown_group(case: Case) -> None:
    """Deleting offsets of a group that does not exist is refused with GROUP_ID_NOT_FOUND (69)."""
    topic = case.topic()
    assert case.refusal(lambda: case.client.delete_group_offsets(case.name(), [(topic, 0)])) == 69


@scenario
def joined_under_one_id(case: Case) -> None:
    """Who joins is there once, under the id that it was given before (KIP-394), and leaves nobody behind."""
    topic, group = case.topic(partitions=2), case.name()
    first, second = (_member(case, topic, group) for _ in range(2))
    _halves(case, [first, second], partitions=2)
    found = case.client.describe_group(group)
    assert (found.state, len(found.members)) == ("Stable", 2)
    assert all(member.id.startswith(member.client_id) for member in found.members)
    first.close()
    second.close()
    # Without members and without offsets there need not be a group any longer.
    case.until(lambda: case.client.describe_group(group).members == ())


@scenario
def joined_before_ids_were_given(case: Case) -> None:
    """Clients that do not know of KIP-394 join at once, beside others that do."""
    topic, group = case.topic(partitions=2), case.name()
    # JoinGroup 3, of Kafka 2.1
    older = case.client.consumer(group, api_version=(2, 1), heartbeat_interval_ms=200)
    older.subscribe([topic])
    case.together([older], lambda now, records: len(now[0]) == 2)
    assert len(case.client.describe_group(group).members) == 1
    _halves(case, [older, _member(case, topic, group)], partitions=2)
    assert len(case.client.describe_group(group).members) == 2


@scenario
def pattern_sees_new_topics(case: Case) -> None:
    """A topic that is created takes its place under a pattern of a running group."""
    stem = case.name()
    case.client.create_topic(f"{stem}.a")
    consumer = case.client.consumer(case.name(), heartbeat_interval_ms=200, metadata_max_age_ms=500)
    consumer.subscribe_pattern(f"{stem}\\..*")
    case.together([consumer], lambda now, records: now[0] == {(f"{stem}.a", 0)})
    case.client.create_topic(f"{stem}.b", 2)
    expected = {(f"{stem}.a", 0), (f"{stem}.b", 0), (f"{stem}.b", 1)}
    case.together([consumer], lambda now, records: now[0] == expected)


@scenario
def partitions_stay_while_another_joins(case: Case) -> None:
    """With cooperative-sticky a member reads on from what it keeps while another joins (KIP-429)."""
    topic, group = case.topic(partitions=4), case.name()
    first = _joined(case, topic, group, partitions=4, partition_assignment_strategy="cooperative-sticky")
    second = _member(case, topic, group, partition_assignment_strategy="cooperative-sticky")
    fewest = 4

    def settled(now: list[set[Spot]], _: list[Record]) -> bool:
        nonlocal fewest
        if now[0]:
            fewest = min(fewest, len(now[0]))
        return [len(share) for share in now] == [2, 2]

    case.together([first, second], settled)
    assert fewest == 2


@scenario
def new_protocol_static_member_comes_back(case: Case) -> None:
    """A static member with group.protocol=consumer that restarts has the partitions that it had (KIP-848)."""
    topic, group = case.topic(partitions=4), case.name()
    first, second = (
        _member(case, topic, group, group_protocol="consumer", group_instance_id=name) for name in ("one", "two")
    )
    before = _halves(case, [first, second])
    first.close()
    again = _member(case, topic, group, group_protocol="consumer", group_instance_id="one")
    assert _halves(case, [again, second]) == before


@scenario
def new_protocol_instance_in_use(case: Case) -> None:
    """A group.instance.id of the new protocol that is in use is not taken over: UNRELEASED_INSTANCE_ID (111)."""
    topic, group = case.topic(), case.name()
    _joined(case, topic, group, group_protocol="consumer", group_instance_id="one")
    another = _member(case, topic, group, group_protocol="consumer", group_instance_id="one")
    assert case.until_refused(another).code == _fatal(case, 111)


@scenario
def new_protocol_range(case: Case) -> None:
    """With group.remote.assignor=range the broker deals by range (KIP-848)."""
    topic, group = case.topic(partitions=2), case.name()
    _joined(case, topic, group, partitions=2, group_protocol="consumer", group_remote_assignor="range")
    assert case.client.describe_group(group).assignor == "range"


@scenario
def new_protocol_unknown_assignor(case: Case) -> None:
    """A group.remote.assignor that the broker does not have is refused with UNSUPPORTED_ASSIGNOR (112)."""
    member = _member(case, case.topic(), case.name(), group_protocol="consumer", group_remote_assignor="nobodys")
    assert case.until_refused(member).code == _fatal(case, 112)


@scenario
def new_protocol_sees_new_partitions(case: Case) -> None:
    """A group of the new protocol takes partitions that its topic gains, told by the broker (KIP-848)."""
    topic = case.topic()
    consumer = _joined(case, topic, case.name(), group_protocol="consumer")
    case.client.create_partitions(topic, 3)
    case.together([consumer], lambda now, records: now[0] == {(topic, partition) for partition in range(3)})


@scenario
def new_protocol_and_classic_members(case: Case) -> None:
    """Members of both protocols share one group (KIP-848)."""
    topic, group = case.topic(partitions=4), case.name()
    classic = _joined(case, topic, group, partitions=4, partition_assignment_strategy="range")
    newer = _member(case, topic, group, group_protocol="consumer")
    _halves(case, [classic, newer])
    classic.close()
    case.together([newer], lambda now, records: len(now[0]) == 4)
