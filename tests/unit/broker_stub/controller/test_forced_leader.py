"""Leadership that a test gives to a chosen broker."""

from __future__ import annotations

import pytest

from tests.unit.broker_stub.clusters import broker, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.forced_leader import active_leader, hand_over
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage


def cluster(*replicas: int, isr: list[int] | None = None, leader: int | None = None, gone: int = 0) -> MetadataImage:
    """Three brokers, of which one may be fenced, and a partition."""
    brokers = [broker(number, fenced=number == gone) for number in (1, 2, 3)]
    return replayed([*brokers, *topic("t", replicas, isr=isr, leader=leader)])


def after(image: MetadataImage, to: int) -> PartitionImage:
    outcome = hand_over(image, "t", 0, to)
    state = replayed(outcome.records, image).partition("t", 0)
    assert state is not None and state.leader == outcome.response
    return state


def test_a_replica_in_sync_leads_in_a_new_epoch() -> None:
    state = after(cluster(1, 2, 3, isr=[1, 3]), 3)
    assert (state.leader, state.leader_epoch) == (3, 1)
    assert state.replicas == (1, 2, 3) and set(state.isr) == {1, 3}


def test_a_broker_that_is_not_in_sync_cannot_lead() -> None:
    for image in (cluster(1, 2, 3, isr=[1, 3]), cluster(1, 3)):
        with pytest.raises(errors.EligibleLeadersNotAvailableError):
            hand_over(image, "t", 0, 2)


@pytest.mark.parametrize(
    ("replicas", "leader", "gone", "follows"),
    [
        ((1, 2, 3), 1, 0, 2),
        ((1, 2, 3), 3, 0, 1),
        ((1, 2, 3), 1, 2, 3),
        ((1, 3), 1, 0, 3),  # a broker with a replica comes first
        ((1, 2), 1, 2, 3),
        ((2,), 2, 0, 3),
    ],
)
def test_the_next_is_an_active_replica_by_id(replicas: tuple[int, ...], leader: int, gone: int, follows: int) -> None:
    assert active_leader(cluster(*replicas, leader=leader, gone=gone), "t", 0) == follows


def test_a_single_broker_leads_on_in_a_new_epoch() -> None:
    image = replayed([broker(1), *topic("t", (1,))])
    state = after(image, active_leader(image, "t", 0))
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_unavailable_broker_cannot_become_leader() -> None:
    for other in (2, 9):
        with pytest.raises(errors.BrokerNotAvailableError):
            hand_over(cluster(1, 2, 3, gone=2), "t", 0, other)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        hand_over(cluster(1), "t", 1, 2)
