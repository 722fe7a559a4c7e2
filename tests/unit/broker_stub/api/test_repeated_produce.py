"""A repeated Produce request gets the answer that the first one would get."""

from __future__ import annotations

import pytest

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.broker_stub.authorizer import AllowAll
from triokafka.broker_stub.faults.faults import Fault
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.api.produce import ProduceResponse
from triokafka.protocol.frames import decode_response
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.quota_precedence import USER
from triokafka.records import decode_records
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition

DISPATCHER = "triokafka.broker_stub.request.dispatcher"


async def _produce(
    node: Node, repeated: RepeatedRequests | None, value: bytes = b"v", *, version: int = 13, acks: int = -1
) -> ProduceResponse:
    request = node.produce_request("t", batch(value), version=version, acks=acks)
    frame = b"".join(await node.send(request, version, repeated=repeated))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, response = decode_response(ProduceResponse, frame[4:], version=version)
    return response


@pytest.mark.parametrize("version", range(3, 14))
async def test_each_has_its_own_records_offset_and_count(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        for number in range(4):
            response = await _produce(node, repeated, b"%d" % number * (number + 1), version=version)
            expected = await _produce(node, None, version=version)
            answer = response.responses[0].partition_responses[0]
            assert answer.base_offset == 2 * number
            answer.base_offset += 1
            assert response == expected
        assert len(repeated) == 1
        (partition,) = await node.fetch("t", 0)
        values = [record.value for record in decode_records(partition.records or b"")]
        assert values[::2] == [b"0", b"11", b"222", b"3333"]
        metrics = node.broker.dispatcher.metrics.api("Produce")
        assert (metrics.count, metrics.by_version, metrics.errors) == (8, {version: 8}, {0: 8})


async def test_it_is_not_decoded_and_its_answer_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the purpose of recognizing repeated requests."""
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        await _produce(node, repeated)
        await _produce(node, repeated)
        monkeypatch.setattr(Dispatcher, "_route", lambda *_: pytest.fail("it was decoded"))
        monkeypatch.setattr(f"{DISPATCHER}.encode_response", lambda *_, **__: pytest.fail("it was encoded"))
        assert (await _produce(node, repeated)).responses[0].partition_responses[0].base_offset == 2


async def test_acks_0_has_no_answer_and_an_error_closes_the_connection() -> None:
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        for _ in range(3):
            assert await node.send(node.produce_request("t", batch(b"a"), acks=0), 9, repeated=repeated) == []
        for _ in range(3):
            with pytest.raises(CloseConnectionError, match="acks=0"):
                await node.send(node.produce_request("t", batch(b"a"), acks=0, partition=7), 9, repeated=repeated)


async def test_deleted_topics_and_refused_batches_are_errors_in_repeated_requests() -> None:
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        for _ in range(3):
            await _produce(node, repeated)
        request = node.produce_request("t", batch(b"v"), version=13)
        broken = bytearray(batch(b"v"))
        broken[-2] ^= 1
        wrong = node.produce_request("t", bytes(broken), version=13)
        frame = b"".join(await node.send(wrong, 13, repeated=repeated))
        _, response = decode_response(ProduceResponse, frame[4:], version=13)
        assert response.responses[0].partition_responses[0].error_code == errors.CorruptRecordError.code
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert [topic.error_code for topic in (await node.call(delete, 6)).responses] == [0]
        frame = b"".join(await node.send(request, 13, repeated=repeated))
        _, response = decode_response(ProduceResponse, frame[4:], version=13)
        assert response.responses[0].partition_responses[0].error_code == errors.UnknownTopicIdError.code


async def test_an_armed_fault_fails_it_once() -> None:
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        for after_append in (False, True):
            await _produce(node, repeated)
            await _produce(node, repeated)
            fault = Fault(errors.NotLeaderForPartitionError, api_key=0, topic="t", after_append=after_append)
            node.broker.faults.arm(fault)
            codes = [(await _produce(node, repeated)).responses[0].partition_responses[0].error_code for _ in range(2)]
            assert codes == [errors.NotLeaderForPartitionError.code, 0]


async def test_quota_holds_back_and_the_answer_says_so() -> None:
    """(KIP-219)."""
    async with running_node() as node:
        await node.create("t")
        repeated = RepeatedRequests()
        for _ in range(3):
            assert (await _produce(node, repeated)).throttle_time_ms == 0
        node.broker.quotas.configure({((USER, "test"),): {"producer_byte_rate": 1.0}})
        response = await _produce(node, repeated)
        assert response.throttle_time_ms > 0
        assert response.responses[0].partition_responses[0].base_offset == 3


class _Denying(AllowAll):
    """Allows everything, until the test denies writing."""

    def __init__(self) -> None:
        self.denies = False

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return not (self.denies and operation is AclOperation.WRITE)


async def test_authorizer_is_asked_each_time() -> None:
    authorizer = _Denying()
    async with running_node(authorizer=authorizer) as node:
        node.broker.dispatcher.services.allows_all = False
        await node.create("t")
        repeated = RepeatedRequests()
        for _ in range(3):
            assert (await _produce(node, repeated)).responses[0].partition_responses[0].error_code == 0
        authorizer.denies = True
        answer = (await _produce(node, repeated)).responses[0].partition_responses[0]
        assert answer.error_code == errors.TopicAuthorizationFailedError.code
        assert node.broker.replicas.partition(TopicPartition("t", 0)).log.log_end_offset == 3
