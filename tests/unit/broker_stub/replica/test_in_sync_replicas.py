"""The in-sync set: additions, removals, and the effect of an AlterPartition result."""

from __future__ import annotations

from uuid import UUID

import trio

from tests.support.simulated import simulated
from tests.unit.broker_stub.replica.logs import NODE, append, open_log
from triokafka import errors
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.replica.alter_partition_sender import AlterPartitionSender, PendingProposals
from triokafka.broker_stub.replica.in_sync_replicas import IsrProposal
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_rest import PartitionRest
from triokafka.protocol.api.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

LAG = 10.0


class Brokers:
    """Registrations with the epoch 100 + id."""

    def __init__(self) -> None:
        self.inactive: set[int] = set()

    def broker_epoch(self, broker_id: int) -> int | None:
        return 100 + broker_id

    def is_active(self, broker_id: int) -> bool:
        return broker_id not in self.inactive


BROKERS = Brokers()


def leader(*, isr: tuple[int, ...] = (NODE, 2, 3), min_isr: int = 1, brokers: Brokers = BROKERS) -> Partition:
    """A partition on three brokers, led by this one."""
    log = open_log(config=LogConfig(min_insync_replicas=min_isr))
    partition = Partition(
        log.topic_partition, UUID(int=1), node_id=NODE, log=log, registrations=brokers, lag_seconds=LAG
    )
    lead(partition, isr=isr)
    return partition


def lead(partition: Partition, *, isr: tuple[int, ...], leader_epoch: int = 3, partition_epoch: int = 5) -> bool:
    return partition.make_leader(
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=(NODE, 2, 3),
        in_sync_replicas=isr,
        now=0.0,
    )


def fetched(partition: Partition, replica: int, offset: int, now: float = 1.0, *, epoch: int | None = None) -> bool:
    return partition.follower_fetched(
        replica, offset, now, log_start_offset=0, broker_epoch=100 + replica if epoch is None else epoch
    )


def proposed(partition: Partition, replica: int) -> IsrProposal:
    found = partition.propose_expansion(replica)
    assert found is not None
    return found


def test_a_follower_joins_with_everything_that_is_committed() -> None:
    partition = leader(isr=(NODE,))
    append(partition, b"1", b"2")
    fetched(partition, 2, 1)
    assert partition.propose_expansion(2) is None
    fetched(partition, 2, 2)
    proposal = proposed(partition, 2)
    assert proposal == IsrProposal(3, 5, ((NODE, 100 + NODE), (2, 102)))
    assert partition.in_sync_replicas == {NODE} and partition.isr.maximal == {NODE, 2}


def test_a_follower_needs_the_start_of_the_leaders_epoch() -> None:
    """Below it, its records may not be the leader's, although they are above the high watermark that this leader
    knows.
    """
    partition = leader()
    append(partition, b"1", b"2")
    lead(partition, isr=(NODE, 3), leader_epoch=4, partition_epoch=6)
    fetched(partition, 2, 1)
    assert partition.propose_expansion(2) is None
    assert partition.high_watermark == 0  # replica 3 has not fetched yet
    fetched(partition, 2, 2)
    assert partition.propose_expansion(2) is not None


def test_a_broker_that_is_fenced_or_restarted_does_not_join() -> None:
    brokers = Brokers()
    partition = leader(isr=(NODE,), brokers=brokers)
    brokers.inactive.add(2)
    fetched(partition, 2, 0)
    assert partition.propose_expansion(2) is None
    brokers.inactive.clear()
    fetched(partition, 3, 0, epoch=104)  # a registration that this broker does not know yet
    assert partition.propose_expansion(3) is None
    assert partition.propose_expansion(2) is not None


def test_the_high_watermark_waits_for_a_follower_that_is_joining() -> None:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0)
    proposed(partition, 2)
    append(partition, b"1")
    assert not partition.advance_high_watermark(100.0)
    assert fetched(partition, 2, 1)


def test_the_high_watermark_waits_for_a_caught_up_follower_until_it_lags() -> None:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0, now=1.0)
    append(partition, b"1")
    assert not partition.advance_high_watermark(1.0 + LAG)
    assert partition.advance_high_watermark(1.1 + LAG)


def test_the_high_watermark_does_not_wait_for_a_follower_that_the_controller_removed() -> None:
    """As when a log directory of its broker failed: the broker is alive, but does not fetch the partition (KIP-858)."""
    partition = leader()
    for replica in (2, 3):
        fetched(partition, replica, 0, now=1.0)
    append(partition, b"1")
    assert not fetched(partition, 2, 1, now=1.1)
    lead(partition, isr=(NODE, 2), partition_epoch=6)
    assert partition.advance_high_watermark(1.2)
    fetched(partition, 3, 1, now=1.3)
    append(partition, b"2")
    assert not fetched(partition, 2, 2, now=1.4), "it fetches again, and is about to join"


def test_a_follower_that_the_controller_removed_is_not_caught_up_through_the_end_of_its_rest() -> None:
    """The rest in its fetch session ends with the change, and notes its last fetch, which was before the removal."""
    partition = leader()
    for replica in (2, 3):
        fetched(partition, replica, 0, now=1.0)
    rest = PartitionRest(partition, partition.followers[3], lambda: rest.end(5.0))
    lead(partition, isr=(NODE, 2), partition_epoch=6)
    assert not len(partition.log.changes)
    append(partition, b"1")
    assert fetched(partition, 2, 1, now=5.1)


def test_a_follower_that_lags_leaves_and_the_high_watermark_continues_once_it_is_committed() -> None:
    partition = leader(isr=(NODE, 2))
    append(partition, b"1")
    assert partition.propose_shrink(LAG) is None
    proposal = partition.propose_shrink(LAG + 0.1)
    assert proposal is not None and proposal.replicas == {NODE}
    assert not partition.advance_high_watermark(LAG + 0.1), "the controller may not have committed it"
    assert partition.isr_committed(proposal, partition_epoch=6, in_sync_replicas=[NODE])
    assert partition.advance_high_watermark(LAG + 0.1)


def test_a_follower_that_keeps_up_with_constant_writes_is_caught_up() -> None:
    partition = leader(isr=(NODE, 2))
    for number in range(8):
        append(partition, b"1")
        fetched(partition, 2, number, now=number * LAG / 2)
    assert partition.propose_shrink(7 * LAG / 2 + 1) is None


def test_one_proposal_is_in_flight_at_a_time() -> None:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0)
    fetched(partition, 3, 0)
    proposed(partition, 2)
    assert partition.propose_expansion(3) is None and partition.propose_shrink(100.0) is None


def test_a_result_that_newer_metadata_has_overtaken_changes_nothing() -> None:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0)
    proposal = proposed(partition, 2)
    lead(partition, isr=(NODE, 3), partition_epoch=7)
    assert not partition.isr_committed(proposal, partition_epoch=6, in_sync_replicas=[NODE, 2])
    assert partition.in_sync_replicas == {NODE, 3} and partition.partition_epoch == 7


def test_metadata_that_a_result_has_overtaken_changes_nothing() -> None:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0)
    assert partition.isr_committed(proposed(partition, 2), partition_epoch=6, in_sync_replicas=[NODE, 2])
    assert not lead(partition, isr=(NODE,), partition_epoch=5)
    assert partition.in_sync_replicas == {NODE, 2}


def test_metadata_that_a_proposal_is_based_on_leave_it_in_flight() -> None:
    """The controller may still commit it: the high watermark goes on waiting for the follower that is joining."""
    partition = leader(isr=(NODE,))
    append(partition, b"1")
    fetched(partition, 2, 1)
    proposal = proposed(partition, 2)
    lead(partition, isr=(NODE,))
    assert partition.isr.in_flight is proposal and partition.isr.maximal == {NODE, 2}
    append(partition, b"2")
    assert partition.high_watermark == 1
    assert partition.isr_committed(proposal, partition_epoch=6, in_sync_replicas=(NODE, 2))
    assert partition.in_sync_replicas == {NODE, 2}


def test_too_few_in_sync_replicas_hold_back_the_high_watermark() -> None:
    partition = leader(isr=(NODE, 2), min_isr=2)
    append(partition, b"1")
    lead(partition, isr=(NODE,), partition_epoch=6)
    assert not partition.advance_high_watermark(1000.0)


def test_fewer_replicas_than_min_insync_replicas_require_only_themselves() -> None:
    log = open_log(config=LogConfig(min_insync_replicas=3))
    partition = Partition(log.topic_partition, UUID(int=1), node_id=NODE, log=log)
    partition.make_leader(leader_epoch=1, partition_epoch=1, replicas=(NODE,), in_sync_replicas=(NODE,))
    assert append(partition, b"1")


# Sending


class Sent:
    """The proposals of some partitions, and the partitions whose sets were committed."""

    def __init__(self) -> None:
        self.committed: list[Partition] = []
        self.proposals = PendingProposals(NODE)

    def request(self) -> AlterPartitionRequest | None:
        return self.proposals.next_request(101)

    def answered(self, response: AlterPartitionResponse) -> bool:
        return self.proposals.answered(response, self.committed.append)


def answer(
    *, code: int = 0, leader_epoch: int = 3, partition_epoch: int = 6, isr: tuple[int, ...] = (NODE, 2)
) -> AlterPartitionResponse:
    result = AlteredPartition(
        partition_index=0,
        error_code=code,
        leader_id=NODE,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
    )
    return AlterPartitionResponse(topics=[AlteredTopic(topic_id=UUID(int=1), partitions=[result])])


def joining(sent: Sent) -> Partition:
    partition = leader(isr=(NODE,))
    fetched(partition, 2, 0)
    sent.proposals.submit(partition, proposed(partition, 2))
    return partition


def test_a_proposal_is_sent_with_broker_epochs_and_its_result_applied() -> None:
    sent = Sent()
    partition = joining(sent)
    request = sent.request()
    assert request is not None and (request.broker_id, request.broker_epoch) == (NODE, 101)
    (asked,) = request.topics[0].partitions
    assert [(state.broker_id, state.broker_epoch) for state in asked.new_isr_with_epochs] == [(1, 101), (2, 102)]
    assert (asked.leader_epoch, asked.partition_epoch) == (3, 5)
    assert AlterPartitionRequest.decode(request.encode(3), 3) == request  # the version that controllers take
    assert sent.answered(answer())
    assert sent.committed == [partition] and partition.in_sync_replicas == {NODE, 2}


def test_a_request_that_failed_is_repeated() -> None:
    sent = Sent()
    joining(sent)
    first = sent.request()
    sent.proposals.failed()
    assert sent.request() == first


def test_a_proposal_that_metadata_has_settled_is_not_sent() -> None:
    sent = Sent()
    lead(joining(sent), isr=(NODE, 2), partition_epoch=6)
    assert sent.request() is None


def test_a_refused_replica_may_be_proposed_again() -> None:
    sent = Sent()
    partition = joining(sent)
    sent.request()
    assert sent.answered(answer(code=errors.IneligibleReplicaError.code))
    assert partition.isr.in_flight is None and partition.isr.maximal == {NODE}
    assert partition.propose_expansion(2) is not None


def test_a_superseded_proposal_waits_for_metadata() -> None:
    """Whether the controller applied it is unknown, so the larger set counts until then."""
    for error in (errors.InvalidUpdateVersionError, errors.FencedLeaderEpochError, errors.NewLeaderElectedError):
        sent = Sent()
        partition = joining(sent)
        sent.request()
        assert sent.answered(answer(code=error.code))
        assert sent.request() is None
        assert partition.isr.maximal == {NODE, 2}


def test_any_other_error_is_retried() -> None:
    sent = Sent()
    joining(sent)
    first = sent.request()
    assert not sent.answered(answer(code=errors.NotControllerError.code))
    assert sent.request() == first


def test_a_result_of_another_leader_epoch_is_ignored() -> None:
    sent = Sent()
    partition = joining(sent)
    sent.request()
    lead(partition, isr=(NODE,), leader_epoch=4, partition_epoch=6)
    assert sent.answered(answer())
    assert partition.in_sync_replicas == {NODE} and not sent.committed


class Gateway:
    """A controller that takes every proposal."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        return AlterPartitionResponse(error_code=errors.StaleBrokerEpochError.code)


@simulated
async def test_a_broker_that_is_not_registered_yet_sends_no_proposals() -> None:
    """After a restart, metadata may say that it leads until its last registration ends."""
    partition, gateway, epoch = leader(isr=(NODE,)), Gateway(), -1
    fetched(partition, 2, 0)
    sender = AlterPartitionSender(PendingProposals(NODE))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run, gateway, lambda: epoch, lambda partition: None)
        sender.submit(partition, proposed(partition, 2))
        await trio.sleep(5)
        assert not gateway.requests
        epoch = 7
        await trio.sleep(0.5)
        assert gateway.requests[0].broker_epoch == 7
        nursery.cancel_scope.cancel()
