"""Client quotas (KIP-13, 124, 219)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.broker_stub.api.describe_client_quotas import matching_quotas
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.metadata.image import MetadataImage, QuotaEntity
from triokafka.broker_stub.quota_rate import QuotaRate
from triokafka.broker_stub.request.client_quotas import ClientQuotas, QuotaKind, QuotaUsage
from triokafka.metrics.metric_config import MetricConfig
from triokafka.protocol.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from triokafka.protocol.api.fetch import FetchResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.list_groups import ListGroupsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.produce import ProduceResponse
from triokafka.protocol.frames import encode_request

PRODUCE, FETCH, REQUEST = QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST


def entity(**parts: str | None) -> QuotaEntity:
    """``user=``, ``client=``; None is the default."""
    return tuple(sorted((kind.replace("client", "client-id"), name) for kind, name in parts.items()))


def quotas_of(*entries: tuple[QuotaEntity, float], kind: QuotaKind = PRODUCE) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.configure({who: {kind.value: value} for who, value in entries})
    return quotas


# The rate


def rate_of_eleven_seconds() -> QuotaRate:
    return QuotaRate(MetricConfig(samples=11, window_seconds=1))


def test_a_rate_is_over_ten_whole_windows_at_least() -> None:
    """A client is not throttled for its first bytes."""
    rate = rate_of_eleven_seconds()
    assert rate.measure(5.0) == 0.0
    rate.record(1000, 5.0)
    assert rate.measure(5.0) == 100.0
    rate.record(1000, 9.5)
    assert rate.measure(9.5) == pytest.approx(2000 / 10.5)


def test_bytes_older_than_all_windows_do_not_count() -> None:
    """Eleven windows of a second."""
    rate = rate_of_eleven_seconds()
    rate.record(1000, 0.0)
    rate.record(500, 10.9)
    assert rate.measure(10.9) > 100
    assert rate.measure(11.0) == pytest.approx(500 / 10.1)
    assert not rate.is_over(21.8)
    assert rate.is_over(22.0)


def test_throttle_of_a_limit_of_zero_has_no_end() -> None:
    rate = rate_of_eleven_seconds()
    assert rate.throttle_seconds(0.0, 1.0) == 0.0
    rate.record(1, 1.0)
    assert rate.throttle_seconds(0.0, 1.0) == float("inf")


def test_the_delay_brings_the_rate_down_to_the_quota() -> None:
    """200 kB/s against 100 kB/s over 10 s is 10 s."""
    quotas = quotas_of((entity(user="u"), 100_000))
    assert quotas.record(PRODUCE, "u", "c", 1_000_000, 50.0) == 0
    assert quotas.record(PRODUCE, "u", "c", 1_000_000, 50.0) == 10_000


@pytest.mark.parametrize("quota", [1.0, 1e-300])
def test_no_delay_is_longer_than_an_answer_can_say(quota: float) -> None:
    """The field has 32 bits; an answer that cannot be encoded would close the connection after the work was done."""
    assert quotas_of((entity(user=None), quota)).record(PRODUCE, "u", "c", 50_000_000, 1.0) == 2**31 - 1
    for strict in (False, True):
        quotas = quotas_of((entity(user=None), quota / 10_000), kind=QuotaKind.MUTATION)
        delays = [quotas.record_mutations("u", "c", 1_000, 1.0, strict=strict)[1] for _ in range(2)]
        assert delays[1] == 2**31 - 1


def test_taken_back_bytes_do_not_count() -> None:
    """A throttled fetch gets no records."""
    quotas = quotas_of((entity(client="c"), 100), kind=FETCH)
    assert quotas.record(FETCH, "u", "c", 3000, 1.0) == 20_000
    quotas.take_back(FETCH, "u", "c", 3000, 1.0)
    assert quotas.record(FETCH, "u", "c", 1000, 1.0) == 0
    assert quotas.most_at_once("u", "c") == 1000
    assert quotas.most_at_once("u", "other") == float("inf")


def test_time_costs_one_window_of_silence_at_most() -> None:
    """KIP-124: request_percentage."""
    quotas = quotas_of((entity(user=None), 1), kind=REQUEST)
    assert quotas.record(REQUEST, "u", "c", 5000, 1.0) == 1000


# Whose quota


def test_the_most_specific_quota_holds() -> None:
    """User and client id before user before client id, names before defaults."""
    order = [
        entity(user="u", client="c"),
        entity(user="u", client=None),
        entity(user="u"),
        entity(user=None, client="c"),
        entity(user=None, client=None),
        entity(user=None),
        entity(client="c"),
        entity(client=None),
    ]
    for first in range(len(order)):
        quotas = quotas_of(*((who, 10.0 + number) for number, who in enumerate(order) if number >= first))
        assert quotas.limit(PRODUCE, "u", "c") == 10 + first
    assert quotas_of((entity(client=None), 5)).limit(PRODUCE, "u", "") is None
    assert quotas_of((entity(client="d"), 5)).limit(PRODUCE, "u", "c") is None
    assert quotas_of((entity(user="u"), 5)).limit(FETCH, "u", "c") is None


def test_clients_of_one_quota_share_its_rate() -> None:
    """All clients of a user share the user's quota. A default gives each entity a quota of its own."""
    quotas = quotas_of((entity(user="u"), 100), (entity(client=None), 100))
    assert quotas.record(PRODUCE, "u", "a", 1000, 1.0) == 0
    assert quotas.record(PRODUCE, "u", "b", 1000, 1.0) > 0
    assert quotas.record(PRODUCE, "v", "a", 1000, 1.0) == 0
    assert quotas.record(PRODUCE, "v", "b", 1000, 1.0) == 0
    assert quotas.record(PRODUCE, "w", "a", 1000, 1.0) > 0


def test_a_changed_quota_holds_at_once() -> None:
    """Without a restart."""
    quotas = quotas_of((entity(user="u"), 100))
    assert quotas.record(PRODUCE, "u", "a", 2000, 1.0) == 10_000
    quotas.configure({entity(user="u"): {PRODUCE.value: 1000.0}})
    assert quotas.record(PRODUCE, "u", "a", 0, 1.0) == 0
    quotas.configure({})
    assert not quotas.limits(PRODUCE)


def test_rates_of_many_clients_are_forgotten_when_they_mean_nothing() -> None:
    """Clients choose their ids; memory stays bounded by those of the last seconds."""
    quotas = quotas_of((entity(client=None), 100))
    for number in range(3000):
        quotas.record(PRODUCE, "u", f"c{number}", 1, number / 10)
    assert len(quotas) <= 1001


def test_new_client_costs_no_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that choose a new id for each request are many at the same time."""
    looked: list[float] = []
    is_over = QuotaUsage.is_over

    def look(usage: QuotaUsage, now: float) -> bool:
        looked.append(now)
        return is_over(usage, now)

    monkeypatch.setattr(QuotaUsage, "is_over", look)
    quotas = quotas_of((entity(client=None), 100))
    for number in range(4000):
        quotas.record(PRODUCE, "u", f"c{number}", 1, 1.0)
    assert len(quotas) == 4000 and len(looked) < 2 * 4000


# The APIs


def altered(who: QuotaEntity, validate_only: bool = False, **values: float | None) -> AlterClientQuotasRequest:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in who]
    return AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)], validate_only=validate_only)


async def alter(node: Node, who: QuotaEntity, **values: Any) -> AlterClientQuotasResponse:
    return await node.call(altered(who, **values), 1)


async def described(node: Node, *conditions: ComponentData, strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(components=list(conditions), strict=strict)
    response = await node.call(request, version)
    if response.error_code:
        return response.error_code
    assert response.entries is not None
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {v.key: v.value for v in entry.values}
        for entry in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_and_removed(version: int) -> None:
    """KIP-546."""
    async with running_node() as node:
        both = entity(user="u", client=None)
        for who, values in ((both, {"producer_byte_rate": 5.0, "request_percentage": 0.5}), (entity(user="u"), {})):
            (result,) = (await node.call(altered(who, False, **{"consumer_byte_rate": 7.0, **values}), version)).entries
            assert result.error_code == 0
            assert [(part.entity_type, part.entity_name) for part in result.entity] == list(who)
        assert await described(node, version=version) == {
            both: {"producer_byte_rate": 5.0, "request_percentage": 0.5, "consumer_byte_rate": 7.0},
            entity(user="u"): {"consumer_byte_rate": 7.0},
        }
        exact = ComponentData(entity_type="user", match_type=0, match="u")
        default = ComponentData(entity_type="client-id", match_type=1, match=None)
        anything = ComponentData(entity_type="client-id", match_type=2, match=None)
        assert list(await described(node, exact, strict=True)) == [entity(user="u")]
        assert list(await described(node, exact, default)) == [both]
        assert list(await described(node, anything)) == [both]
        await alter(node, both, producer_byte_rate=None, request_percentage=None, consumer_byte_rate=None)
        assert list(await described(node)) == [entity(user="u")]


@pytest.mark.parametrize(
    ("who", "values"),
    [
        ((), {"producer_byte_rate": 1.0}),
        (entity(user=""), {"producer_byte_rate": 1.0}),
        (entity(shoe="u"), {"producer_byte_rate": 1.0}),
        (entity(user="u", ip="192.0.2.1"), {"producer_byte_rate": 1.0}),
        (entity(ip="192.0.2.1"), {"producer_byte_rate": 1.0}),
        (entity(user="u"), {"connection_creation_rate": 1.0}),
        (entity(user="u"), {"producer_byte_rate": 0.0}),
        (entity(user="u"), {"producer_byte_rate": 1.5}),
        (entity(user="u"), {"producer_byte_rate": 1e30}),
        (entity(user="u"), {"request_percentage": float("nan")}),
    ],
)
async def test_invalid_quota_is_refused(who: QuotaEntity, values: dict[str, float]) -> None:
    """No quota changes."""
    async with running_node() as node:
        (result,) = (await alter(node, who, **values)).entries
        assert result.error_code == errors.InvalidRequestError.code
        assert result.error_message
        assert await described(node) == {}


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        ([("", 0, "u")], errors.InvalidRequestError.code),
        ([("shoe", 0, "u")], errors.UnsupportedVersionError.code),
        ([("user", 0, None)], errors.InvalidRequestError.code),
        ([("user", 1, "u")], errors.InvalidRequestError.code),
        ([("user", 9, "u")], errors.InvalidRequestError.code),
        ([("user", 0, "u"), ("user", 1, None)], errors.InvalidRequestError.code),
        ([("user", 0, "u"), ("ip", 1, None)], errors.InvalidRequestError.code),
    ],
)
async def test_conditions_that_make_no_sense_are_refused(
    conditions: list[tuple[str, int, str | None]], code: int
) -> None:
    """As Kafka's own image refuses them."""
    async with running_node() as node:
        asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in conditions]
        assert await described(node, *asked) == code


async def test_quotas_of_many_entities_are_described_in_steps_and_in_order() -> None:
    """Other requests are answered meanwhile: 45,000 entities once held the event loop for seconds."""
    quotas = {entity(user=f"u{number:04}"): {"producer_byte_rate": 1.0} for number in range(1_000, 0, -1)}
    steps = matching_quotas(MetadataImage(client_quotas=quotas), DescribeClientQuotasRequest(components=[]))
    passed = 0
    while True:
        try:
            passed += next(steps)
        except StopIteration as end:
            names = [one.entity[0].entity_name for one in end.value.entries]
            break
    assert passed == 1_000
    assert names == [f"u{number:04}" for number in range(1, 1_001)]


async def test_checking_only_changes_nothing() -> None:
    """``validate_only``."""
    async with running_node() as node:
        (result,) = (await node.call(altered(entity(user="u"), True, producer_byte_rate=5.0), 1)).entries
        assert result.error_code == 0
        assert await described(node) == {}


# What a client sees


async def exchange(node: Node, *requests: tuple[Any, int]) -> list[tuple[float, bytes]]:
    """Send all over one connection; answers with the time at which each came."""
    host, _, port = node.broker.bootstrap_servers.partition(":")
    stream = await node.broker.world.connect(host, int(port))
    for number, (request, version) in enumerate(requests):
        await stream.send(*encode_request(request, version=version, correlation_id=number, client_id="c"))
    answers: list[tuple[float, bytes]] = []
    data, buffer = b"", bytearray(65536)
    while len(answers) < len(requests):
        size = await stream.receive_into(memoryview(buffer))
        assert size
        data += buffer[:size]
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            end = 4 + int.from_bytes(data[:4], "big")
            answers.append((trio.current_time(), data[4:end]))
            data = data[end:]
    stream.close()
    return answers


def throttle_of(answer: bytes, response_type: Any, version: int) -> int:
    from triokafka.protocol.frames import decode_response

    _, response = decode_response(response_type, answer, version=version)
    throttle_ms: int = response.throttle_time_ms
    return throttle_ms


async def test_a_producer_over_its_quota_is_answered_at_once_and_then_not_read() -> None:
    """KIP-219: the records are appended, the answer says how long, the next request waits."""
    async with running_node() as node:
        await node.create("t")
        await alter(node, entity(client=None), producer_byte_rate=10_000.0)
        produce = node.produce_request("t", batch(b"x" * 101_000))
        small = node.produce_request("t", batch(b"x"))
        started = trio.current_time()
        first, second = await exchange(node, (produce, 9), (small, 9))
        throttle = throttle_of(first[1], ProduceResponse, 9)
        assert 100 <= throttle <= 200
        assert second[0] - started >= throttle / 1000
        (partition,) = await node.fetch("t", 0)
        assert partition.high_watermark == 2


async def test_acks_0_is_throttled_though_nothing_is_answered() -> None:
    """Only the connection shows it, which is read again without an answer."""
    async with running_node() as node:
        await node.create("t")
        await alter(node, entity(user="ANONYMOUS"), producer_byte_rate=10_000.0)
        produce = node.produce_request("t", batch(b"x" * 101_000), acks=0)
        host, _, port = node.broker.bootstrap_servers.partition(":")
        stream = await node.broker.world.connect(host, int(port))
        started = trio.current_time()
        await stream.send(*encode_request(produce, version=9, correlation_id=1, client_id="c"))
        await stream.send(*encode_request(ListGroupsRequest(), version=3, correlation_id=2, client_id="c"))
        assert await stream.receive_into(memoryview(bytearray(100)))
        assert trio.current_time() - started >= 0.1
        stream.close()


async def test_a_consumer_over_its_quota_gets_an_empty_answer_and_loses_nothing() -> None:
    """In a session the epoch is used up, and the next fetch has the records."""
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"x" * 3000))
        await alter(node, entity(user="test"), consumer_byte_rate=1000.0)
        full = node.fetch_request("t", [0], version=11, session_epoch=0)
        first = await node.call(full, 11)
        assert (first.throttle_time_ms, len(first.responses)) == (0, 1)
        session = first.session_id
        assert session
        more = node.fetch_request("t", [0], version=11, session_id=session, session_epoch=1)
        for _ in range(4):
            answer = await node.call(more, 11)
            assert answer.session_id == session
            if answer.throttle_time_ms:
                break
            more.session_epoch += 1
        assert isinstance(answer, FetchResponse)
        assert (answer.throttle_time_ms > 0, answer.responses, answer.error_code) == (True, [], 0)
        for _ in range(3):  # what was not answered does not count
            more.session_epoch += 1
            assert 0 < (await node.call(more, 11)).throttle_time_ms <= answer.throttle_time_ms
        await alter(node, entity(user="test"), consumer_byte_rate=None)
        more.session_epoch += 1
        again = await node.call(more, 11)
        assert len(again.responses[0].partitions[0].records or b"") > 3000


async def test_other_brokers_are_never_held_back() -> None:
    """Quotas of clients do not apply to them."""
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"x" * 3000))
        partition = node.broker.replicas.partition(("t", 0))
        partition.make_leader(
            leader_epoch=partition.leader_epoch, partition_epoch=9, replicas=(1, 2), in_sync_replicas=(1, 2)
        )
        await alter(node, entity(client=None), consumer_byte_rate=1.0)
        for _ in range(5):
            answer = await node.call(node.fetch_request("t", [0], version=11, replica_id=2), 11)
            assert answer.throttle_time_ms == 0
            assert len(answer.responses[0].partitions[0].records or b"") > 3000


async def test_fetch_is_limited_to_the_size_that_its_quota_admits() -> None:
    """More than ten windows' worth would be throttled for ever."""
    async with running_node() as node:
        await node.create("t")
        for _ in range(10):
            await node.produce("t", batch(b"x" * 1000))
        await alter(node, entity(user="test"), consumer_byte_rate=300.0)
        (partition,) = await node.fetch("t", 0)
        assert 1000 < len(partition.records or b"") <= 3000


async def test_time_that_requests_take_is_counted_and_time_that_they_wait_is_not() -> None:
    """KIP-124: ``request_percentage``."""
    async with running_node() as node:
        await node.create("t")
        await alter(node, entity(user="test"), request_percentage=0.000_01)
        assert 0 < (await node.call(ListGroupsRequest(), 3)).throttle_time_ms <= 1000
        await alter(node, entity(user="test"), request_percentage=5.0)
        waiting = node.fetch_request("t", [0], version=11, max_wait_ms=600, min_bytes=1)
        assert (await node.call(waiting, 11)).throttle_time_ms == 0


async def test_time_that_a_request_waits_for_the_controller_is_not_counted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Kafka a forwarded request has no handler thread meanwhile; under this clock only waits take time."""
    async with running_node() as node:
        await alter(node, entity(user="test"), request_percentage=1.0)
        create_topics = LocalControllerGateway.create_topics

        async def slow(*args: Any, **options: Any) -> Any:
            await trio.sleep(10)
            return await create_topics(*args, **options)

        monkeypatch.setattr(LocalControllerGateway, "create_topics", slow)
        request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        started = trio.current_time()
        assert (await node.call(request, 7)).throttle_time_ms == 0
        assert trio.current_time() - started >= 10
        assert node.broker.dispatcher.busy_seconds < 1


async def test_requests_that_may_wait_for_groups_have_a_quota_as_well() -> None:
    """Only their waits do not count."""
    async with running_node() as node:
        await alter(node, entity(user="test"), request_percentage=0.000_01)
        answer = await node.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
        assert answer.throttle_time_ms > 0


async def test_requests_of_other_nodes_have_no_quota() -> None:
    """A quota of all users must not slow replication down."""
    async with running_node() as node:
        await node.create("t")
        await alter(node, entity(user=None), request_percentage=0.000_01)
        follower = node.fetch_request("t", [0], version=11, max_wait_ms=0)
        assert (await node.call(follower, 11)).throttle_time_ms > 0
        follower.replica_id = 2
        assert (await node.call(follower, 11)).throttle_time_ms == 0


async def test_a_quota_that_is_so_already_writes_no_record() -> None:
    """The same holds for the removal of a quota that does not exist."""
    async with running_node() as node:
        await alter(node, entity(user="u"), producer_byte_rate=5.0)
        before = node.broker.image.offset
        await alter(node, entity(user="u"), producer_byte_rate=5.0, consumer_byte_rate=None)
        assert node.broker.image.offset == before


async def test_quotas_are_known_after_a_restart() -> None:
    """Quotas are records of the metadata log."""
    from tests.unit.broker_stub.api.node import memory_world

    world = memory_world()
    async with running_node(world=world) as node:
        await alter(node, entity(user=None), producer_byte_rate=5.0)
    async with running_node(world=world) as node:
        assert await described(node) == {entity(user=None): {"producer_byte_rate": 5.0}}
        assert node.broker.quotas.limit(PRODUCE, "anybody", "c") == 5.0


def test_partitions_that_were_saved_up_may_be_made_at_once_and_the_last_may_cost_more_than_is_left() -> None:
    """Kafka's own example: ten a second, saved up for ten seconds (KIP-599)."""
    quotas = ClientQuotas(mutation_burst_seconds=10)
    quotas.configure({entity(user="u"): {"controller_mutation_rate": 10.0}})

    def create(partitions: int, now: float, *, strict: bool = True) -> tuple[bool, int]:
        return quotas.record_mutations("u", "c", partitions, now, strict=strict)

    assert create(90, 0.0) == (True, 0)
    assert create(90, 0.0) == (True, 0)
    assert create(90, 0.0) == (False, 8000)
    assert create(1, 5.0) == (False, 3000)
    assert create(1, 8.0) == (True, 0)
    assert create(1, 8.0) == (False, 100)
    assert create(100, 1000.0, strict=False) == (True, 0), "no more is saved up than ten seconds' worth"
    assert create(50, 1000.0, strict=False) == (True, 5000)
    assert create(50, 1000.0, strict=False) == (True, 10_000)
    assert quotas.record_mutations("other", "c", 1000, 0.0, strict=True) == (True, 0)


def test_clients_that_have_not_created_for_long_are_forgotten() -> None:
    """Memory stays bounded."""
    quotas = ClientQuotas()
    quotas.configure({entity(user=None): {"controller_mutation_rate": 1.0}})
    for number in range(1500):
        quotas.record_mutations(f"u{number}", "", 1, float(number), strict=True)
    assert len(quotas._buckets) < 1100


async def test_topics_created_too_fast_are_refused_one_by_one() -> None:
    """From version 6 on with an error; before, the topics are made and the client is silenced (KIP-599)."""
    async with running_node() as node:
        await alter(node, entity(user="test"), controller_mutation_rate=0.1)  # so 1.1 may be saved up
        create = create_topics("a", "b", "c", partitions=1)
        answer = await node.call(create, 6)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"a": 0, "b": 0, "c": errors.ThrottlingQuotaExceededError.code}
        assert 5_000 < answer.throttle_time_ms <= 9_000
        assert set(node.broker.image.topics) == {"a", "b"}
        more = await node.call(create_topics("d", partitions=10), 5)
        assert (more.topics[0].error_code, more.throttle_time_ms > 50_000) == (0, True)


async def test_deletions_and_new_partitions_count_towards_the_quota() -> None:
    """A client whose Metadata requests create topics is silenced (KIP-599)."""
    async with running_node(num_partitions=20) as node:
        for name in ("one", "two"):
            await node.create(name, 20)
        await alter(node, entity(user="test"), controller_mutation_rate=1.0)
        deleted = await node.call(DeleteTopicsRequest(topic_names=["one", "two"], timeout_ms=1000), 5)
        assert sorted(result.error_code for result in deleted.responses) == [0, 89]
        assert deleted.throttle_time_ms > 5000
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="two", count=21, assignments=None)], timeout_ms=1000
        )
        assert [result.error_code for result in (await node.call(grow, 3)).results] == [89]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="three")])
        found = await node.call(asked, 9)
        assert (found.topics[0].error_code, found.throttle_time_ms > 20_000) == (3, True)
        assert "three" in node.broker.image.topics


def create_topics(*names: str, partitions: int) -> CreateTopicsRequest:
    """Topics with so many partitions each."""
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def test_usage_of_quotas_has_a_rate_and_an_average_throttle_time() -> None:
    quotas = quotas_of((entity(user="u"), 100_000))
    quotas.record(PRODUCE, "u", "c", 2_000_000, 50.0)
    quotas.record(PRODUCE, "other", "c", 2_000_000, 50.0)
    (found,) = quotas.usages(50.0)
    assert (found.kind, found.user, found.client_id) == (PRODUCE, "u", "")
    assert found.rate == pytest.approx(200_000)
    assert found.throttle_seconds == pytest.approx(10.0)
    (later,) = quotas.usages(70.0)
    assert (later.rate, later.throttle_seconds) == (0.0, 0.0)
