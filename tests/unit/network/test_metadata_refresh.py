"""Metadata refreshes of the network client: what triggers them, which callers wait, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedBroker
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_network_client import ASK, client_of
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidTopicError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.network.cluster import Cluster
from triokafka.network.config import NetworkConfig
from triokafka.network.metadata_updater import MetadataUpdater
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.structs import Node, TopicPartition

TP = TopicPartition("orders", 0)


def asked(broker: ScriptedBroker) -> list[list[str | None] | None]:
    """Return the topic names in every Metadata request so far."""
    return [
        None if request.topics is None else [topic.name for topic in request.topics]
        for request in broker.seen(MetadataRequest)
    ]


class Held:
    """Delays the response to the next Metadata request until the test releases it."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.go = trio.Event()
        self._broker = broker
        broker.script(MetadataRequest, self._answer)

    async def _answer(self, request: MetadataRequest) -> MetadataResponse:
        answer = self._broker.metadata(request)  # from the current state
        await self.go.wait()
        return answer


@simulated
async def test_unauthorized_topic_fails_at_once() -> None:
    async with client_of() as (cluster, client):
        cluster.topic_errors.update(secret=29, **{"bad/name": 17})
        started = trio.current_time()
        with pytest.raises(TopicAuthorizationFailedError, match="secret"):
            await client.metadata_for(["orders", "secret"], timeout_ms=60_000)
        with pytest.raises(InvalidTopicError):
            await client.metadata_for(["bad/name"], timeout_ms=60_000)
        assert trio.current_time() - started < 0.5


@simulated
async def test_missing_topic_is_requested_until_the_timeout() -> None:
    """A successful refresh alone does not end the wait."""
    async with client_of() as (cluster, client):
        started = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"'later' does not exist \(waited 5000 ms\)"):
            await client.metadata_for(["later"], timeout_ms=5000)
        assert trio.current_time() - started == pytest.approx(5)
        assert 4 <= len(cluster.brokers[1].seen(MetadataRequest)) <= 12  # with a growing back-off
        assert "later" not in client.metadata.begin_update(client.world.now())  # type: ignore[operator]


@simulated
async def test_topic_that_is_created_during_the_wait_is_found() -> None:
    async with client_of() as (cluster, client):

        async def make() -> None:
            await trio.sleep(3)
            cluster.topics["later"] = 2

        current_simulation().nursery.start_soon(make)
        assert len((await client.metadata_for(["later"], timeout_ms=60_000)).topics["later"].partitions) == 2
        assert 3 < trio.current_time() - current_simulation().started < 5


@simulated
async def test_missing_topic_that_must_exist_fails_at_once() -> None:
    async with client_of() as (_, client):
        started = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError):
            await client.metadata_for(["later"], timeout_ms=60_000, wait_for_creation=False)
        assert trio.current_time() - started < 0.5


@simulated
async def test_topic_without_a_leader_is_not_reported_as_missing() -> None:
    async with client_of() as (cluster, client):
        cluster.topic_errors["orders"] = 5
        with pytest.raises(LeaderNotAvailableError, match="orders"):
            await client.metadata_for(["orders"], timeout_ms=2000)


@simulated
async def test_timeout_names_the_attempted_brokers() -> None:
    """Each broker is tried in turn, as the back-off allows."""
    unreachable = [("127.0.0.1", 1), ("127.0.0.1", 2)]
    async with client_of(bootstrap=unreachable) as (_, client):
        message = r"no metadata for \['orders'\] within 2000 ms.*127\.0\.0\.1:1: .*refused.*127\.0\.0\.1:2: .*refused"
        with pytest.raises(KafkaTimeoutError, match=message):
            await client.metadata_for(["orders"], timeout_ms=2000)


@simulated
async def test_metadata_of_other_topics_does_not_wake_waiters() -> None:
    async with client_of() as (cluster, client):
        cluster.topic_errors["orders"] = 3
        cluster.topics["bills"] = 1
        done: list[str] = []

        async def wait(topic: str) -> None:
            assert topic in (await client.metadata_for([topic], timeout_ms=60_000)).topics
            done.append(topic)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "orders")
            await trio.sleep(1)
            nursery.start_soon(wait, "bills")
            await trio.sleep(1)
            assert done == ["bills"]
            del cluster.topic_errors["orders"]
        assert done == ["bills", "orders"]


@simulated
async def test_listeners_receive_a_snapshot_before_waiters() -> None:
    """Listeners may have to prepare for it, and the snapshot is already in place when they run."""
    async with client_of() as (_, client):
        events: list[str] = []

        def listener(snapshot: Cluster) -> None:
            assert client.cluster is snapshot
            events.append("listener")

        async def wait() -> None:
            await client.metadata_for(["orders"])
            events.append("waiter")

        client.metadata.add_listener(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
        assert events == ["listener", "waiter", "waiter"]


@simulated
async def test_metadata_request_that_is_lost_with_its_connection_is_sent_again() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        broker.script(MetadataRequest, CLOSE, CLOSE)
        assert sorted((await client.refresh_metadata()).nodes) == [1]
        assert len(broker.seen(MetadataRequest)) == 3


@simulated
async def test_refresh_returns_the_response_to_a_request_sent_after_the_call() -> None:
    """The response to a request already in flight may miss the latest changes."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.metadata_for(["orders"])
        held = Held(broker)
        client.request_metadata_update()
        await broker.wait_for(MetadataRequest, 2)
        await trio.sleep(0.01)
        cluster.topics["orders"] = 5
        counts: list[int | None] = []

        async def refresh() -> None:
            counts.append((await client.refresh_metadata()).partition_count("orders"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refresh)
            await trio.testing.wait_all_tasks_blocked()
            held.go.set()
        assert counts == [5]


@simulated
async def test_topic_of_a_request_in_flight_is_not_requested_twice() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        held = Held(broker)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.metadata_for, ["orders"])
            await broker.wait_for(MetadataRequest)
            for _ in range(10):
                nursery.start_soon(client.metadata_for, ["orders"])
            await trio.sleep(0.01)
            held.go.set()
        await trio.sleep(10)
        assert asked(broker) == [["orders"]]


@simulated
async def test_metadata_is_requested_before_data_and_does_not_delay_it() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.metadata_for(["orders"])
        await client.send(1, ASK)
        await trio.sleep(1)
        assert client.ready(1)
        woken: list[int] = []
        client.add_listener(lambda: woken.append(len(broker.seen(MetadataRequest))))
        held = Held(broker)
        client.request_metadata_update()
        assert not client.ready(1)
        await broker.wait_for(MetadataRequest, 3)
        assert client.ready(1)
        client.request_metadata_update()  # the next refresh waits for this one; data waits for neither
        assert client.ready(1)
        assert woken == [2]  # the rejected caller was notified when the request was sent
        held.go.set()


@simulated
async def test_leaderless_partitions_cause_no_flood_of_requests() -> None:
    """The client requests the leader until there is one, with a growing back-off."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        cluster.leaders[TP] = -1
        assert (await client.metadata_for(["orders"])).leader_for(TP) == -1
        for _ in range(600):
            client.request_metadata_update()
            await trio.sleep(0.1)
        assert 50 <= len(broker.seen(MetadataRequest)) <= 80
        cluster.leaders[TP] = 1
        await trio.sleep(1.5)
        assert client.cluster.leader_for(TP) == 1
        before = len(broker.seen(MetadataRequest))
        await trio.sleep(100)
        assert len(broker.seen(MetadataRequest)) == before


@simulated
async def test_failing_cluster_is_queried_with_a_growing_back_off_whatever_the_number_of_callers() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        broker.script(MetadataRequest, *[MetadataResponse()] * 1000)

        async def ask(number: int) -> None:
            with pytest.raises(KafkaTimeoutError):
                await client.metadata_for([f"topic-{number}"], timeout_ms=30_000)

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number)
        assert 28 <= len(broker.seen(MetadataRequest)) <= 45


@simulated
async def test_new_topics_of_a_working_cluster_are_requested_without_delay() -> None:
    """KIP-526."""
    async with client_of() as (cluster, client):
        cluster.topics.update({f"topic-{number}": 1 for number in range(20)})
        await client.refresh_metadata()
        started = trio.current_time()
        for number in range(20):
            await client.metadata_for([f"topic-{number}"])
        assert trio.current_time() - started < 0.2


@simulated
async def test_unused_topic_is_no_longer_requested() -> None:
    """KIP-526."""
    async with client_of(metadata_max_idle_ms=10_000, metadata_max_age_ms=3_000) as (cluster, client):
        broker = cluster.brokers[1]
        cluster.topics["bills"] = 1
        await client.metadata_for(["bills"])
        for _ in range(8):
            await client.metadata_for(["orders"])
            client.metadata.use_topic("orders", client.world.now())
            await trio.sleep(2)
        assert asked(broker)[:3] == [["bills"], ["orders"], ["bills", "orders"]]
        assert asked(broker)[-1] == ["orders"]
        assert list(client.cluster.topics) == ["orders"]
        assert "bills" in (await client.metadata_for(["bills"])).topics


@simulated
async def test_leader_in_an_error_response_is_used_at_once_also_on_an_unknown_broker() -> None:
    """KIP-951."""
    async with client_of() as (cluster, client):
        await client.metadata_for(["orders"])
        newcomer = ScriptedBroker(cluster, 9, current_simulation().host("newcomer").world)
        await newcomer.start(current_simulation().nursery)
        host, port = newcomer.address.split(":")
        assert not client.metadata.update_leader(TP, 9, 1, Node(9, "", -1))
        assert client.metadata.update_leader(TP, 9, 1, Node(9, host, int(port)))
        assert client.cluster.leader_for(TP) == 9
        assert isinstance(await client.send(9, ASK), MetadataResponse)


@simulated
async def test_metadata_of_a_slow_broker_does_not_replace_a_newer_leader() -> None:
    """KIP-320, KIP-951."""
    async with client_of(nodes=2) as (cluster, client):
        await client.metadata_for(["orders"])
        assert client.metadata.update_leader(TP, 2, 1, None)
        await client.refresh_metadata()  # the cluster still reports broker 1, in epoch 0
        assert client.cluster.leader_for(TP) == 2
        cluster.move("orders", 0, 1)
        cluster.move("orders", 0, 1)
        await client.refresh_metadata()
        assert client.cluster.leader_for(TP) == 1


@simulated
async def test_coordinator_that_is_not_available_triggers_a_metadata_refresh() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.refresh_metadata()
        version = client.metadata.version
        refusal = FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=14)])
        broker.script(FindCoordinatorRequest, refusal)
        with pytest.raises(CoordinatorLoadInProgressError):
            await client.find_coordinator("g")
        await trio.sleep(1)
        assert client.metadata.version == version + 1


@simulated
async def test_request_that_times_out_triggers_a_metadata_refresh() -> None:
    async with client_of(nodes=2, request_timeout_ms=2000) as (cluster, client):
        await client.refresh_metadata()
        version = client.metadata.version
        cluster.brokers[2].script(MetadataRequest, SILENCE)
        with pytest.raises(Exception, match="did not answer"):
            await client.send(2, ASK)
        await trio.sleep(1)
        assert client.metadata.version > version


@simulated
async def test_metadata_requested_by_the_user_is_not_shared_with_the_cache() -> None:
    async with client_of() as (cluster, client):
        answers: list[Any] = []
        await client.send(-1, ASK)
        client.submit(-1, MetadataRequest(topics=None), 12, lambda response, error: answers.append(response))
        await trio.sleep(1)
        assert [topic.name for topic in answers[0].topics] == ["orders"]
        assert client.metadata.version == 0
        cluster.brokers[1].script(MetadataRequest, CLOSE)
        client.submit(-1, MetadataRequest(topics=None), 12, lambda response, error: answers.append(error))
        await trio.sleep(1)
        assert "closed the connection" in str(answers[1])


async def waits_of(client: NetworkClient, *calls: Any) -> list[float]:
    """Return how long each of several concurrent calls took; their errors are ignored."""
    waits: list[float] = []

    async def time(call: Any) -> None:
        started = trio.current_time()
        try:
            await call
        except KafkaTimeoutError:
            pass
        waits.append(trio.current_time() - started)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(time, call)
    return waits


@simulated
async def test_every_wait_for_metadata_ends_in_its_own_time() -> None:
    async with client_of(bootstrap=[("127.0.0.1", 1)]) as (_, client):
        waits = await waits_of(
            client,
            client.metadata_for(["a"], timeout_ms=100),
            client.refresh_metadata(timeout_ms=1000),
            client.metadata_for(["a"], timeout_ms=3000),
            client.metadata_for(["b"], timeout_ms=0),
        )
        assert waits == pytest.approx([0, 0.1, 1, 3])


@simulated
async def test_short_timeout_is_not_reported_as_unreachable_brokers() -> None:
    async with client_of() as (cluster, client):
        await client.metadata_for(["orders"])
        await client.refresh_metadata()  # by the broker; the bootstrap server is no longer needed
        cluster.topics["bills"] = 1
        broker = f"broker 1 at {cluster.brokers[1].address}"
        with pytest.raises(KafkaTimeoutError, match=f"within 0 ms: {broker} has not answered yet"):
            await client.metadata_for(["bills"], timeout_ms=0)
        cluster.brokers[1].stop()
        await trio.sleep(1)
        with pytest.raises(KafkaTimeoutError) as raised:
            await client.metadata_for(["others"], timeout_ms=200)
        assert "no longer needed" not in str(raised.value)


@simulated
async def test_other_tasks_run_while_a_large_response_is_applied() -> None:
    """Otherwise heartbeats would be late."""
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
        topics=[
            MetadataResponseTopic(name=f"t{number}", partitions=[MetadataResponsePartition(leader_id=1)])
            for number in range(3000)
        ],
    )

    async def ask(build: object, lowest_version: int | None) -> MetadataResponse:
        nursery.start_soon(count)
        return response

    async def count() -> None:
        while not updater.metadata.topics:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    turns: list[int] = []
    updater = MetadataUpdater(
        NetworkConfig(bootstrap_servers=[("h", 9092)]),
        current_simulation().host("client").world,
        ask=ask,
        check_usable=lambda: None,
        why_unreachable=str,
        on_success=lambda: None,
        on_failure=lambda rebootstrap: None,
        on_attempt=lambda: None,
    )
    updater.metadata.set_all_topics(True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(updater.run)
        assert len((await updater.refresh(60_000)).topics) == 3000
        nursery.cancel_scope.cancel()
    assert len(turns) > 20
