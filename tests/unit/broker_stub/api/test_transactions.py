"""The transaction APIs of one broker, from the first request of a producer to the records that a consumer reads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, running_node
from tests.unit.broker_stub.api.transactional import Transactional, committed_values
from triokafka import errors
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.work_budget import BUDGET
from triokafka.coordinator.transaction.metadata import LAST_CLIENT_EPOCH
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from triokafka.protocol.api.describe_producers import DescribeProducersRequest, TopicRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.list_transactions import ListTransactionsRequest
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from triokafka.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from triokafka.security.acl import AclOperation, ResourceType

FENCED = errors.ProducerFencedError.code
OLD_EPOCH = errors.InvalidProducerEpochError.code
INVALID_STATE = errors.InvalidTxnStateError.code
CONCURRENT = errors.ConcurrentTransactionsError.code
MAPPING = errors.InvalidProducerIdMappingError.code
ABORTABLE = errors.TransactionAbortableError.code
versions = pytest.mark.parametrize("version", [1, 2])


@versions
@pytest.mark.parametrize("commits", [True, False])
async def test_records_are_visible_after_the_commit_and_never_after_an_abort(version: int, commits: bool) -> None:
    async with running_node() as node:
        await node.create("t", 2)
        producer = await Transactional(node, version=version).start()
        await producer.write("t", b"a", b"b")
        await producer.write("t", b"c", partition=1)
        assert await committed_values(node, "t", partitions=2) == []
        await producer.end(commits=commits)
        assert await committed_values(node, "t", partitions=2) == ([b"a", b"b", b"c"] if commits else [])
        assert (await producer.describe()).transaction_state == ("CompleteCommit" if commits else "CompleteAbort")


@versions
async def test_many_transactions_follow_each_other(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        producer = await Transactional(node, version=version).start()
        for number in range(20):
            await producer.write("t", b"%d" % number)
            await producer.end(commits=number % 3 != 0)
        wanted = [b"%d" % number for number in range(20) if number % 3]
        assert await committed_values(node, "t") == wanted


async def test_open_transaction_bounds_read_committed() -> None:
    async with running_node() as node:
        await node.create("t")
        first, second = await Transactional(node, "1").start(), await Transactional(node, "2").start()
        await first.write("t", b"open")
        await second.write("t", b"done")
        await second.end()
        (found,) = await node.fetch("t", 0, isolation_level=1)
        assert (found.last_stable_offset, found.high_watermark) == (0, 3)
        await first.end()
        assert await committed_values(node, "t") == [b"open", b"done"]


async def test_end_bumps_the_epoch_under_version_2_only() -> None:
    async with running_node() as node:
        await node.create("t")
        for version, epochs in ((1, [0, 0, 0]), (2, [0, 1, 2])):
            producer = await Transactional(node, str(version), version=version).start()
            seen = []
            for _ in range(3):
                seen.append(producer.epoch)
                await producer.write("t", b"v")
                await producer.end()
            assert seen == epochs


async def test_retry_of_an_end_is_answered_as_the_end() -> None:
    async with running_node() as node:
        await node.create("t")
        producer = await Transactional(node).start()
        await producer.write("t", b"v")
        first = await producer.send_end()
        await producer.settled()
        again = await producer.send_end()
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
        assert (await producer.send_end(commits=False)).error_code == INVALID_STATE


async def test_end_without_a_transaction_aborts_under_version_2_and_is_refused_under_version_1() -> None:
    async with running_node() as node:
        modern = await Transactional(node, "2").start()
        assert (await modern.send_end(commits=True)).error_code == INVALID_STATE
        await modern.end(commits=False)
        assert modern.epoch == 1
        assert (await modern.send_end(commits=True)).error_code == INVALID_STATE
        older = await Transactional(node, "1", version=1).start()
        for commits in (True, False):
            assert (await older.send_end(commits=commits)).error_code == INVALID_STATE


@versions
async def test_new_producer_fences_the_old_one_and_its_transaction_is_aborted(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        zombie = await Transactional(node, version=version).start()
        await zombie.write("t", b"zombie")
        successor = Transactional(node, version=version)
        assert (await successor.init()).error_code == CONCURRENT
        await successor.start()
        assert successor.epoch > zombie.epoch
        assert (await zombie.send_end()).error_code == FENCED
        assert await zombie.produce("t", b"late") == OLD_EPOCH
        await successor.write("t", b"successor")
        await successor.end()
        assert await committed_values(node, "t") == [b"successor"]


async def test_producer_may_continue_after_an_error_with_its_id_and_epoch() -> None:
    """KIP-360; a repeated request gets the same answer."""
    async with running_node() as node:
        producer = await Transactional(node).start()
        before = producer.producer_id, producer.epoch
        assert (await producer.init(keeps=True)).error_code == 0
        assert (producer.producer_id, producer.epoch) == (before[0], before[1] + 1)
        after = producer.epoch
        producer.epoch = before[1]
        assert (await producer.init(keeps=True)).producer_epoch == after
        await Transactional(node).start()
        assert (await producer.init(keeps=True)).error_code == FENCED


async def test_version_1_reproduces_the_late_end_that_version_2_refuses() -> None:
    """The end of the first transaction arrives once more, while the second one is half written (KIP-890)."""
    for version, torn in ((1, True), (2, False)):
        async with running_node() as node:
            await node.create("t")
            producer = await Transactional(node, version=version).start()
            await producer.write("t", b"one")
            late = Transactional(node, version=version)
            late.take(producer.producer_id, producer.epoch)
            await producer.end()
            await producer.write("t", b"half")
            answer = await late.send_end()
            await producer.settled()
            assert (answer.error_code == 0) is torn
            assert (b"half" in await committed_values(node, "t")) is torn


async def test_late_batch_of_an_ended_transaction_begins_no_new_one() -> None:
    """Without verification, its records would block read_committed consumers for ever."""
    for version in (1, 2):
        async with running_node() as node:
            await node.create("t")
            producer = await Transactional(node, version=version).start()
            await producer.write("t", b"one")
            late = producer.records("t", b"late")
            api_version = 12 if version == 2 else 11
            await producer.end()
            answer = await node.produce("t", late, version=api_version, transactional_id=producer.name)
            assert answer.error_code == (OLD_EPOCH if version == 2 else ABORTABLE)
            assert await committed_values(node, "t") == [b"one"]
            (found,) = await node.fetch("t", 0, isolation_level=1)
            assert found.last_stable_offset == found.high_watermark


@pytest.mark.parametrize(("api_version", "words"), [(10, "Partition was not added to the transaction"), (11, None)])
async def test_batch_outside_of_its_transaction_is_refused_in_apache_kafkas_words(
    api_version: int, words: str | None
) -> None:
    async with running_node() as node:
        await node.create("t")
        producer = await Transactional(node, version=1).start()
        records = producer.records("t", b"a")
        refused = await node.produce("t", records, version=api_version, transactional_id=producer.name)
        assert (refused.error_code, refused.error_message) == (ABORTABLE if words is None else INVALID_STATE, words)


@pytest.mark.parametrize(("api_version", "code"), [(9, INVALID_STATE), (10, INVALID_STATE), (11, ABORTABLE)])
async def test_partition_that_was_not_added_takes_no_records(api_version: int, code: int) -> None:
    async with running_node() as node:
        await node.create("t", 2)
        producer = await Transactional(node, version=1).start()
        await producer.write("t", b"a")
        assert await producer.produce("t", b"b", partition=1, api_version=api_version) == code
        await producer.end()
        assert await committed_values(node, "t", partitions=2) == [b"a"]


async def test_without_verification_any_partition_takes_records() -> None:
    async with running_node(transaction_partition_verification_enable=False) as node:
        await node.create("t")
        producer = await Transactional(node, version=1).start()
        assert await producer.produce("t", b"a") == 0


async def test_partitions_are_added_all_or_none() -> None:
    async with running_node() as node:
        await node.create("t", 2)
        producer = await Transactional(node, version=1).start()
        missing, skipped = errors.UnknownTopicOrPartitionError.code, errors.OperationNotAttemptedError.code
        assert await producer.add("t", 0, 7) == [skipped, missing]
        assert (await producer.describe()).transaction_state == "Empty"
        assert await producer.add("t", 0, 1) == [0, 0]
        assert await producer.add("t", 1) == [0]
        producer.epoch += 1
        assert await producer.add("t", 0) == [FENCED]
        assert await producer.add("t", 0, api_version=1) == [OLD_EPOCH]
        producer.producer_id += 1
        assert await producer.add("t", 0) == [MAPPING]


async def test_brokers_verify_and_add_partitions_of_several_transactions() -> None:
    async with running_node() as node:
        await node.create("t", 2)
        producers = [await Transactional(node, name, version=1).start() for name in ("1", "2")]
        await producers[0].write("t", b"v")
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=producer.name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                )
                for producer, verify_only in zip(producers, (True, False), strict=True)
            ]
        )
        for api_version, unknown in ((4, INVALID_STATE), (5, ABORTABLE)):
            response = await node.call(request, api_version)
            assert [
                (
                    found.transactional_id,
                    [one.partition_error_code for one in found.topic_results[0].results_by_partition],
                )
                for found in response.results_by_transaction
            ] == [("1", [0, unknown]), ("2", [0, 0])]


@versions
async def test_offsets_take_effect_with_the_commit(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        await node.broker.topic_creation.ensure("__consumer_offsets")
        producer = await Transactional(node, version=version).start()
        for offset, commits in ((5, False), (7, True)):
            if version == 1:
                assert await producer.commit_offset("g", "t", offset) == INVALID_STATE
                assert await producer.add_group("g") == 0
            assert await producer.commit_offset("g", "t", offset) == 0
            assert await fetched_offset(node, "g") == (-1, 0)
            assert await fetched_offset(node, "g", stable=True) == (-1, errors.UnstableOffsetCommitError.code)
            await producer.end(commits=commits)
        assert await fetched_offset(node, "g", stable=True) == (7, 0)
        assert await fetched_offset(node, "g") == (7, 0)


async def fetched_offset(node: Node, group_id: str, *, stable: bool = False) -> tuple[int, int]:
    """The committed offset of ``t``-0 and its error code."""
    asked = OffsetFetchRequestGroup(
        group_id=group_id, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    response = await node.call(OffsetFetchRequest(groups=[asked], require_stable=stable), 8)
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


async def test_offsets_of_members_that_left_are_refused() -> None:
    """KIP-447."""
    async with running_node() as node:
        await node.create("t")
        await node.broker.topic_creation.ensure("__consumer_offsets")
        producer = await Transactional(node).start()
        illegal, unknown = errors.IllegalGenerationError.code, errors.UnknownMemberIdError.code
        assert await producer.commit_offset("g", "t", 1, member=("gone", 3, None)) == illegal
        assert await producer.commit_offset("g", "t", 1) == 0
        assert await producer.commit_offset("g", "t", 1, member=("gone", 3, None)) in (illegal, unknown)
        await producer.end()
        assert await fetched_offset(node, "g") == (1, 0)


def marker_request(
    producer: Transactional, *, commits: bool, coordinator_epoch: int, epoch: int | None = None, version: int = 0
) -> WriteTxnMarkersRequest:
    """A marker for ``t``-0."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch if epoch is None else epoch,
                transaction_result=commits,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
        ]
    )


async def write_marker(node: Node, request: WriteTxnMarkersRequest) -> int:
    response = await node.call(request, 2)
    return response.markers[0].topics[0].partitions[0].error_code


async def test_markers_of_replaced_coordinators_are_refused() -> None:
    async with running_node() as node:
        await node.create("t")
        producer = await Transactional(node).start()
        await producer.write("t", b"v")
        assert await write_marker(node, marker_request(producer, commits=False, coordinator_epoch=9)) == 0
        fenced = errors.TransactionCoordinatorFencedError.code
        assert await write_marker(node, marker_request(producer, commits=True, coordinator_epoch=8)) == fenced
        assert await write_marker(node, marker_request(producer, commits=True, coordinator_epoch=9)) == 0
        assert await committed_values(node, "t") == []


async def test_marker_under_version_2_must_bump_the_epoch_of_an_open_transaction() -> None:
    async with running_node() as node:
        await node.create("t")
        producer = await Transactional(node).start()
        await producer.write("t", b"v")
        late = marker_request(producer, commits=True, coordinator_epoch=0, version=2)
        assert await write_marker(node, late) == OLD_EPOCH
        bumped = marker_request(producer, commits=True, coordinator_epoch=0, epoch=producer.epoch + 1, version=2)
        assert await write_marker(node, bumped) == 0
        assert await write_marker(node, bumped) == 0  # a repeated one is harmless
        older = marker_request(producer, commits=False, coordinator_epoch=0, version=2)
        assert await write_marker(node, older) == OLD_EPOCH
        assert await committed_values(node, "t") == [b"v"]


async def test_markers_answer_for_each_partition() -> None:
    async with running_node() as node:
        await node.create("t")
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopic(name="t", partition_indexes=[0, 5]),
                        WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
                    ],
                )
                for producer_id in (1, 2)
            ]
        )
        missing = errors.UnknownTopicOrPartitionError.code
        response = await node.call(request, 1)
        assert [
            [one.error_code for topic in marker.topics for one in topic.partitions] for marker in response.markers
        ] == [[0, missing, missing]] * 2


async def test_markers_of_many_partitions_let_other_tasks_run() -> None:
    async with running_node() as node:
        await node.create("t", 4 * BUDGET)
        logs = [node.broker.replicas.partition(("t", number)).log for number in range(4 * BUDGET)]
        topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(4 * BUDGET)))
        request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=[topic])])
        seen: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.call, request, 1)
            while (count := sum(log is not None and log.log_end_offset > 0 for log in logs)) < len(logs):
                seen.append(count)
                await trio.lowlevel.checkpoint()
        steps = [after - before for before, after in pairwise([*seen, len(logs)])]
        assert max(steps) <= 2 * BUDGET, "the tasks take turns in any order"


async def test_hanging_transaction_is_found_and_ended_by_an_administrator() -> None:
    """KIP-664: a transaction in a partition that no coordinator knows."""
    async with running_node(transaction_partition_verification_enable=False) as node:
        await node.create("t")
        producer = await Transactional(node, version=1).start()
        assert await producer.produce("t", b"hanging") == 0
        asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        (state,) = (await node.call(asked, 0)).topics[0].partitions[0].active_producers
        assert (state.producer_id, state.current_txn_start_offset) == (producer.producer_id, 0)
        assert (await producer.describe()).transaction_state == "Empty"
        assert await write_marker(node, marker_request(producer, commits=False, coordinator_epoch=-1)) == 0
        (state,) = (await node.call(asked, 0)).topics[0].partitions[0].active_producers
        assert state.current_txn_start_offset == -1
        (found,) = await node.fetch("t", 0, isolation_level=1)
        assert found.last_stable_offset == found.high_watermark == 2


async def test_transactions_are_listed_by_filter_and_described() -> None:
    async with running_node() as node:
        await node.create("t", 2)
        first, second = await Transactional(node, "alpha").start(), await Transactional(node, "beta").start()
        await first.write("t", b"v", partition=1)

        async def listed(api_version: int = 2, **filters: Any) -> list[str]:
            response = await node.call(ListTransactionsRequest(**filters), api_version)
            assert response.error_code == 0
            return sorted(one.transactional_id for one in response.transaction_states)

        assert await listed() == ["alpha", "beta"]
        assert await listed(state_filters=["Ongoing", "Odd"]) == ["alpha"]
        assert await listed(state_filters=["Odd"]) == []
        assert await listed(producer_id_filters=[second.producer_id]) == ["beta"]
        assert await listed(duration_filter=100_000) == ["beta"]  # as Kafka: it has no transaction, and no age
        assert await listed(transactional_id_pattern="a.*") == ["alpha"]
        assert await listed(transactional_id_pattern="a") == []
        found = await first.describe()
        assert (found.error_code, found.transaction_state, found.producer_epoch) == (0, "Ongoing", 0)
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [1])]
        assert found.transaction_start_time_ms > 0
        assert (await Transactional(node, "gamma").describe()).error_code == errors.TransactionalIdNotFoundError.code


async def test_pattern_of_listed_transactions_is_matched_in_linear_time() -> None:
    """It is RE2's syntax, as in Kafka: a pattern that takes exponential time in ``re`` must not stop the broker."""
    async with running_node() as node:
        await Transactional(node, "a" * 200 + "b").start()
        for pattern, code in (
            ("a(?=a).*", errors.InvalidRegularExpressionError.code),  # RE2 has no lookahead
            ("(a|aa)+", 0),
            ("(a|aa)+b", 0),
        ):
            response = await node.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
            assert response.error_code == code, pattern
        assert len(response.transaction_states) == 1


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    async with running_node() as node:
        await node.broker.topic_creation.ensure("__transaction_state")
        answer = await Transactional(node).init(timeout_ms=timeout_ms)
        assert answer.error_code == errors.InvalidTransactionTimeoutError.code


async def test_broker_that_does_not_coordinate_says_so() -> None:
    async with running_node() as node:
        answer = await node.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4)
        assert answer.error_code == errors.NotCoordinatorError.code
        found = await node.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6)
        assert [(one.error_code, one.node_id) for one in found.coordinators] == [(0, 1)]
        assert (await Transactional(node).init()).error_code == 0


class DenyTransactions(Authorizer):
    """Denies operations on transactional ids, and those of brokers."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return resource_type not in (ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER)


async def test_clients_without_permission_for_the_transactional_id_are_refused() -> None:
    denied = errors.TransactionalIdAuthorizationFailedError.code
    async with running_node(authorizer=DenyTransactions()) as node:
        await node.create("t")
        await node.broker.topic_creation.ensure("__transaction_state")
        producer = Transactional(node)
        found = await node.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6)
        assert [one.error_code for one in found.coordinators] == [denied]
        assert (await producer.init()).error_code == denied
        producer.producer_id, producer.epoch = 1, 0
        assert await producer.add("t") == [denied]
        assert await producer.add_group("g") == denied
        assert await producer.produce("t", b"v") == denied
        assert await producer.commit_offset("g", "t", 1) == denied
        assert (await producer.send_end()).error_code == denied
        assert (await producer.describe()).error_code == denied
        assert (await node.call(ListTransactionsRequest(), 2)).transaction_states == []
        cluster = errors.ClusterAuthorizationFailedError.code
        assert await write_marker(node, marker_request(producer, commits=True, coordinator_epoch=0)) == cluster
        assert (await node.call(AddPartitionsToTxnRequest(), 5)).error_code == cluster


async def test_state_survives_a_restart_in_every_state() -> None:
    """Including a decision whose markers are missing: the broker writes them after its start."""
    from tests.unit.broker_stub.api.node import memory_world

    world = memory_world()
    async with running_node(world=world) as node:
        await node.create("t")
        names = {name: await Transactional(node, name).start() for name in ("empty", "open", "done", "aborted")}
        for name in ("open", "done", "aborted"):
            await names[name].write("t", name.encode())
        await names["done"].end()
        await names["aborted"].end(commits=False)
    async with running_node(world=world) as node:
        for name, state in (
            ("empty", "Empty"),
            ("open", "Ongoing"),
            ("done", "CompleteCommit"),
            ("aborted", "CompleteAbort"),
        ):
            producer = names[name]
            producer.node = node
            assert (await producer.describe()).transaction_state == state
        assert await names["open"].produce("t", b"more") == 0
        await names["open"].end()
        assert await committed_values(node, "t") == [b"open", b"done", b"more"]


async def test_deleted_topic_needs_no_marker() -> None:
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest

    async with running_node() as node:
        await node.create("t")
        await node.create("u")
        producer = await Transactional(node).start()
        await producer.write("t", b"v")
        await producer.write("u", b"w")
        await node.broker.gateway.delete_topics(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version=5)
        with trio.fail_after(10):
            await producer.end()
        assert await committed_values(node, "u") == [b"w"]


def lagging(node: Node) -> Partition:
    """Give the partition of the transaction log a second replica; appended records wait for its fetch."""
    state_log = node.broker.replicas.partition(("__transaction_state", 0))
    state_log.make_leader(
        leader_epoch=state_log.leader_epoch, partition_epoch=9, replicas=(1, 2), in_sync_replicas=(1, 2)
    )
    return state_log


async def caught_up(node: Node, state_log: Partition) -> None:
    """Act as the second replica that has fetched everything."""
    assert state_log.log is not None
    await node.fetch("__transaction_state", state_log.log.log_end_offset, replica_id=2)


def brokers_request(*producers: Transactional, verify_only: bool) -> AddPartitionsToTxnRequest:
    """A request of another broker about partition 0 of ``t``."""
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=one.name,
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            for one in producers
        ]
    )


async def test_transactions_of_one_request_do_not_wait_for_each_other() -> None:
    async with running_node(transaction_state_log_num_partitions=1) as node:
        await node.create("t")
        producers = [await Transactional(node, name).start() for name in ("1", "2", "3")]
        state_log = lagging(node)
        assert state_log.log is not None
        before = state_log.log.log_end_offset
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.call, brokers_request(*producers, verify_only=False), 5)
            await trio.testing.wait_all_tasks_blocked()
            assert state_log.log.log_end_offset == before + 3
            await caught_up(node, state_log)
        assert [(await one.describe()).transaction_state for one in producers] == ["Ongoing"] * 3


async def test_verification_waits_until_the_addition_is_committed() -> None:
    """Records in a partition whose addition is lost with its coordinator would never get a marker."""
    async with running_node(transaction_state_log_num_partitions=1) as node:
        await node.create("t")
        producer = await Transactional(node, version=1).start()
        state_log = lagging(node)
        answers: list[int] = []

        async def verify() -> None:
            response = await node.call(brokers_request(producer, verify_only=True), 5)
            (found,) = response.results_by_transaction[0].topic_results[0].results_by_partition
            answers.append(found.partition_error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.add, "t")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(verify)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            await caught_up(node, state_log)
        assert answers == [0]


async def test_a_produce_holds_no_handler_slot_while_it_waits_for_the_transaction_coordinator() -> None:
    """Otherwise two brokers that wait for each other's coordinators could use up all slots for those requests."""
    async with running_node(transaction_state_log_num_partitions=1) as node:
        await node.create("t")
        producer = await Transactional(node).start()
        state_log = lagging(node)
        answers: list[int] = []

        async def produce() -> None:
            answers.append(await producer.produce("t", b"a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            assert node.broker.sockets.slots.free == node.broker.config.num_io_threads
            await caught_up(node, state_log)
        assert answers == [0]


async def test_transaction_that_took_too_long_with_the_last_epoch_ends_with_a_new_producer_id() -> None:
    async with running_node(transaction_abort_timed_out_transaction_cleanup_interval_ms=10) as node:
        await node.create("t")
        producer = await Transactional(node).start()

        def use_up(shard: TransactionShard, effects: TransactionEffects) -> None:
            last = shard.transactions["tx"]._replace(producer_epoch=LAST_CLIENT_EPOCH, timeout_ms=1)
            shard.write("tx", last, effects)

        runtime = node.broker.transaction_coordinator.runtime
        runtime.write(runtime.partition_for("tx"), use_up)
        before = producer.producer_id
        producer.take(before, LAST_CLIENT_EPOCH)
        await producer.write("t", b"late")
        with trio.fail_after(60):
            while (await producer.describe()).transaction_state != "CompleteAbort":
                await trio.sleep(0.01)
        answer = await producer.send_end(commits=False)
        assert (answer.error_code, answer.producer_epoch) == (0, 0) and answer.producer_id != before
        producer.take(answer.producer_id, 0)
        await producer.write("t", b"next")
        await producer.end()
        assert await committed_values(node, "t") == [b"next"]
