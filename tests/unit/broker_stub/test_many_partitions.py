"""Creating and deleting topics with many partitions does not delay other clients."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from tests.support.bystander import Bystander
from tests.support.odd_requests import Asker, request
from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.broker_stub.controller.scram_control import alter_user_scram_credentials
from triokafka.broker_stub.request.request_memory import RequestMemory
from triokafka.broker_stub.work_budget import BUDGET, run_within_budget
from triokafka.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

T = TypeVar("T")
MANY = 30


class HeldThreads(RealWorld):
    """A world in memory; the threads that run a function of the name ``held`` begin when the test lets them."""

    def __init__(self, held: str = "") -> None:
        super().__init__()
        self.memory = MemoryStorage(crashable=False)
        self.storage = self.memory
        self.asked = trio.Event()
        self.go = trio.Event()
        self.held = held

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if function.__name__ == self.held:
            self.asked.set()
            await self.go.wait()
        return await super().run_in_thread(function, *args)


async def delete(node: Node, name: str) -> int:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
    return (await node.call(request, 5)).responses[0].error_code


async def test_others_are_served_while_the_logs_of_a_large_topic_are_made() -> None:
    world = HeldThreads("prepare_logs")
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("small")
        nursery.start_soon(node.create, "large", MANY)
        await world.asked.wait()
        assert (await node.produce("small", batch(b"v"))).error_code == 0
        assert node.broker.replicas.find("large", 0) is None
        assert "large" not in node.broker.image.topics, "a visible topic must be usable"
        world.go.set()
        while node.broker.replicas.find("large", MANY - 1) is None:
            await trio.lowlevel.checkpoint()
        for number in range(MANY):
            assert (await node.produce("large", batch(b"v"), partition=number)).base_offset == 0


async def test_others_are_served_while_the_deletion_of_a_topic_reaches_the_disk() -> None:
    """All partitions with one sync of the directory, and the answer waits for it."""
    world = HeldThreads("sync_dir")
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("small")
        await node.create("large", MANY)
        codes = []

        async def delete_large() -> None:
            codes.append(await delete(node, "large"))

        nursery.start_soon(delete_large)
        await world.asked.wait()
        assert (await node.produce("small", batch(b"v"))).error_code == 0
        assert not codes
        assert sum(name.startswith("large-") and name.endswith("-delete") for name in world.storage.list_dir("/data"))
        assert not world.storage.exists("/data/large-0")
        world.go.set()
        while not codes:
            await trio.lowlevel.checkpoint()
        assert codes == [0]


def produce_to(count: int) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=batch(b"v")) for number in range(count)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="large", partition_data=data)])


def list_offsets_of(count: int, timestamp: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="large", partitions=asked)])


def delete_records_of(count: int) -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=number, offset=0) for number in range(count)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="large", partitions=asked)], timeout_ms=1000)


def fetch_of(count: int) -> FetchRequest:
    asked = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100) for number in range(count)]
    topic = FetchTopic(topic="large", partitions=asked)
    return FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=[topic])


def codes_of(response: Any) -> list[int]:
    if isinstance(response, FetchResponse):
        return [partition.error_code for partition in response.responses[0].partitions]
    if isinstance(response, ProduceResponse):
        return [partition.error_code for partition in response.responses[0].partition_responses]
    return [partition.error_code for partition in response.topics[0].partitions]


@pytest.mark.parametrize(
    ("request_for", "version"),
    [
        (produce_to, 9),
        (partial(list_offsets_of, timestamp=-1), 5),
        (partial(list_offsets_of, timestamp=0), 5),
        (delete_records_of, 1),
        (fetch_of, 11),
    ],
)
async def test_other_tasks_run_in_the_middle_of_a_large_request(
    request_for: Callable[[int], Any], version: int
) -> None:
    bystander = Bystander()
    async with running_node() as node, trio.open_nursery() as nursery:
        await node.create("large", 10 * BUDGET)
        nursery.start_soon(bystander.run)
        taken = []
        for count in (1, 10 * BUDGET):
            before = bystander.turns
            assert codes_of(await node.call(request_for(count), version)) == [0] * count
            taken.append(bystander.turns - before)
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 5, taken


def _names(count: int) -> list[str]:
    return [f"name-{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("metadata", 9, lambda n: {"topics": [{"name": name} for name in _names(n)]}),
        ("find_coordinator", 4, lambda n: {"coordinator_keys": _names(n)}),
        (
            "describe_configs",
            4,
            lambda n: {"resources": [{"resource_type": 2, "resource_name": name} for name in _names(n)]},
        ),
        (
            "offset_for_leader_epoch",
            4,
            lambda n: {"topics": [{"topic": "t", "partitions": [{"partition": i} for i in range(n)]}]},
        ),
        ("describe_producers", 0, lambda n: {"topics": [{"name": "t", "partition_indexes": list(range(n))}]}),
        ("elect_leaders", 2, lambda n: {"topic_partitions": [{"topic": "t", "partitions": list(range(n))}]}),
        (
            "alter_partition_reassignments",
            0,
            lambda n: {"topics": [{"name": "t", "partitions": [{"partition_index": i} for i in range(n)]}]},
        ),
    ],
)
async def test_other_tasks_run_while_very_many_names_are_looked_up(
    api: str, version: int, fields: Callable[[int], dict[str, Any]]
) -> None:
    """Tools request all topics at once, and any client may request as many as fit into a request."""
    bystander = Bystander()
    async with running_node(auto_create_topics_enable=False) as node, trio.open_nursery() as nursery:
        await node.call(request("find_coordinator", {"coordinator_keys": ["g"]}), 4)
        nursery.start_soon(bystander.run)
        taken = []
        for count in (1, 10 * BUDGET):
            before = bystander.turns
            await node.call(request(api, fields(count)), version)
            taken.append(bystander.turns - before)
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 5, taken


_ALL_OF_ONE_GROUP = {"group_id": "g", "topics": None}
_ALL: list[tuple[str, int, dict[str, Any]]] = [
    ("metadata", 12, {"topics": None}),
    ("describe_topic_partitions", 0, {}),
    ("elect_leaders", 2, {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000}),
    ("offset_fetch", 8, {"groups": [_ALL_OF_ONE_GROUP]}),
    ("offset_fetch", 8, {"groups": [_ALL_OF_ONE_GROUP], "require_stable": True}),
    ("list_groups", 4, {}),
]


def _commit(group: str, topic: str, count: int) -> dict[str, Any]:
    partitions = [{"partition_index": index, "committed_offset": index} for index in range(count)]
    return {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}


@pytest.mark.parametrize(("api", "version", "fields"), _ALL)
async def test_small_request_for_everything_yields_to_others(api: str, version: int, fields: dict[str, Any]) -> None:
    """The request is small; the answer is of many partitions, positions or groups."""
    bystander = Bystander()
    many = 2_000
    async with running_node() as node, trio.open_nursery() as nursery:
        await node.call(request("find_coordinator", {"coordinator_keys": ["g"]}), 4)
        await node.create("small")
        await node.call(request("offset_commit", _commit("g", "small", 1)), 8)
        nursery.start_soon(bystander.run)
        taken = []
        for is_large in (False, True):
            if is_large:
                await node.create("t", 1 if api == "list_groups" else many)
                if api == "offset_fetch":
                    await node.call(request("offset_commit", _commit("g", "t", many)), 8)
                if api == "list_groups":
                    for number in range(many // 4):
                        await node.call(request("offset_commit", _commit(f"g{number}", "t", 1)), 8)
            before = bystander.turns
            await node.call(request(api, fields), version)
            taken.append(bystander.turns - before)
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 3, taken


_OF_GROUPS = "consumer.heartbeat.interval.ms"


def _configs(count: int, kind: int = 2, key: str = "retention.ms") -> list[dict[str, Any]]:
    one = [{"name": key, "value": "6000"}]
    return [{"resource_type": kind, "resource_name": name, "configs": one} for name in _names(count)]


def _quotas(count: int) -> list[dict[str, Any]]:
    ops = [{"key": "producer_byte_rate", "value": 5.0}]
    return [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": ops} for name in _names(count)]


def _topics(count: int, /, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in _names(count)]


def _creation(count: int) -> dict[str, Any]:
    return {"topics": _topics(count, num_partitions=1, replication_factor=1), "timeout_ms": 5000}


_CHANGES: list[tuple[str, int, Callable[[int], dict[str, Any]]]] = [
    ("alter_configs", 2, lambda n: {"resources": _configs(n)}),
    ("incremental_alter_configs", 1, lambda n: {"resources": _configs(n)}),
    ("incremental_alter_configs", 1, lambda n: {"resources": _configs(n, kind=8)}),
    ("alter_client_quotas", 1, lambda n: {"entries": _quotas(n)}),
    ("create_topics", 7, _creation),
    ("create_partitions", 3, lambda n: {"topics": _topics(n, count=2, assignments=None), "timeout_ms": 5000}),
    ("delete_topics", 5, lambda n: {"topic_names": _names(n), "timeout_ms": 5000}),
]


@pytest.mark.parametrize(
    ("api", "version", "fields", "exist"),
    [
        (*change, exist)
        for change in _CHANGES
        for exist in (False, True)
        if not exist or change[0] != "delete_topics"  # that cannot be tried only, and others have turns during the sync
    ],
)
async def test_other_tasks_run_while_very_many_things_are_changed(
    api: str, version: int, fields: Callable[[int], dict[str, Any]], exist: bool
) -> None:
    """Both when the change succeeds and when it fails."""
    bystander, taken = Bystander(), []
    async with running_node() as node, trio.open_nursery() as nursery:
        if exist:
            await node.call(request("create_topics", _creation(10 * BUDGET)), 7)
        nursery.start_soon(bystander.run)
        for count in (1, 10 * BUDGET):
            # The controller alone: what follows a change afterwards has turns of its own.
            before = bystander.turns
            trial = {} if api == "delete_topics" else {"validate_only": True}
            await node.call(request(api, {**fields(count), **trial}), version)
            taken.append(bystander.turns - before)
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 8, taken


def _credentials(count: int) -> list[dict[str, Any]]:
    one = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    return [{"name": name, **one} for name in _names(count)]


async def test_others_have_their_turn_while_very_many_credentials_are_computed() -> None:
    bystander, taken = Bystander(), []
    async with running_node() as node, trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        for count in (1, 10 * BUDGET):
            steps = alter_user_scram_credentials(
                node.process.controller.image,
                request("alter_user_scram_credentials", {"upsertions": _credentials(count)}),  # type: ignore[arg-type]
            )
            before = bystander.turns
            outcome = await run_within_budget(steps)
            taken.append(bystander.turns - before)
            assert len(outcome.records) == count
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 8, taken


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("create_topics", 7, lambda n: {"topics": [{"name": "t", "num_partitions": n, "replication_factor": 1}]}),
        ("create_partitions", 3, lambda n: {"topics": [{"name": "u", "count": n + 1, "assignments": None}]}),
    ],
)
async def test_other_tasks_run_while_very_many_partitions_are_made(
    api: str, version: int, fields: Callable[[int], dict[str, Any]]
) -> None:
    bystander, taken = Bystander(), []
    async with running_node() as node, trio.open_nursery() as nursery:
        await node.create("u")
        nursery.start_soon(bystander.run)
        for count in (1, 10 * BUDGET):
            before = bystander.turns
            await node.call(request(api, {**fields(count), "timeout_ms": 5000, "validate_only": True}), version)
            taken.append(bystander.turns - before)
        nursery.cancel_scope.cancel()
    assert taken[1] >= taken[0] + 8, taken


async def test_large_change_is_atomic_and_precedes_later_requests() -> None:
    """Other tasks run in the middle of it, but do not see half of it."""
    seen = set[int]()
    count = 10 * BUDGET
    async with running_node(num_partitions=1) as node, trio.open_nursery() as nursery:
        answers: dict[str, Any] = {}  # in any order: a large one is encoded in a thread

        async def ask(api: str, version: int, fields: dict[str, Any]) -> None:
            answers[api] = await node.call(request(api, fields), version)

        async def watch() -> None:
            while True:
                seen.add(sum(name.startswith("name-") for name in node.process.controller.image.topics))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(watch)
        async with trio.open_nursery() as asking:
            asking.start_soon(ask, "create_topics", 7, _creation(count))
            while not seen:
                await trio.lowlevel.checkpoint()
            asking.start_soon(ask, "delete_topics", 5, {"topic_names": [f"name-{count - 1}"], "timeout_ms": 5000})
        assert count - 1 in seen and seen <= {0, count, count - 1}
        assert answers["delete_topics"].responses[0].error_code == 0, "the topic was there when it was to be deleted"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("alter_configs", 2, {"resources": _configs(10_001, 32, _OF_GROUPS)}),
        ("incremental_alter_configs", 1, {"resources": _configs(10_001, 32, _OF_GROUPS)}),
        ("alter_client_quotas", 1, {"entries": _quotas(10_001)}),
    ],
)
async def test_a_change_of_more_than_ten_thousand_records_is_refused_as_a_whole(
    api: str, version: int, fields: dict[str, Any]
) -> None:
    """As Kafka's controller does ("excessively large batch operation")."""
    async with running_node() as node:
        before = node.process.controller.image.configs
        response = await node.call(request(api, fields), version)
        results: Any = getattr(response, "responses", None) or response.entries
        assert {one.error_code for one in results} == {errors.PolicyViolationError.code}
        assert len(results) == 10_001
        image = node.process.controller.image
        assert image.configs == before and not image.client_quotas


async def test_memory_of_a_decoded_request_counts_while_it_is_processed() -> None:
    """Together with its bytes, towards ``queued.max.request.bytes``."""
    async with running_broker(queued_max_request_bytes=200_000_000) as broker:
        taken: list[int] = []

        class Watched(RequestMemory):
            def add(self, size: int) -> None:
                super().add(size)
                taken.append(self.used)

        broker.sockets.memory.__class__ = Watched
        asker = Asker(broker.bootstrap_servers)
        asked = request("find_coordinator", {"key_type": 1, "coordinator_keys": _names(20_000)})
        size = len(asked.encode(4))
        assert len((await asker.call(asked, 4)).coordinators) == 20_000
        assert len(taken) == 1 and 10 * size > taken[0] > 5 * size
        asker.close()
        assert broker.sockets.memory.used == 0


async def test_others_are_served_while_a_large_answer_to_a_small_request_is_encoded() -> None:
    world = HeldThreads("_count_and_encode")
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("t", 1_000)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await node.call(request("metadata", {"topics": None}), 12))

        nursery.start_soon(ask)
        await world.asked.wait()
        small = await node.call(request("find_coordinator", {"coordinator_keys": ["g"]}), 4)
        assert len(small.coordinators) == 1 and not answers
        world.go.set()
    assert len(answers[0].topics[0].partitions) == 1_000


@pytest.mark.parametrize("held", ["_decode", "_count_and_encode"])
async def test_others_are_served_while_a_very_large_request_is_decoded_and_its_answer_encoded(held: str) -> None:
    world = HeldThreads(held)
    async with running_node(world=world, auto_create_topics_enable=False) as node, trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def ask() -> None:
            asked = request("find_coordinator", {"key_type": 1, "coordinator_keys": _names(20_000)})
            answers.append(await node.call(asked, 4))

        nursery.start_soon(ask)
        await world.asked.wait()
        small = await node.call(request("find_coordinator", {"coordinator_keys": ["g"]}), 4)
        assert len(small.coordinators) == 1 and not answers
        world.go.set()
    assert len(answers[0].coordinators) == 20_000


async def test_a_log_that_could_not_be_made_ahead_is_retried() -> None:
    """For example when file descriptors were missing for a moment."""
    world = HeldThreads()
    async with running_node(world=world) as node:
        world.memory.inject(DiskFault("open", "*/large-3/*", errno.EMFILE, times=1))
        await node.create("large", MANY)
        for number in range(MANY):
            assert (await node.produce("large", batch(b"v"), partition=number)).error_code == 0


async def test_a_log_that_cannot_be_made_leaves_the_others_alone() -> None:
    """Its partition is offline, and says why; the data directory stays."""
    world = HeldThreads()
    async with running_node(world=world) as node:
        world.memory.inject(DiskFault("open", "*/large-3/*", errno.EMFILE, times=1000))
        await node.create("large", MANY)
        found = [(await node.produce("large", batch(b"v"), partition=number)).error_code for number in range(MANY)]
        assert Counter(found) == {0: MANY - 1, errors.KafkaStorageError.code: 1}
        assert found[3] == errors.KafkaStorageError.code
        assert not node.broker.logs.offline_directories()


async def test_recreated_topic_does_not_inherit_offsets() -> None:
    """The checkpoints belong to the earlier topic, which had the same partitions."""
    world = HeldThreads()
    async with running_node(world=world) as node:
        await node.create("large", MANY)
        for number in range(MANY):
            await node.produce("large", batch(b"a", b"b"), partition=number)
        node.broker.logs.checkpoint_high_watermarks(node.broker.replicas.high_watermarks())
        await node.broker.logs.flush_sealed()
        assert await delete(node, "large") == 0
        await node.create("large", MANY)
        kept = node.broker.logs.read_high_watermarks()
        assert not any(topic == "large" for topic, _ in kept)
        for number in range(MANY):
            assert (await node.produce("large", batch(b"c"), partition=number)).base_offset == 0


async def test_logs_of_a_large_topic_are_spread_over_the_data_directories() -> None:
    async with running_node(world=HeldThreads(), log_dirs=("/one", "/two", "/three")) as node:
        await node.create("small", 3)
        await node.create("large", MANY)
        where = Counter(node.broker.logs.directory_of(TopicPartition("large", number)) for number in range(MANY))
        assert where == {"/one": 10, "/two": 10, "/three": 10}


async def test_a_data_directory_that_fails_while_logs_are_made_keeps_those_that_were_begun_there() -> None:
    """Created in another directory, they would exist twice when the first is back, and no broker would start."""
    world, directories = HeldThreads("prepare_logs"), ("/one", "/two")
    async with running_node(world=world, log_dirs=directories) as node, trio.open_nursery() as nursery:
        await node.create("small", 2)
        nursery.start_soon(node.create, "large", MANY)
        await world.asked.wait()
        broken = world.memory.inject(DiskFault("write", "/two/small-*", errno.EIO))
        await node.produce("small", batch(b"v"), partition=1)
        broken()
        assert list(node.broker.logs.offline_directories()) == ["/two"]
        world.go.set()
        while "large" not in node.broker.image.topics:
            await trio.lowlevel.checkpoint()
        found = Counter([(await node.produce("large", batch(b"v"), partition=i)).error_code for i in range(MANY)])
        assert found == {0: MANY // 2, errors.KafkaStorageError.code: MANY // 2}
    async with running_node(world=world, log_dirs=directories) as node:
        found = Counter([(await node.produce("large", batch(b"v"), partition=i)).base_offset for i in range(MANY)])
        assert found == {1: MANY // 2, 0: MANY // 2}


async def test_other_tasks_run_while_the_partitions_of_a_large_topic_are_opened() -> None:
    seen = set()
    async with running_node() as node, trio.open_nursery() as nursery:
        nursery.start_soon(node.create, "large", 10 * BUDGET)
        while "large" not in node.broker.image.topics:
            seen.add(len(node.broker.logs.all()))
            await trio.lowlevel.checkpoint()
        assert len(seen) >= 5, seen
        assert (await node.produce("large", batch(b"v"), partition=10 * BUDGET - 1)).base_offset == 0


async def test_a_data_directory_that_fails_while_partitions_are_opened_fails_its_own() -> None:
    world, directories = HeldThreads(), ("/one", "/two")
    async with running_node(world=world, log_dirs=directories) as node, trio.open_nursery() as nursery:
        await node.create("small", 2)
        nursery.start_soon(node.create, "large", 4 * BUDGET)
        while len(node.broker.logs.all()) < 2 * BUDGET:
            await trio.lowlevel.checkpoint()
        assert "large" not in node.broker.image.topics
        broken = world.memory.inject(DiskFault("write", "/two/small-*", errno.EIO))
        await node.produce("small", batch(b"v"), partition=1)
        broken()
        while "large" not in node.broker.image.topics:
            await trio.lowlevel.checkpoint()
        found = Counter([(await node.produce("large", batch(b"v"), partition=i)).error_code for i in range(4 * BUDGET)])
        assert found == {0: 2 * BUDGET, errors.KafkaStorageError.code: 2 * BUDGET}


async def test_partitions_that_were_opened_before_defaults_changed_have_the_new_ones() -> None:
    """Both changes are committed together, and both are prepared before either is applied."""
    world = HeldThreads()
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        world.held = "run"  # the sync of the metadata log
        nursery.start_soon(node.create, "first")
        await world.asked.wait()
        alter = AlterConfigsResource(
            resource_type=4, resource_name="", configs=[AlterableConfig(name="log.retention.ms", value="77")]
        )
        nursery.start_soon(node.call, IncrementalAlterConfigsRequest(resources=[alter]), 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(node.create, "large", MANY)
        await trio.testing.wait_all_tasks_blocked()
        world.go.set()
        while node.broker.replicas.find("large", MANY - 1) is None:
            await trio.lowlevel.checkpoint()
        logs = [node.broker.replicas.partition(("large", number)).log for number in range(MANY)]
        assert {log.config.retention_ms for log in logs} == {77}
