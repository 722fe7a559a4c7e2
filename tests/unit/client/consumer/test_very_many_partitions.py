"""Assignments of very many partitions: the work grows with their number, not with its square.

The measure is the number of comparisons, which does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from triokafka.assignors import Assignment
from triokafka.client.consumer.rebalance import groupless_assignment
from triokafka.client.consumer.rebalance.classic_rebalance import ClassicRebalance
from triokafka.client.consumer.rebalance.groupless_assignment import GrouplessAssignment
from triokafka.client.consumer.rebalance.listener_calls import ListenerCalls
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.cluster import Cluster, PartitionMetadata, TopicMetadata
from triokafka.structs import TopicPartition

PARTITIONS: Final = 500
MOST_COMPARISONS: Final = 10 * PARTITIONS
"""A search through all partitions for each of them makes 125,000 comparisons and more."""
compared = 0


class Counted(TopicPartition):
    """A partition whose comparisons are counted."""

    def __eq__(self, other: object) -> bool:
        global compared
        compared += 1
        return tuple.__eq__(self, cast("Any", other))

    __hash__ = TopicPartition.__hash__


@pytest.fixture(autouse=True)
def _few_comparisons() -> Iterator[None]:
    global compared
    compared = 0
    yield
    assert compared < MOST_COMPARISONS


def partitions() -> list[TopicPartition]:
    """Return new objects for the same partitions."""
    return [Counted("t", number) for number in range(PARTITIONS)]


def subscribed() -> SubscriptionState:
    state = SubscriptionState(default_reset=None)
    state.subscribe(["t"])
    return state


class Handover:
    """Carries out every change at once."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self.subscription = subscription
        self.added: list[int] = []
        self.timing = SimpleNamespace(revoking=lambda: None)

    def take_over(self, wanted: list[TopicPartition], added: tuple[TopicPartition, ...], *, keep: bool) -> None:
        self.added.append(len(added))
        self.subscription.assign_from_group(wanted, keep=keep)


def test_consumer_without_a_group_keeps_its_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupless_assignment, "TopicPartition", Counted)
    subscription = subscribed()
    handover = Handover(subscription)
    network = SimpleNamespace(cluster=_cluster(PARTITIONS))
    source = GrouplessAssignment(cast("Any", network), subscription, cast("Any", handover))
    assert source.advance()
    assert not source.advance()
    network.cluster = _cluster(PARTITIONS)
    assert not source.advance()
    assert handover.added == [PARTITIONS]
    network.cluster = _cluster(PARTITIONS + 1)
    assert source.advance()
    assert handover.added == [PARTITIONS, 1]


def _cluster(count: int) -> Cluster:
    numbers = {number: PartitionMetadata(number, 1) for number in range(count)}
    return Cluster(topics={"t": TopicMetadata("t", partitions=numbers)})


def test_cooperative_member_takes_over_an_assignment() -> None:
    subscription = subscribed()
    subscription.assign_from_group(partitions()[:-1], keep=False)
    handover = Handover(subscription)
    assignments = [Assignment(partitions())]
    member = SimpleNamespace(
        cooperative=True, needs_rejoin="topics changed", generation=1, config=SimpleNamespace(group_id="g"), lost=False
    )
    parts: list[Any] = [
        subscription,
        member,
        SimpleNamespace(is_joining=True),
        SimpleNamespace(take_assignment=lambda: assignments.pop() if assignments else None),
        SimpleNamespace(assigned_layout=None),
        SimpleNamespace(assignment_changed=lambda: None),
        handover,
    ]
    rebalance = ClassicRebalance(*parts)
    assert rebalance.advance()
    assert handover.added == [1]


def test_partitions_are_marked_as_going() -> None:
    subscription = subscribed()
    subscription.assign_from_group(partitions(), keep=False)
    subscription.mark_revoking(tuple(partitions()[1:]))
    assert [partition.partition for partition, state in subscription if not state.revoking] == [0]


async def test_subscription_ends_within_a_revocation() -> None:
    calls = ListenerCalls()
    reported: list[int] = []

    class Listener:
        def on_partitions_revoked(self, revoked: object) -> None:
            if not reported:
                calls.replace(self, "on_partitions_revoked", (*partitions(), Counted("u", 0)))
            reported.append(len(cast("tuple[TopicPartition, ...]", revoked)))

    calls.add(Listener(), "on_partitions_revoked", tuple(partitions()))
    await calls.drain()
    assert reported == [PARTITIONS, 1]


def test_set_of_the_assignment_is_made_once() -> None:
    subscription = subscribed()
    subscription.assign_from_group(partitions(), keep=False)
    first = subscription.assigned_set
    assert first == frozenset(partitions())
    assert subscription.assigned_set is first
    subscription.revoke(partitions()[1:])
    assert subscription.assigned_set == {TopicPartition("t", 0)}
