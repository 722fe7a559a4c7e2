"""The consumer under the consumer protocol (KIP-848), against a scripted coordinator in virtual time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE, CLOSE_AFTER, SILENCE
from tests.support.scripted_group import GroupBroker, GroupCluster
from tests.support.scripted_reading import client_of, numbers
from tests.support.simulated import current_simulation, simulated
from triokafka.client.consumer.membership.leave_sender import LEAVE_TIMEOUT
from triokafka.errors import (
    CommitFailedError,
    ConfigurationError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InvalidRegularExpressionError,
    KafkaTimeoutError,
    MaxPollIntervalExceededError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.join_group import JoinGroupRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID = 110, 25, 82, 111


async def started(**topics: int) -> tuple[GroupCluster, GroupBroker, dict[str, Any]]:
    """Return a cluster with topic ``t`` of two partitions, its broker, and the options of a consumer."""
    cluster = GroupCluster(**(topics or {"t": 2}))
    options = await client_of(cluster, auto_offset_reset="earliest", group_id="g", group_protocol="consumer")
    broker = cluster.brokers[1]
    assert isinstance(broker, GroupBroker)
    return cluster, broker, options


def refusal(code: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


async def take(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(120):
        return [(await anext(consumer)).value for _ in range(count)]


async def until(consumer: triokafka.Consumer, condition: Callable[[], object]) -> list[bytes]:
    """Poll until the condition holds; return the values read meanwhile."""
    got: list[bytes] = []
    with trio.fail_after(120):
        while not condition():
            polled = await consumer.poll(timeout_ms=100)
            got += [record.value for records in polled.values() for record in records]
    return got


class Listener(triokafka.ConsumerRebalanceListener):
    """Records its calls; each call takes ``seconds``."""

    def __init__(self, seconds: float = 0) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.seconds = seconds

    async def _record(self, event: str, partitions: Any) -> None:
        await trio.sleep(self.seconds)
        self.calls.append((event, [str(partition) for partition in partitions]))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._record("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await self._record("assigned", assigned)

    async def on_partitions_lost(self, lost: Any) -> None:
        await self._record("lost", lost)


# ---------------------------------------------------------------- joining, reading, leaving


@simulated
async def test_a_member_joins_reads_commits_and_leaves() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 4))
    listener = Listener()
    async with triokafka.Consumer(**options, group_remote_assignor="range") as consumer:
        consumer.subscribe("t", listener=listener)
        assert await take(consumer, 4) == numbers(0, 4)
        assert consumer.assignment() == {T0, T1}
        await consumer.commit()
        health = consumer.health()
        assert (health.state, health.generation, health.healthy) == ("in the group", 1, True)
        assert health.member_id == broker.beats[0].member_id
        assert health.assignment_age is not None
        assert health.last_heartbeat_age is not None
        metrics = consumer.metrics()
        assert (metrics["generation"], metrics["rebalance_total"], metrics["assigned_partitions"]) == (1, 1, 2)
        assert 0 <= metrics["last_heartbeat_seconds_ago"] <= metrics["assignment_age_seconds"] < 1
        await trio.sleep(10)
    assert cluster.committed == {T0: 4, T1: 0}
    assert listener.calls == [("assigned", ["t-0", "t-1"]), ("revoked", ["t-0", "t-1"])]
    first, second, *steady, last = broker.beats
    assert (first.member_epoch, first.server_assignor, first.topic_partitions) == (0, "range", [])
    assert second.topic_partitions
    assert 9 <= len(steady) <= 11
    assert all(beat.topic_partitions is None and beat.subscribed_topic_names is None for beat in steady)
    assert (last.member_epoch, last.member_id) == (-1, first.member_id)
    assert not broker.seen(JoinGroupRequest)
    [commit, *_] = broker.seen(OffsetCommitRequest)
    assert (commit.member_id, commit.generation_id_or_member_epoch) == (first.member_id, 1)
    [group] = broker.seen(OffsetFetchRequest)[0].groups
    assert (group.member_id, group.member_epoch) == (first.member_id, 1)


@simulated
async def test_a_static_member_leaves_temporarily() -> None:
    _, broker, options = await started()
    async with triokafka.Consumer("t", **options, group_instance_id="i") as consumer:
        await until(consumer, consumer.assignment)
    assert {beat.instance_id for beat in broker.beats} == {"i"}
    assert broker.beats[-1].member_epoch == -2


@simulated
async def test_a_new_subscription_is_sent_at_once_and_an_ended_one_leaves() -> None:
    cluster, broker, options = await started(t=1, u=1)
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        await until(consumer, consumer.assignment)
        assert consumer.assignment() == {T0}  # the assignment of `u` arrived too early
        consumer.subscribe(["t", "u"], listener=listener)
        await until(consumer, lambda: len(consumer.assignment()) == 2)
        assert sorted(broker.beats[-1].subscribed_topic_names or broker.beats[-2].subscribed_topic_names or ()) == [
            "t",
            "u",
        ]
        consumer.unsubscribe()
        await trio.sleep(1)
        assert broker.beats[-1].member_epoch == -1
        assert T0 in cluster.committed
        beats = len(broker.beats)
        await trio.sleep(30)
        assert len(broker.beats) == beats
        consumer.subscribe("u")
        await until(consumer, consumer.assignment)
        assert broker.beats[beats].member_epoch == 0
    assert listener.calls[-1] == ("revoked", ["t-0", "u-0"])


@simulated
async def test_a_python_pattern_is_applied_by_the_consumer() -> None:
    cluster, broker, options = await started(t=1, other=1)
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(pattern="t.?")
        await until(consumer, consumer.assignment)
        assert consumer.assignment() == {T0}
        assert list(broker.beats[0].subscribed_topic_names or ()) == ["t"]
        cluster.topics["t2"] = 1
        cluster.topic_ids["t2"] = uuid.UUID(int=500)
        cluster.assign(T0, TopicPartition("t2", 0))
        consumer._engine.network.request_metadata_update()
        await until(consumer, lambda: len(consumer.assignment()) == 2)


@simulated
async def test_a_remote_pattern_goes_to_the_coordinator_and_names_are_requested_by_id() -> None:
    cluster, broker, options = await started(t=2, other=1)
    cluster.assign(T0, T1)
    cluster.write("t", 0, numbers(0, 2))
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(pattern=triokafka.SubscriptionPattern("t.*"))
        assert await take(consumer, 2) == numbers(0, 2)
        assert consumer.subscription() == {"t"}
    assert (broker.beats[0].subscribed_topic_regex, broker.beats[0].subscribed_topic_names) == ("t.*", [])
    assert all(request.topics is not None for request in broker.seen(MetadataRequest))


@simulated
async def test_unknown_topic_id_waits_for_its_name() -> None:
    """Known topics are read meanwhile, and only they are acknowledged to the coordinator."""
    cluster, _, options = await started(t=2, u=1)
    late = TopicPartition("u", 0)
    hidden = cluster.topic_ids["u"]
    cluster.write("t", 0, numbers(0, 2))
    async with triokafka.Consumer(**options) as consumer:
        names = cluster.topic_ids
        cluster.topic_ids = {**names, "elsewhere": hidden, "u": uuid.UUID(int=999)}
        cluster.target = {T0, T1, TopicPartition("elsewhere", 0)}
        consumer.subscribe(pattern=triokafka.SubscriptionPattern(".*"))
        consumer._engine.network.metadata.set_topics(())
        broker = cluster.brokers[1]
        assert isinstance(broker, GroupBroker)
        broker.hidden_ids = {hidden}
        assert await take(consumer, 2) == numbers(0, 2)
        assert cluster.acknowledged[-1] == {T0, T1}
        await trio.sleep(20)
        assert consumer.assignment() == {T0, T1}
        assert "looking up the names of assigned topics" in consumer.health().troubles[0]
        cluster.topic_ids, cluster.target = names, {T0, T1, late}
        broker.hidden_ids = set()
        await until(consumer, lambda: consumer.assignment() == {T0, T1, late})
        assert consumer.health().healthy
    assert cluster.acknowledged[-1] == {T0, T1, late}


@simulated
async def test_a_recreated_topic_is_another_topic() -> None:
    cluster, _, options = await started(t=1)
    cluster.write("t", 0, numbers(0, 3))
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        assert await take(consumer, 3) == numbers(0, 3)
        cluster.topic_ids["t"] = uuid.UUID(int=777)
        cluster.batches[T0].clear()
        cluster.ends[T0] = 0
        cluster.committed.clear()
        cluster.target = set()
        await until(consumer, lambda: not consumer.assignment())
        cluster.committed.clear()
        cluster.write("t", 0, numbers(50, 52))
        cluster.assign(T0)
        assert await take(consumer, 2) == numbers(50, 52)


@simulated
async def test_the_old_partition_goes_when_the_same_name_comes_with_another_id() -> None:
    cluster, _, options = await started(t=1)
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        await until(consumer, consumer.assignment)
        cluster.topic_ids["t"] = uuid.UUID(int=777)
        cluster._sent_assignment = None
        await until(consumer, lambda: len(listener.calls) == 3)
    assert listener.calls[:3] == [("assigned", ["t-0"]), ("revoked", ["t-0"]), ("assigned", ["t-0"])]


# ---------------------------------------------------------------- revocation and assignment


@simulated
async def test_revoked_partitions_are_committed_revoked_and_acknowledged_while_others_are_read() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 6))
    cluster.write("t", 1, numbers(10, 16))
    events: list[str] = []
    plain = broker.offset_commit

    async def slow_commit(request: OffsetCommitRequest) -> Any:
        await trio.sleep(3)
        events.append("committed")
        return plain(request)

    class SlowCommitListener(Listener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await super().on_partitions_revoked(revoked)
            events.append("revoked")

    listener = SlowCommitListener()
    async with triokafka.Consumer(**options, auto_commit_interval_ms=600_000) as consumer:
        consumer.subscribe("t", listener=listener)
        got = await consumer.poll(timeout_ms=5_000, max_records=2)
        while len(got) < 2:  # two of each partition, whatever the start
            for partition, records in (await consumer.poll(timeout_ms=100, max_records=2)).items():
                got.setdefault(partition, []).extend(records)
        read = {partition: len(records) for partition, records in got.items()}
        cluster.assign(T1)
        broker.script(OffsetCommitRequest, slow_commit)
        await broker.beats_until(lambda beat: True)
        await trio.sleep(0.1)
        rest: list[bytes] = []
        while "committed" not in events:
            polled = await consumer.poll(timeout_ms=100, max_records=1)
            assert T0 not in polled
            rest += [record.value for record in polled.get(T1, ())]
            await trio.sleep(0.1)
        assert rest  # read while the commit was in flight
        await until(consumer, lambda: consumer.assignment() == {T1})
        await broker.beats_until(lambda beat: True)
        assert cluster.commits[0][T0] == read[T0]
        assert cluster.acknowledged[-1] == {T1}
        assert events == ["committed", "revoked"]
    assert listener.calls[:3] == [("assigned", ["t-0", "t-1"]), ("revoked", ["t-0"]), ("assigned", [])]


@simulated
async def test_owned_partitions_are_reported_before_a_slow_listener_ends() -> None:
    cluster, broker, options = await started()
    cluster.assign(T0)
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        await until(consumer, consumer.assignment)
        await trio.sleep(1.5)
        listener.seconds = 250  # less than max_poll_interval_ms
        cluster.assign(T1)
        with trio.move_on_after(245):
            await consumer.poll(timeout_ms=1_000_000)
        assert cluster.acknowledged[-1] == {T0}  # it has not revoked anything yet
        beats = len(broker.beats)
        with trio.move_on_after(260):
            await consumer.poll(timeout_ms=1_000_000)
        assert cluster.acknowledged[-1] == {T1}
        assert len(broker.beats) - beats > 230  # it sent heartbeats all the time
        listener.seconds = 0


@simulated
async def test_partitions_assigned_again_before_their_revocation_stay() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 2)
        cluster.assign(T1)
        await broker.beats_until(lambda beat: True)
        cluster.assign(T0, T1)
        await trio.sleep(3)
        assert cluster.acknowledged[-1] == {T0, T1}
        cluster.write("t", 0, numbers(2, 4))
        assert await take(consumer, 2) == numbers(2, 4)
    assert [event for event, _ in listener.calls] == ["assigned", "revoked"]


@simulated
async def test_partitions_assigned_again_during_the_commit_continue() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))
    listener = Listener()

    async def slow(request: OffsetCommitRequest) -> Any:
        await trio.sleep(5)
        return broker.offset_commit(request)

    async with triokafka.Consumer(**options, auto_commit_interval_ms=600_000) as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 2)
        broker.script(OffsetCommitRequest, slow)
        cluster.assign(T1)
        await trio.sleep(1.5)
        assert await consumer.poll(timeout_ms=0) == {}
        cluster.assign(T0, T1)
        await trio.sleep(8)
        cluster.write("t", 0, numbers(2, 4))
        assert await take(consumer, 2) == numbers(2, 4)
    assert [event for event, _ in listener.calls] == ["assigned", "revoked"]


@simulated
async def test_a_cancelled_listener_is_called_again() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, [b"here"])
    listener = Listener(seconds=0.5)
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        with trio.move_on_after(0.3):
            await anext(consumer)
        assert await take(consumer, 1) == [b"here"]
        cluster.assign(T1)
        await trio.sleep(2)
        for _ in range(3):
            with trio.move_on_after(0.3):
                await consumer.poll(timeout_ms=10_000)
        assert consumer.assignment() == {T0, T1}
        await until(consumer, lambda: consumer.assignment() == {T1})
        listener.seconds = 0
    assert listener.calls[:3] == [("assigned", ["t-0", "t-1"]), ("revoked", ["t-0"]), ("assigned", [])]


@simulated
async def test_listener_may_commit_revoked_partitions() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 3))

    class Committing(Listener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await consumer.commit()

    async with triokafka.Consumer(**options, enable_auto_commit=False) as consumer:
        consumer.subscribe("t", listener=Committing())
        await take(consumer, 3)
        cluster.assign(T1)
        await until(consumer, lambda: consumer.assignment() == {T1})
        assert cluster.committed[T0] == 3


# ---------------------------------------------------------------- errors


@simulated
@pytest.mark.parametrize("code", [FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID])
async def test_a_removed_member_loses_its_partitions_and_joins_again(code: int) -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 10))
    listener = Listener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 3)
        broker.script(ConsumerGroupHeartbeatRequest, refusal(code))
        await trio.sleep(4)
        assert consumer.health().state == "out of the group, giving up its partitions"
        with pytest.raises(CommitFailedError, match="not a member"):
            await consumer.commit()
        assert await consumer.poll(timeout_ms=5_000)
    assert listener.calls[:3] == [("assigned", ["t-0", "t-1"]), ("lost", ["t-0", "t-1"]), ("assigned", ["t-0", "t-1"])]
    joins = [beat for beat in broker.beats if beat.member_epoch == 0]
    assert len(joins) == 2
    assert joins[0].member_id == joins[1].member_id


@simulated
async def test_a_fenced_instance_stays_out() -> None:
    _, broker, options = await started()
    async with triokafka.Consumer("t", **options, group_instance_id="i") as consumer:
        await until(consumer, consumer.assignment)
        broker.script(ConsumerGroupHeartbeatRequest, refusal(FENCED_INSTANCE_ID))
        await trio.sleep(5)
        beats = len(broker.beats)
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
                await consumer.poll(timeout_ms=5_000)
        await trio.sleep(60)
    assert len(broker.beats) == beats


@simulated
async def test_member_waits_for_an_unreleased_instance_id_and_reports_it() -> None:
    """The previous process crashed, and its session has not expired."""
    _, broker, options = await started()
    broker.script(ConsumerGroupHeartbeatRequest, *[refusal(UNRELEASED_INSTANCE_ID)] * 25)
    async with triokafka.Consumer("t", **options, group_instance_id="i", default_api_timeout_ms=15_000) as consumer:
        assert await consumer.poll(timeout_ms=5_000) == {}
        assert "still belongs to another member" in consumer.health().troubles[0]
        with pytest.raises(KafkaTimeoutError, match="joining group 'g' has failed for 15 s"):
            await consumer.poll(timeout_ms=60_000)
        await until(consumer, consumer.assignment)
        assert consumer.health().healthy


@simulated
@pytest.mark.parametrize(
    ("code", "error"), [(81, GroupMaxSizeReachedError), (128, InvalidRegularExpressionError)], ids=["full", "pattern"]
)
async def test_refusal_of_a_member_is_raised_and_it_may_retry(code: int, error: type[Exception]) -> None:
    _, broker, options = await started()
    broker.script(ConsumerGroupHeartbeatRequest, refusal(code, "because of this"))
    async with triokafka.Consumer("t", **options) as consumer:
        with pytest.raises(error, match="because of this"):
            await consumer.poll(timeout_ms=5_000)
        await until(consumer, consumer.assignment)


@simulated
@pytest.mark.parametrize("switched_off", [False, True], ids=["unknown", "switched off"])
async def test_cluster_without_the_protocol_raises_an_error_with_a_remedy(switched_off: bool) -> None:
    _, broker, options = await started()
    if switched_off:
        broker.script(ConsumerGroupHeartbeatRequest, refusal(35))
    else:
        del broker.api_versions[68]
    async with triokafka.Consumer("t", **options) as consumer:
        with pytest.raises(UnsupportedVersionError, match=r"group_protocol='classic'.*group\.version"):
            await consumer.poll(timeout_ms=5_000)


@simulated
async def test_coordinator_without_patterns_raises_an_error_with_a_remedy() -> None:
    _, broker, options = await started()
    broker.api_versions[68] = (0, 0)
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(pattern=triokafka.SubscriptionPattern("t.*"))
        with pytest.raises(UnsupportedVersionError, match=r"versions 0 to 0.*a str or re\.Pattern is applied by"):
            await consumer.poll(timeout_ms=5_000)
        consumer.unsubscribe()
        consumer.subscribe("t")
        await until(consumer, consumer.assignment)


@simulated
@pytest.mark.parametrize(
    "response",
    [CLOSE, CLOSE_AFTER, SILENCE, refusal(16), refusal(14), refusal(15)],
    ids=["closed", "closed after", "silence", "not coordinator", "loading", "not available"],
)
@pytest.mark.parametrize("when", ["joining", "in the group"])
async def test_a_failed_heartbeat_is_repeated_in_full(response: object, when: str) -> None:
    """The heartbeat is lost before or after it was handled, or refused temporarily."""
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))
    listener = Listener()
    async with triokafka.Consumer(**options, request_timeout_ms=5_000) as consumer:
        consumer.subscribe("t", listener=listener)
        if when == "in the group":
            await take(consumer, 2)
            cluster.write("t", 0, numbers(0, 2))
        at = len(broker.beats)
        broker.script(ConsumerGroupHeartbeatRequest, response)
        if when == "in the group":
            await trio.sleep(10)
        assert await take(consumer, 2) == numbers(0, 2)
        repeated = broker.beats[at + 1]
        assert (repeated.rebalance_timeout_ms, repeated.subscribed_topic_names) == (300_000, ["t"])
        assert repeated.topic_partitions is not None
        await trio.sleep(10)
        assert consumer.health().healthy
    assert listener.calls == [("assigned", ["t-0", "t-1"]), ("revoked", ["t-0", "t-1"])]


@simulated
async def test_a_silent_coordinator_is_reported_with_the_time_since_when() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))
    async with triokafka.Consumer("t", **options, request_timeout_ms=2_000, default_api_timeout_ms=20_000) as consumer:
        await take(consumer, 2)
        broker.script(ConsumerGroupHeartbeatRequest, *[SILENCE] * 100)
        with pytest.raises(KafkaTimeoutError, match="sending heartbeats to group 'g' has failed for 20 s"):
            await consumer.poll(timeout_ms=60_000)
        broker._scripts.clear()


@simulated
async def test_stuck_loop_loses_its_partitions_and_gets_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 10))
    listener = Listener()
    async with triokafka.Consumer(**options, max_poll_interval_ms=60_000) as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 1)
        await trio.sleep(59)
        await take(consumer, 1)
        with caplog.at_level(logging.WARNING):
            await trio.sleep(61)
        assert "max_poll_interval_ms=60000" in caplog.text
        assert broker.beats[-1].member_epoch == -1
        with pytest.raises(MaxPollIntervalExceededError, match="max_poll_interval_ms=60000"):
            while True:
                await anext(consumer)
        assert await take(consumer, 1)
    assert [event for event, _ in listener.calls] == ["assigned", "lost", "assigned", "revoked"]


@simulated
async def test_waiting_for_records_does_not_count_as_a_stuck_loop() -> None:
    _, broker, options = await started()
    async with triokafka.Consumer("t", **options, max_poll_interval_ms=10_000) as consumer:
        assert await consumer.poll(timeout_ms=60_000) == {}
    assert len(broker.beats) >= 60
    assert [beat.member_epoch for beat in broker.beats].count(-1) == 1


# ---------------------------------------------------------------- commits and epochs


@simulated
async def test_a_commit_with_an_old_epoch_is_repeated_with_the_new_one() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        cluster.interval_ms = 60_000
        await take(consumer, 3)
        await trio.sleep(2)
        cluster.generation += 1  # the group has a new epoch, which the next heartbeat reports
        before = trio.current_time()
        await consumer.commit()
        assert cluster.committed[T0] == 3
        assert trio.current_time() - before < 1  # a heartbeat is sent for that at once
    epochs = [request.generation_id_or_member_epoch for request in broker.seen(OffsetCommitRequest)]
    assert epochs == [1, 2]


@simulated
async def test_unknown_member_error_of_a_commit_ends_the_membership_at_once() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    cluster.interval_ms = 600_000
    listener = Listener()

    def unknown(request: OffsetCommitRequest) -> Any:
        response = broker.offset_commit(request)
        response.topics[0].partitions[0].error_code = UNKNOWN_MEMBER_ID
        return response

    async with triokafka.Consumer(**options, enable_auto_commit=False) as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 3)
        broker.script(OffsetCommitRequest, unknown)
        with pytest.raises(CommitFailedError, match="has rebalanced"):
            await consumer.commit()
        await until(consumer, lambda: len(listener.calls) == 3)
    assert [event for event, _ in listener.calls] == ["assigned", "lost", "assigned", "revoked"]


@simulated
async def test_a_late_commit_of_revoked_partitions_is_not_repeated() -> None:
    """Their new owner may have committed already."""
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        cluster.assign(T1)
        await until(consumer, lambda: consumer.assignment() == {T1})
        cluster.generation += 1
        with pytest.raises(CommitFailedError, match="no longer belong to this member"):
            await consumer.commit({T0: 3})
        assert T0 not in cluster.committed
        assert len(broker.seen(OffsetCommitRequest)) == 1


@simulated
async def test_a_commit_whose_epoch_stays_stale_ends_in_time() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 3)

        def stale(request: OffsetCommitRequest) -> Any:
            request.generation_id_or_member_epoch = -5
            return broker.offset_commit(request)

        broker.script(OffsetCommitRequest, *[stale] * 1_000)
        with pytest.raises(KafkaTimeoutError, match="in time"):
            await consumer.commit(timeout_ms=3_000)
        assert len(broker.seen(OffsetCommitRequest)) < 40
        broker._scripts.clear()


# ---------------------------------------------------------------- cancellation


@simulated
async def test_poll_cancelled_at_any_checkpoint_of_joining_and_rebalancing_loses_nothing() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 30))
    cluster.write("t", 1, numbers(30, 60))
    listener = Listener(seconds=0.01)
    seen: list[bytes] = []
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=listener)
        targets = [{T1}, {T0, T1}, {T0}, {T0, T1}]

        async def go_on() -> None:
            await trio.sleep(0.7)

        while len(seen) < 60:
            got, _ = await cancelled_at_each_checkpoint(lambda: consumer.poll(timeout_ms=20_000, max_records=7), go_on)
            seen += [record.value for records in got.values() for record in records]
            if targets:
                cluster.assign(*targets.pop(0))
        assert sorted(seen, key=int) == numbers(0, 60)
        await trio.sleep(1)
    owned: set[str] = set()
    for event, partitions in listener.calls:
        for partition in partitions:
            assert (partition in owned) == (event != "assigned"), listener.calls
            owned.symmetric_difference_update([partition])
    assert not owned


@simulated
async def test_a_cancelled_commit_leaves_the_next_one_in_order() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 3)

        async def check() -> None:
            await consumer.commit({T0: 1})
            assert cluster.committed[T0] == 1

        async def stale_at_first() -> None:
            cluster.generation += 1
            await consumer.commit({T0: 2})

        await cancelled_at_each_checkpoint(stale_at_first, check)
        assert cluster.committed[T0] == 2


@simulated
async def test_closing_cancelled_at_any_checkpoint_still_commits_and_leaves() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    left = 0

    async def live() -> None:
        async with triokafka.Consumer("t", **options) as consumer:
            with trio.CancelScope(shield=True):
                await until(consumer, consumer.assignment)
            await trio.lowlevel.checkpoint()

    async def check() -> None:
        nonlocal left
        left += 1
        await trio.sleep(0.1)
        assert broker.beats[-1].member_epoch == -1
        cluster.committed.clear()

    await cancelled_at_each_checkpoint(live, check)
    assert left > 3


@simulated
async def test_a_frozen_coordinator_does_not_delay_closing() -> None:
    _, broker, options = await started()
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await until(consumer, consumer.assignment)
        broker.script(ConsumerGroupHeartbeatRequest, *[SILENCE] * 100)
        await trio.sleep(5)
        before = trio.current_time()
    assert trio.current_time() - before <= LEAVE_TIMEOUT + 0.1


@simulated
async def test_a_leave_request_does_not_overtake_a_join_that_waits_for_its_connection() -> None:
    """Otherwise the coordinator would register a member that does not exist."""
    _, broker, options = await started()
    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(0.0005):
            await consumer.poll(timeout_ms=5_000)
        consumer.unsubscribe()
        await trio.sleep(5)
    epochs = [beat.member_epoch for beat in broker.beats]
    assert epochs in ([], [-1], [0, -1])


@simulated
async def test_member_that_rejoins_while_leaving_joins_afterwards() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))

    async def slow(request: OffsetCommitRequest) -> Any:
        await trio.sleep(3)
        return broker.offset_commit(request)

    async with triokafka.Consumer("t", **options) as consumer:
        await take(consumer, 2)
        at = len(broker.beats)
        broker.script(OffsetCommitRequest, slow)
        consumer.unsubscribe()
        consumer.subscribe("t")
        await until(consumer, consumer.assignment)
    assert [beat.member_epoch for beat in broker.beats[at : at + 2]] == [-1, 0]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    "options",
    [{"session_timeout_ms": 6_000}, {"heartbeat_interval_ms": 100}, {"partition_assignment_strategy": ["range"]}],
    ids=lambda options: next(iter(options)),
)
def test_options_that_the_broker_decides_are_refused(options: dict[str, Any]) -> None:
    """Kafka's own consumer refuses them, too."""
    with pytest.raises(ConfigurationError, match=f"{next(iter(options))} cannot be set with group_protocol='consumer'"):
        triokafka.Consumer(group_id="g", group_protocol="consumer", **options)


def test_a_remote_assignor_needs_the_consumer_protocol() -> None:
    with pytest.raises(ConfigurationError, match="needs group_protocol='consumer'"):
        triokafka.Consumer(group_id="g", group_remote_assignor="range")


@simulated
async def test_a_remote_pattern_needs_the_consumer_protocol() -> None:
    choices: list[dict[str, Any]] = [{"group_id": "g"}, {"group_protocol": "consumer"}]
    for more in choices:
        consumer = triokafka.Consumer(world=current_simulation().host("client").world, **more)
        with pytest.raises(IllegalStateError, match="group_protocol='consumer'"):
            consumer.subscribe(pattern=triokafka.SubscriptionPattern("t.*"))


@simulated
async def test_revoked_partitions_are_not_fetched_after_the_first_call() -> None:
    cluster, broker, options = await started()
    async with triokafka.Consumer("t", **options) as consumer:
        await until(consumer, consumer.assignment)
        await trio.sleep(1)

        async def slow(request: OffsetCommitRequest) -> Any:
            await trio.sleep(20)
            return broker.offset_commit(request)

        cluster.write("t", 0, numbers(0, 1))
        cluster.write("t", 1, numbers(0, 1))
        await take(consumer, 2)
        broker.script(OffsetCommitRequest, *[slow] * 5)
        cluster.assign(T1)
        await trio.sleep(1.5)
        await consumer.poll(timeout_ms=3_000)
        fetched = broker.seen(FetchRequest)[-1]
        assert [partition.partition for topic in fetched.topics for partition in topic.partitions] == [1]


@simulated
async def test_the_failed_commit_of_a_deleted_topic_does_not_delay_a_rebalance() -> None:
    cluster, broker, options = await started(t=1, u=1)
    u = TopicPartition("u", 0)

    def gone(request: OffsetCommitRequest) -> Any:
        response = broker.offset_commit(request)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = 3 if topic.name == "t" else 0
        return response

    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(["t", "u"])
        await until(consumer, lambda: consumer.assignment() == {T0, u})
        cluster.write("t", 0, numbers(0, 2))
        cluster.write("u", 0, numbers(0, 2))
        await take(consumer, 4)
        broker.script(OffsetCommitRequest, *[gone] * 100)
        cluster.assign(u)
        before = trio.current_time()
        await until(consumer, lambda: consumer.assignment() == {u})
        assert trio.current_time() - before < 3
        assert cluster.committed[u] == 2


@simulated
async def test_a_commit_queued_behind_others_times_out() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 2))

    async def slow(request: OffsetCommitRequest) -> Any:
        await trio.sleep(40)
        return broker.offset_commit(request)

    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 2)
        broker.script(OffsetCommitRequest, slow)
        consumer.commit_nowait()
        before = trio.current_time()
        with pytest.raises(KafkaTimeoutError, match="earlier one"):
            await consumer.commit(timeout_ms=1_000)
        assert trio.current_time() - before < 1.1


@simulated
async def test_a_commit_in_the_background_is_made_before_the_member_leaves() -> None:
    """It is so after unsubscribing, and when the listener commits while the consumer is closed."""
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 3))

    class Listener(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            consumer.commit_nowait({T0: 3})

    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        consumer.commit_nowait({T0: 2})
        consumer.unsubscribe()
        await trio.sleep(1)
        assert cluster.committed == {T0: 2}
        consumer.subscribe("t", listener=Listener())
        await take(consumer, 1)
    assert cluster.committed == {T0: 3}


@pytest.mark.parametrize("again", [False, True])
@simulated
async def test_unsubscribe_without_further_polls_calls_the_listener(again: bool) -> None:
    _, _, options = await started()
    revocations: list[list[TopicPartition]] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            revocations.append(list(revoked))

    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe("t", listener=Listener())
        await until(consumer, lambda: consumer.assignment() == {T0, T1})
        consumer.unsubscribe()
        if again:
            consumer.subscribe("t", listener=Listener())
            consumer.unsubscribe()
    assert revocations == [[T0, T1]]


@simulated
async def test_async_for_does_not_return_records_of_revoked_partitions() -> None:
    """A call inside the loop may revoke the partition."""
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer("t", **options) as consumer:
        await take(consumer, 3)
        cluster.write("t", 1, numbers(50, 53))
        cluster.assign(T1)
        await trio.sleep(5)
        while T0 in consumer.assignment():
            await consumer.position(T1)
            await trio.sleep(0.1)
        assert await take(consumer, 3) == numbers(50, 53)


@simulated
async def test_removed_idle_member_is_healthy_until_the_next_poll() -> None:
    cluster, broker, options = await started()
    async with triokafka.Consumer("t", **options) as consumer:
        await until(consumer, lambda: consumer.assignment() == {T0, T1})
        broker.script(ConsumerGroupHeartbeatRequest, refusal(FENCED_MEMBER_EPOCH))
        await trio.sleep(100)
        assert consumer.health().troubles == ()
        cluster.write("t", 0, numbers(0, 1))
        assert await take(consumer, 1) == numbers(0, 1)


@simulated
async def test_a_late_background_commit_does_not_overwrite_the_new_owners_offset() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 3))
    loading = True

    def commit(request: OffsetCommitRequest) -> Any:
        response = broker.offset_commit(request)
        if loading:
            cluster.committed.clear()
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.error_code = 14
        return response

    outcomes: list[Any] = []
    async with triokafka.Consumer("t", **options, enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        broker.script(OffsetCommitRequest, *[commit] * 100)
        consumer.commit_nowait({T0: 1})
        await trio.sleep(0.1)
        consumer.commit_nowait({T0: 2, T1: 7}, on_done=lambda offsets, error: outcomes.append(error))
        cluster.assign(T1)
        await until(consumer, lambda: consumer.assignment() == {T1})
        await trio.sleep(2)
        cluster.committed[T0] = 50  # by the new owner
        loading = False
        await trio.sleep(10)
        assert cluster.committed == {T0: 50, T1: 7}
        [error] = outcomes
        assert isinstance(error, CommitFailedError) and "t-0 went" in str(error)
