"""Claims about Produce."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import NOW_MS, batch, running_node
from triokafka import errors
from triokafka.broker_stub.faults.faults import Fault
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.records import decode_records


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_version_appends_and_names_the_offset(version: int) -> None:
    """Version 13 names the topic by its id."""
    async with running_node() as node:
        await node.create("t")
        first = await node.produce("t", batch(b"a", b"b"), version=version)
        second = await node.produce("t", batch(b"c"), version=version, acks=1)
        assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 0, -1)
        assert (second.error_code, second.base_offset) == (0, 2)
        if version >= 5:
            assert first.log_start_offset == 0
        (partition,) = await node.fetch("t", 0)
        assert [(r.offset, r.value, r.timestamp) for r in decode_records(partition.records or b"")] == [
            (0, b"a", NOW_MS),
            (1, b"b", NOW_MS + 1),
            (2, b"c", NOW_MS),
        ]


async def test_log_append_time_is_answered_where_the_topic_stamps_records() -> None:
    async with running_node() as node:
        await node.create("t", message_timestamp_type="LogAppendTime")
        before = node.broker.world.wall_ms()
        produced = await node.produce("t", batch(b"a", timestamp=5))
        assert before <= produced.log_append_time_ms <= node.broker.world.wall_ms()
        (partition,) = await node.fetch("t", 0)
        assert decode_records(partition.records or b"")[0].timestamp == produced.log_append_time_ms


@pytest.mark.parametrize("acks", [-2, 2, 32767])
async def test_other_acks_are_refused_and_nothing_is_written(acks: int) -> None:
    async with running_node() as node:
        await node.create("t")
        assert (await node.produce("t", batch(b"a"), acks=acks)).error_code == errors.InvalidRequiredAcksError.code
        (partition,) = await node.fetch("t", 0)
        assert partition.high_watermark == 0


async def test_acks_0_has_no_answer_and_an_error_closes_the_connection() -> None:
    async with running_node() as node:
        await node.create("t")
        assert await node.send(node.produce_request("t", batch(b"a"), acks=0), 9) == []
        (partition,) = await node.fetch("t", 0)
        assert partition.high_watermark == 1
        with pytest.raises(CloseConnectionError, match="acks=0"):
            await node.send(node.produce_request("t", batch(b"a"), acks=0, partition=7), 9)


async def test_acks_all_is_answered_when_the_followers_have_it() -> None:
    """The test plays the follower: its fetches move the high watermark."""
    async with running_node() as node:
        await node.create("t")
        partition = node.broker.replicas.partition(("t", 0))
        partition.make_leader(
            leader_epoch=partition.leader_epoch, partition_epoch=9, replicas=(1, 2), in_sync_replicas=(1, 2)
        )
        answers: list[int] = []

        async def produce() -> None:
            answers.append((await node.produce("t", batch(b"a"))).error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            assert node.broker.sockets.slots.free == node.broker.config.num_io_threads
            (consumer,) = await node.fetch("t", 0)
            (follower,) = await node.fetch("t", 0, replica_id=2)
            assert (len(consumer.records or b""), len(follower.records or b"")) == (0, len(batch(b"a")))
            assert not answers
            await node.fetch("t", 1, replica_id=2)
        assert answers == [0]
        (consumer,) = await node.fetch("t", 0)
        assert len(consumer.records or b"")


async def test_partitions_fail_one_by_one() -> None:
    async with running_node() as node:
        await node.create("t", partitions=2)
        good, bad = batch(b"a"), bytearray(batch(b"b"))
        bad[-1] ^= 1
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=0, records=bytes(bad)),
                        PartitionProduceData(index=1, records=good),
                        PartitionProduceData(index=2, records=good),
                    ],
                ),
                TopicProduceData(name="absent", partition_data=[PartitionProduceData(index=0, records=good)]),
                TopicProduceData(
                    name="__consumer_offsets", partition_data=[PartitionProduceData(index=0, records=good)]
                ),
            ],
        )
        response = await node.call(request, 9)
        codes = [[p.error_code for p in topic.partition_responses] for topic in response.responses]
        assert codes == [[2, 0, 3], [3], [errors.InvalidTopicError.code]]
        assert [p.base_offset for p in response.responses[0].partition_responses] == [-1, 0, -1]


@pytest.mark.parametrize("records", [None, b""])
async def test_partition_without_a_batch_is_refused(records: bytes | None) -> None:
    async with running_node() as node:
        await node.create("t")
        assert (await node.produce("t", records)).error_code == errors.InvalidRecordError.code


@pytest.mark.parametrize("count", [2, 3])
async def test_partition_of_a_topic_named_several_times_is_refused_each_time(count: int) -> None:
    """Nothing is acknowledged that is not written."""
    async with running_node() as node:
        await node.create("t")
        request = node.produce_request("t", batch(b"0"))
        for number in range(1, count):
            request.topic_data += node.produce_request("t", batch(b"%d" % number)).topic_data
        response = await node.call(request, 9)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [errors.InvalidRequestError.code] * count
        (partition,) = await node.fetch("t", 0)
        assert partition.high_watermark == 0


async def test_partition_named_twice_is_refused_and_nothing_is_written() -> None:
    """One batch per partition and request."""
    async with running_node() as node:
        await node.create("t")
        request = node.produce_request("t", batch(b"a"))
        request.topic_data[0].partition_data.append(PartitionProduceData(index=0, records=batch(b"b")))
        response = await node.call(request, 9)
        codes = [partition.error_code for partition in response.responses[0].partition_responses]
        assert codes == [errors.InvalidRequestError.code] * 2
        (partition,) = await node.fetch("t", 0)
        assert partition.high_watermark == 0


async def test_zstd_needs_version_7() -> None:
    async with running_node() as node:
        await node.create("t")
        compressed = batch(b"a" * 100, compression="zstd")
        old = await node.produce("t", compressed, version=6)
        assert old.error_code == errors.UnsupportedCompressionTypeError.code
        assert (await node.produce("t", compressed, version=7)).error_code == 0


async def test_retry_of_a_batch_is_answered_as_the_first_time_and_a_gap_is_refused() -> None:
    async with running_node() as node:
        await node.create("t")

        def numbered(sequence: int, value: bytes) -> bytes:
            return batch(value, producer_id=5, producer_epoch=0, base_sequence=sequence)

        assert (await node.produce("t", numbered(0, b"a"))).base_offset == 0
        assert (await node.produce("t", numbered(1, b"b"))).base_offset == 1
        again = await node.produce("t", numbered(0, b"a"))
        assert (again.error_code, again.base_offset) == (0, 0)
        gap = await node.produce("t", numbered(7, b"c"))
        assert gap.error_code == errors.OutOfOrderSequenceNumberError.code


async def test_too_large_a_batch_is_refused() -> None:
    async with running_node() as node:
        await node.create("t", max_message_bytes="1000")
        refused = await node.produce("t", batch(b"x" * 1000))
        assert refused.error_code == errors.MessageSizeTooLargeError.code


@pytest.mark.parametrize("version", [7, 8])
async def test_records_out_of_their_time_are_named_from_version_8(version: int) -> None:
    async with running_node() as node:
        await node.create("t", message_timestamp_before_max_ms="1000")
        refused = await node.produce("t", batch(b"old", b"old"), version=version)
        assert refused.error_code == errors.InvalidTimestampError.code
        assert len(refused.record_errors) == (2 if version >= 8 else 0)
        assert (refused.error_message is not None) == (version >= 8)


async def test_unknown_topic_id_is_an_error_of_its_partitions() -> None:
    async with running_node() as node:
        await node.create("t")
        request = node.produce_request("t", batch(b"a"), version=13)
        request.topic_data[0].topic_id = node.broker.world.uuid()
        response = await node.call(request, 13)
        assert response.responses[0].topic_id == request.topic_data[0].topic_id
        assert response.responses[0].partition_responses[0].error_code == errors.UnknownTopicIdError.code


async def test_armed_fault_fails_its_partition_once() -> None:
    """The rest of the request stays real."""
    async with running_node() as node:
        await node.create("t")
        node.broker.faults.arm(Fault(errors.NotLeaderForPartitionError, api_key=0, topic="t"))
        assert (await node.produce("t", batch(b"a"))).error_code == errors.NotLeaderForPartitionError.code
        assert (await node.produce("t", batch(b"a"))).base_offset == 0


async def test_a_partition_that_does_not_exist_is_unknown_whatever_is_sent_to_it() -> None:
    """This check comes before all others."""
    async with running_node() as node:
        await node.create("t")
        for topic, partition in (("t", 1), ("absent", 0)):
            for records in (batch(b"a"), None):
                code = (await node.produce(topic, records, partition=partition)).error_code
                assert code == errors.UnknownTopicOrPartitionError.code


async def test_records_of_a_transaction_without_a_transactional_id_are_refused() -> None:
    """As Kafka refuses them; readers of committed records would wait for their end for ever."""
    async with running_node() as node:
        await node.create("t")
        records = batch(b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        refused = await node.produce("t", records)
        assert refused.error_code == errors.TransactionalIdAuthorizationFailedError.code


@pytest.mark.parametrize("version", [9, 10, 12, 13])
async def test_wrong_broker_answers_with_the_leader_and_its_address(version: int) -> None:
    """From version 10 on (KIP-951); the other partitions are served."""
    async with running_node() as node:
        await node.create("t", partitions=2)
        me = node.broker.node_id
        demoted = node.broker.replicas.partition(("t", 0))
        demoted.make_follower(leader_id=me, leader_epoch=demoted.leader_epoch + 1, partition_epoch=9, replicas=(me,))
        request = node.produce_request("t", batch(b"a"), version=version)
        request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch(b"b")))
        response = await node.call(request, version)
        wrong, right = response.responses[0].partition_responses
        assert (wrong.error_code, wrong.base_offset) == (errors.NotLeaderForPartitionError.code, -1)
        assert (right.error_code, right.base_offset) == (0, 0)
        endpoints = [(e.node_id, f"{e.host}:{e.port}") for e in response.node_endpoints]
        if version < 10:
            assert endpoints == []
        else:
            assert (wrong.current_leader.leader_id, wrong.current_leader.leader_epoch) == (me, demoted.leader_epoch)
            assert right.current_leader.leader_id == -1
            assert endpoints == [(me, node.broker.bootstrap_servers)]


async def test_a_partition_of_other_brokers_is_not_unknown() -> None:
    """The metadata name the leader (KIP-951)."""
    async with running_node() as node:
        await node.create("t")
        node.broker.replicas._hosted.online.pop(("t", 0))
        response = await node.call(node.produce_request("t", batch(b"a"), version=10), 10)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == errors.NotLeaderForPartitionError.code
        assert answer.current_leader.leader_id == node.broker.node_id
        assert [e.node_id for e in response.node_endpoints] == [node.broker.node_id]
        (partition,) = await node.fetch("t", 0, version=16)
        assert partition.error_code == errors.NotLeaderForPartitionError.code
        assert partition.current_leader.leader_id == node.broker.node_id


async def test_acks_all_that_is_not_replicated_in_time_times_out() -> None:
    """The records stay in the log."""
    async with running_node() as node:
        await node.create("t")
        partition = node.broker.replicas.partition(("t", 0))
        partition.make_leader(
            leader_epoch=partition.leader_epoch, partition_epoch=9, replicas=(1, 2), in_sync_replicas=(1, 2)
        )
        request = node.produce_request("t", batch(b"a"))
        request.timeout_ms = 20
        response = await node.call(request, 9)
        assert response.responses[0].partition_responses[0].error_code == errors.RequestTimedOutError.code
        assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("version", [8, 9, 13])
async def test_records_without_key_are_named_one_by_one_on_a_compacted_topic(version: int) -> None:
    """KIP-467."""
    async with running_node() as node:
        await node.create("t", cleanup_policy="compact")
        refused = await node.produce("t", batch(b"a", b"b"), version=version)
        assert refused.error_code == errors.InvalidRecordError.code
        assert [error.batch_index for error in refused.record_errors] == [0, 1]
        assert all(error.batch_index_error_message for error in refused.record_errors)
        assert "key" in (refused.error_message or "")
