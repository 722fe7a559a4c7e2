"""Proposals of new in-sync sets to the controller: AlterPartition requests in batches, one in flight (KIP-497).

`PendingProposals` chooses the proposals to send and applies the results; it is pure. `AlterPartitionSender` is its
task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.replica.in_sync_replicas import IsrProposal
from triokafka.broker_stub.replica.partition import Partition
from triokafka.named_tuple import NamedTuple

if TYPE_CHECKING:  # imported with the first proposal
    from triokafka.protocol.api.alter_partition import AlteredPartition, AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.05

# The controller knows nothing newer, and did not apply the proposal: the leader may propose again.
_REFUSED: Final = frozenset({errors.IneligibleReplicaError.code, errors.OperationNotAttemptedError.code})
# The leader's metadata is old. Newer metadata will arrive, and it settles the proposal.
_SUPERSEDED: Final = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.FencedLeaderEpochError,
        errors.InvalidUpdateVersionError,
        errors.InvalidRequestError,
        errors.NewLeaderElectedError,
    )
)


class AlterPartitionGateway(Protocol):
    """The part of the controller gateway that proposals need."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync sets, on behalf of the leaders of the partitions."""


class _Pending(NamedTuple):
    partition: Partition
    proposal: IsrProposal


class PendingProposals:
    """The proposals that wait to be sent, at most one per partition."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: dict[tuple[UUID, int], _Pending] = {}
        self._sent: dict[tuple[UUID, int], _Pending] = {}
        self.shrinks = 0
        self.expansions = 0
        self.failed_updates = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Add a proposal; it replaces an older one of the same partition, whose epoch is over."""
        key = (partition.topic_id, partition.topic_partition.partition)
        self._waiting[key] = _Pending(partition, proposal)
        if len(proposal.in_sync) < len(partition.isr.committed):
            self.shrinks += 1
        else:
            self.expansions += 1

    def next_request(self, broker_epoch: int) -> AlterPartitionRequest | None:
        """Return a request with all proposals that still hold; None without any."""
        from triokafka.protocol.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData

        # A newer leader epoch, or newer metadata, has settled the others.
        self._sent = {
            key: pending
            for key, pending in self._waiting.items()
            if pending.partition.isr.in_flight is pending.proposal
        }
        self._waiting = {}
        if not self._sent:
            return None
        topics: dict[UUID, TopicData] = {}
        for (topic_id, number), (_, proposal) in self._sent.items():
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                PartitionData(
                    partition_index=number,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.in_sync
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._node_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def failed(self) -> None:
        """The whole request failed: its proposals wait again, unless newer ones of their partitions do."""
        self._waiting = {**self._sent, **self._waiting}
        self._sent = {}

    def answered(self, response: AlterPartitionResponse, committed: Callable[[Partition], None]) -> bool:
        """Process the results; return False when proposals wait again and the caller should pause first.

        Args:
            committed: called with each partition whose in-sync set has changed, so that its high watermark may rise.
        """
        sent, self._sent = self._sent, {}
        again = {}
        for topic in response.topics:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition_index)
                pending = sent.pop(key, None)
                if pending is not None and not self._settle(pending, result, committed):
                    again[key] = pending
        again.update(sent)  # the response omits them
        self._waiting = {**again, **self._waiting}
        return not again

    def _settle(self, pending: _Pending, result: AlteredPartition, committed: Callable[[Partition], None]) -> bool:
        """Process one result; return False to send the proposal again."""
        partition, proposal = pending
        code = result.error_code
        if not code:
            if result.leader_epoch != partition.leader_epoch or not partition.is_leader:
                return True  # superseded by a newer leader epoch
            if partition.isr_committed(proposal, partition_epoch=result.partition_epoch, in_sync_replicas=result.isr):
                logger.info("%s: in-sync replicas %s", partition.topic_partition, sorted(result.isr))
                committed(partition)
            return True
        self.failed_updates += 1
        if code in _REFUSED:
            partition.isr_refused(proposal)
            return True
        if code in _SUPERSEDED:
            logger.info(
                "%s: the controller refused a change of the in-sync replicas: %s",
                partition.topic_partition,
                errors.for_code(code).__name__,
            )
            return True
        return partition.isr.in_flight is not proposal


class AlterPartitionSender:
    """Sends proposals to the active controller, one request at a time. Proposals wait until `run` runs."""

    def __init__(self, proposals: PendingProposals) -> None:
        self._proposals = proposals
        self._submitted = trio.Event()

    def submit(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal soon."""
        self._proposals.submit(partition, proposal)
        self._submitted.set()

    async def run(
        self,
        gateway: AlterPartitionGateway,
        broker_epoch: Callable[[], int],
        committed: Callable[[Partition], None],
    ) -> None:
        """Send until cancelled. A failed request is repeated after a pause.

        Args:
            broker_epoch: returns the epoch of this broker's registration.
            committed: see `PendingProposals.answered`.
        """
        proposals = self._proposals
        while True:
            await self._submitted.wait()
            self._submitted = trio.Event()
            while len(proposals):
                if broker_epoch() < 0:  # a broker that starts: the controller refuses what it sends before it registers
                    await trio.sleep(_RETRY_SECONDS)
                    continue
                request = proposals.next_request(broker_epoch())
                if request is None:
                    break
                response = await self._send(gateway, request)
                if response is None or not proposals.answered(response, committed):
                    await trio.sleep(_RETRY_SECONDS)

    async def _send(
        self, gateway: AlterPartitionGateway, request: AlterPartitionRequest
    ) -> AlterPartitionResponse | None:
        """Return the response; None when the whole request failed, so that its proposals wait again."""
        try:
            response = await gateway.alter_partition(request)
        except errors.KafkaError as error:
            logger.info("AlterPartition failed and is retried: %s", error)
            self._proposals.failed()
            return None
        except trio.Cancelled:
            self._proposals.failed()
            raise
        if response.error_code:
            logger.info("AlterPartition failed and is retried: %s", errors.for_code(response.error_code).__name__)
            self._proposals.failed()
            return None
        return response
