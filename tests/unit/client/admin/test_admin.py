"""The admin client against scripted brokers: the destination of each request, its retries, and its errors."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.client.admin import ConfigResource, Results
from triokafka.client.admin.partition_types import TopicPartitionReplica
from triokafka.errors import (
    BrokerNotAvailableError,
    ConfigurationError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnansweredItemError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from triokafka.protocol.api.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from triokafka.protocol.api.list_transactions import ListTransactionsRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.message import Request
from triokafka.structs import TopicPartition


@asynccontextmanager
async def admin_of(*, nodes: int = 1, **options: Any) -> AsyncIterator[tuple[ScriptedCluster, triokafka.AdminClient]]:
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=2)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=nodes)
    for broker in cluster.brokers.values():
        broker.api_versions |= {2: (1, 11), 15: (0, 6), 16: (0, 5), 19: (2, 7), 21: (0, 2), 32: (1, 4), 42: (0, 2)}
    async with triokafka.AdminClient(
        bootstrap_servers=address, world=simulation.host("client").world, **options
    ) as admin:
        yield cluster, admin


def created(**codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code, error_message="why") for name, code in codes.items()]
    )


@simulated
async def test_topics_are_created_by_the_controller_even_after_it_moved() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        first, second = cluster.brokers[1], cluster.brokers[2]
        first.script(CreateTopicsRequest, created(a=41))
        second.script(CreateTopicsRequest, created(a=0))
        await admin._client.refresh_metadata()
        cluster.controller_id = 2
        assert list(await admin.create_topics(["a"])) == ["a"]
        assert len(first.seen(CreateTopicsRequest)) == 1


@simulated
async def test_controller_that_hangs_is_not_waited_for_when_metadata_names_another_broker() -> None:
    """Brokers of a KRaft cluster name any of them, also one that has been stopped a moment ago."""
    async with admin_of(nodes=2) as (cluster, admin):
        cluster.brokers[2].script(ApiVersionsRequest, *[SILENCE] * 9)
        cluster.brokers[1].script(CreateTopicsRequest, created(a=0))
        cluster.controller_id = 2
        await admin._client.refresh_metadata()
        cluster.controller_id = 1
        began = trio.current_time()
        assert list(await admin.create_topics(["a"], timeout_ms=5_000)) == ["a"]
        assert trio.current_time() - began < 2


@simulated
async def test_controller_that_hangs_is_passed_over_while_metadata_goes_on_naming_it() -> None:
    """Brokers name a stopped broker until its session ends. Any other one forwards the request."""
    async with admin_of(nodes=2) as (cluster, admin):
        cluster.brokers[2].script(ApiVersionsRequest, *[SILENCE] * 9)
        cluster.brokers[1].script(CreateTopicsRequest, created(a=0), created(b=0))
        cluster.controller_id = 2
        began = trio.current_time()
        assert list(await admin.create_topics(["a"], timeout_ms=5_000)) == ["a"]
        took = trio.current_time() - began
        assert list(await admin.create_topics(["b"], timeout_ms=5_000)) == ["b"]
        assert took < 2
        assert trio.current_time() - began - took < 0.1


@simulated
async def test_controller_that_was_passed_over_is_asked_again_when_no_other_broker_forwards() -> None:
    """Without KRaft, only the controller itself does what it is asked."""
    async with admin_of(nodes=2) as (cluster, admin):
        cluster.brokers[2].script(ApiVersionsRequest, SILENCE)
        cluster.brokers[1].script(CreateTopicsRequest, *[created(a=41)] * 99)
        cluster.brokers[2].script(CreateTopicsRequest, created(a=0))
        cluster.controller_id = 2
        assert list(await admin.create_topics(["a"], timeout_ms=30_000)) == ["a"]


@pytest.mark.parametrize("controller_id", [1, 2])
@simulated
async def test_timeout_of_a_request_for_the_controller_says_what_it_waited_for(controller_id: int) -> None:
    """The connection is not the problem: the broker waits for a controller that hangs, or for an election."""
    async with admin_of(nodes=2) as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, SILENCE)
        cluster.brokers[2].script(ApiVersionsRequest, *[SILENCE] * 9)
        cluster.controller_id = controller_id
        with pytest.raises(
            KafkaTimeoutError, match=r"not done within 3000 ms: broker 1 at .* has not answered"
        ) as caught:
            await admin.create_topics(["a"], timeout_ms=3_000)
        assert "check that a majority of the controllers runs" in str(caught.value)


@simulated
async def test_timeout_of_a_request_for_any_broker_does_not_mention_the_controller() -> None:
    async with admin_of() as (cluster, admin):
        await admin.list_topics()
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        with pytest.raises(KafkaTimeoutError, match=r"within 1000 ms: bootstrap server .* has not answered yet$"):
            await admin.list_topics(timeout_ms=1_000)


@simulated
async def test_timeout_of_a_call_does_not_say_what_a_concurrent_call_waited_for() -> None:
    """One call ends while the controller is silent; the other waits for another broker, and names no controller."""
    async with admin_of(nodes=2) as (cluster, admin), trio.open_nursery() as nursery:
        cluster.brokers[1].script(CreateTopicsRequest, SILENCE)

        async def create() -> None:
            with pytest.raises(KafkaTimeoutError, match="check that a majority of the controllers runs"):
                await admin.create_topics(["a"], timeout_ms=3_000)

        nursery.start_soon(create)
        await trio.sleep(0.1)
        cluster.brokers[2].api_versions |= {FetchRequest.api_key: (11, 11)}
        cluster.brokers[2].script(FetchRequest, SILENCE)
        with pytest.raises(KafkaTimeoutError, match="not done within 5000 ms") as caught:
            await admin.read_replica(2, TopicPartition("orders", 0), 0, timeout_ms=5_000)
        assert "controller" not in str(caught.value)


@simulated
async def test_only_items_with_a_retriable_error_are_retried() -> None:
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.script(CreateTopicsRequest, created(a=0, b=7, c=36), created(b=0))
        with pytest.raises(TopicAlreadyExistsError, match="topic 'c': why"):
            await admin.create_topics(["a", "b", "c"])
        requests = [[topic.name for topic in request.topics] for request in broker.seen(CreateTopicsRequest)]
        assert requests == [["a", "b", "c"], ["b"]]


@simulated
async def test_several_failures_are_raised_together() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, created(a=44, b=36, c=0))
        with pytest.raises(ExceptionGroup, match="2 of 3 items failed") as caught:
            await admin.create_topics(["a", "b", "c"])
        assert [type(error) for error in caught.value.exceptions] == [PolicyViolationError, TopicAlreadyExistsError]
        outcomes = caught.value.outcomes  # type: ignore[attr-defined]
        assert {name: type(error) for name, error in outcomes.errors.items()} == {
            "a": PolicyViolationError,
            "b": TopicAlreadyExistsError,
        }
        assert outcomes["c"].name == "c"
        assert outcomes.whole is None


@simulated
async def test_failure_of_the_whole_request_differs_from_the_failure_of_one_item() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, *[CLOSE] * 1000, created(a=44))
        with pytest.raises(KafkaError) as caught:
            await admin.create_topics(["a"], timeout_ms=500)
        assert caught.value.outcomes.whole is caught.value  # type: ignore[attr-defined]


@simulated
async def test_leaders_of_many_topics_are_found_with_one_request() -> None:
    async with admin_of() as (cluster, admin):
        names = [f"t{number}" for number in range(20)]
        cluster.topics |= dict.fromkeys(names, 1)
        cluster.topic_ids |= {name: uuid.UUID(int=number + 1) for number, name in enumerate(names)}
        ends = [ListOffsetsPartitionResponse(partition_index=0, offset=9)]
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=name, partitions=ends) for name in names])
        broker = cluster.brokers[1]
        broker.script(ListOffsetsRequest, answer)
        wanted = [TopicPartition(name, 0) for name in [*names, "missing"]]
        found = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
        assert list(found.errors) == [TopicPartition("missing", 0)]
        assert [found[one].offset for one in wanted[:-1]] == [9] * 20
        assert len(broker.seen(MetadataRequest)) < 20


@simulated
async def test_unknown_broker_is_an_error_at_once_that_names_the_known_brokers() -> None:
    async with admin_of(nodes=2) as (_, admin):
        started = trio.current_time()
        resource = ConfigResource.broker(99)
        described = await admin.describe_configs([resource])
        with pytest.raises(
            BrokerNotAvailableError, match="broker 99 is not in the cluster, which has the brokers: 1, 2"
        ):
            described[resource]
        with pytest.raises(BrokerNotAvailableError):
            await admin.assume_coordinator(["g"], 99)
        assert trio.current_time() - started < 1


@simulated
async def test_assumed_coordinator_is_looked_up_only_if_it_is_wrong() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        done = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=0)])
        moved = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=16)])
        cluster.brokers[2].script(DeleteGroupsRequest, done, moved, done)
        cluster.brokers[1].script(DeleteGroupsRequest, done)
        looked_up = [broker.seen(FindCoordinatorRequest) for broker in cluster.brokers.values()]
        await admin.assume_coordinator(["g"], 2)
        await admin.delete_groups(["g"])
        assert looked_up == [[], []]
        await admin.assume_coordinator(["g"], 2)
        await admin.delete_groups(["g"])
        assert sum(len(broker.seen(FindCoordinatorRequest)) for broker in cluster.brokers.values()) == 1


@simulated
async def test_item_missing_from_the_response_is_an_error() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, created(a=0))
        with pytest.raises(UnansweredItemError, match="does not mention") as caught:
            await admin.create_topics(["a", "b"])
        assert caught.value.outcomes["a"].name == "a"  # type: ignore[attr-defined]


@simulated
async def test_request_goes_to_the_leader_that_the_caller_names_and_its_refusal_is_raised() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        partition = TopicPartition("orders", 1)

        def answer(code: int) -> DeleteRecordsResponse:
            result = DeleteRecordsPartitionResult(partition_index=1, error_code=code, low_watermark=4)
            return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="orders", partitions=[result])])

        cluster.brokers[1].script(DeleteRecordsRequest, answer(0), answer(6), answer(0))
        cluster.move("orders", 1, 2)
        assert await admin.delete_records({partition: 4}, leader_id=1) == {partition: 4}
        with pytest.raises(NotLeaderForPartitionError):
            await admin.delete_records({partition: 4}, leader_id=1)
        with pytest.raises(BrokerNotAvailableError, match="broker 7 is not in the cluster"):
            await admin.delete_records({partition: 4}, leader_id=7)
        assert not cluster.brokers[2].seen(DeleteRecordsRequest)


@simulated
async def test_lost_connection_is_retried() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, CLOSE, created(a=0))
        assert list(await admin.create_topics(["a"])) == ["a"]


@simulated
async def test_call_times_out_with_the_last_error() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].script(CreateTopicsRequest, *[created(a=7)] * 1000)
        started = trio.current_time()
        with pytest.raises(Exception, match="topic 'a': why"):
            await admin.create_topics(["a"], timeout_ms=3000)
        assert trio.current_time() - started <= 3.1
        cluster.brokers[1].script(ListGroupsRequest, *[SILENCE] * 10)
        with pytest.raises(KafkaTimeoutError, match="broker 1 did not answer within"):
            await admin.list_groups(timeout_ms=2000)
        assert trio.current_time() - started <= 5.2


@pytest.mark.parametrize(
    ("call", "request_type"),
    [
        (lambda admin: admin.list_groups(timeout_ms=3000), ListGroupsRequest),
        (lambda admin: admin.list_transactions(timeout_ms=3000), ListTransactionsRequest),
        (lambda admin: admin.describe_log_dirs(timeout_ms=3000), DescribeLogDirsRequest),
    ],
    ids=["list_groups", "list_transactions", "describe_log_dirs"],
)
@simulated
async def test_time_limit_covers_all_steps_of_a_call(
    call: Callable[[triokafka.AdminClient], Awaitable[Any]], request_type: type[Request[Any]]
) -> None:
    """A broker that answers the first step late and the second one never."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions |= {35: (0, 4), 66: (0, 1)}

        async def late(request: MetadataRequest) -> Any:
            await trio.sleep(2)
            return broker.metadata(request)

        broker.script(MetadataRequest, late)
        broker.script(request_type, *[SILENCE] * 10)
        started = trio.current_time()
        with pytest.raises(KafkaTimeoutError):
            found = await call(admin)
            _ = [found[key] for key in found]
        assert trio.current_time() - started <= 3.1


@simulated
async def test_silent_broker_does_not_hide_the_log_directories_of_the_others() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        for broker in cluster.brokers.values():
            broker.api_versions |= {35: (0, 4)}
        cluster.brokers[1].script(DescribeLogDirsRequest, *[SILENCE] * 10)
        directory = DescribeLogDirsResult(log_dir="/data")
        cluster.brokers[2].script(DescribeLogDirsRequest, DescribeLogDirsResponse(results=[directory]))
        found = await admin.describe_log_dirs(timeout_ms=3000)
        assert set(found.errors) == {1}
        assert set(found[2]) == {"/data"}


@simulated
async def test_silent_broker_does_not_stop_replicas_of_the_others_from_moving() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        for broker in cluster.brokers.values():
            broker.api_versions |= {34: (0, 2)}
        cluster.brokers[1].script(AlterReplicaLogDirsRequest, *[SILENCE] * 10)
        moved = AlterReplicaLogDirPartitionResult(partition_index=0)
        topic = AlterReplicaLogDirTopicResult(topic_name="orders", partitions=[moved])
        cluster.brokers[2].script(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse(results=[topic]))
        replicas = {TopicPartitionReplica("orders", 0, node): "/data" for node in (1, 2)}
        with pytest.raises(KafkaTimeoutError):
            await admin.alter_replica_log_dirs(replicas, timeout_ms=3000)
        (asked,) = cluster.brokers[2].seen(AlterReplicaLogDirsRequest)
        assert asked.dirs[0].path == "/data"


@simulated
async def test_groups_of_all_brokers_are_listed() -> None:
    async with admin_of(nodes=3) as (cluster, admin):
        for node_id, broker in cluster.brokers.items():
            group = ListedGroup(group_id=f"g{node_id}", protocol_type="consumer", group_state="Stable")
            broker.script(ListGroupsRequest, ListGroupsResponse(groups=[group]))
        assert [listing.group_id for listing in await admin.list_groups()] == ["g1", "g2", "g3"]


@simulated
async def test_filter_unknown_to_the_broker_is_refused_not_ignored() -> None:
    async with admin_of() as (cluster, admin):
        cluster.brokers[1].api_versions[16] = (0, 3)
        with pytest.raises(UnsupportedVersionError, match="ListGroups in versions 0 to 3, this call needs 4 to 5"):
            await admin.list_groups(states=["Empty"])


@simulated
async def test_coordinator_that_moved_is_looked_up_again() -> None:
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        moved = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=16)])
        done = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=0)])
        broker.script(DeleteGroupsRequest, moved, done)
        await admin.delete_groups(["g"])
        assert len(broker.seen(FindCoordinatorRequest)) == 2


@simulated
async def test_reading_a_failed_result_raises_its_error_and_the_others_are_available() -> None:
    async with admin_of() as (cluster, admin):

        def answer(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(group_id=name, group_state="Empty", error_code=30 if name == "secret" else 0)
                    for name in request.groups
                ]
            )

        cluster.brokers[1].script(DescribeGroupsRequest, answer)
        results = await admin.describe_groups(["open", "secret"])
        assert results["open"].state == "Empty"
        assert list(results.errors) == ["secret"]
        with pytest.raises(GroupAuthorizationFailedError):
            _ = results["secret"]


@simulated
async def test_configuration_of_each_broker_is_requested_from_that_broker() -> None:
    async with admin_of(nodes=2) as (cluster, admin):

        def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name)
                    for r in request.resources
                ]
            )

        for broker in cluster.brokers.values():
            broker.script(DescribeConfigsRequest, answer, answer)
        await admin.describe_configs([ConfigResource.broker(2), ConfigResource.broker(1)])
        asked = {
            node_id: [r.resource_name for request in broker.seen(DescribeConfigsRequest) for r in request.resources]
            for node_id, broker in cluster.brokers.items()
        }
        assert asked == {1: ["1"], 2: ["2"]}


@simulated
async def test_offsets_are_requested_from_the_leader_even_after_it_moved() -> None:
    async with admin_of(nodes=2) as (cluster, admin):

        def answer(code: int) -> ListOffsetsResponse:
            partition = ListOffsetsPartitionResponse(partition_index=1, error_code=code, offset=9)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[partition])])

        partition = TopicPartition("orders", 1)
        cluster.brokers[1].script(ListOffsetsRequest, answer(6))
        cluster.brokers[2].script(ListOffsetsRequest, answer(0))
        await admin._client.metadata_for(["orders"])
        cluster.move("orders", 1, 2)
        assert (await admin.list_offsets({partition: "latest"}))[partition].offset == 9


@simulated
async def test_offsets_of_other_leaders_are_found_while_one_leader_is_silent() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        there, silent = TopicPartition("orders", 0), TopicPartition("orders", 1)
        cluster.move("orders", 1, 2)
        partition = ListOffsetsPartitionResponse(partition_index=0, offset=9)
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[partition])])
        cluster.brokers[1].script(ListOffsetsRequest, answer)
        cluster.brokers[2].script(ListOffsetsRequest, *[SILENCE] * 10)
        found = await admin.list_offsets(dict.fromkeys([there, silent], "latest"), timeout_ms=2000)
        assert found[there].offset == 9
        assert list(found.errors) == [silent]


@simulated
async def test_unknown_topic_is_not_retried() -> None:
    async with admin_of() as (_, admin):
        partition = TopicPartition("nope", 0)
        started = trio.current_time()
        results = await admin.list_offsets({partition: "latest"})
        with pytest.raises(UnknownTopicOrPartitionError):
            _ = results[partition]
        assert (await admin.describe_topics(["nope"])).errors
        assert trio.current_time() - started < 2


def test_results_map_items_to_values_and_errors() -> None:
    results = Results({"a": 1}, {"b": ValueError("no")})
    assert list(results) == ["a", "b"]
    assert len(results) == 2
    with pytest.raises(ValueError, match="no"):
        dict(results)


def test_wrong_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not an option of the admin client: did you mean 'client_id'"):
        triokafka.AdminClient(clientid="x")  # type: ignore[call-arg]
