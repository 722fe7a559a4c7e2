"""Claims about leadership that is given to a broker that somebody names, and about sets that everybody is in."""

from __future__ import annotations

import pytest

from tests.unit.broker_stub.clusters import broker, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.hand_over import hand_over
from triokafka.broker_stub.controller.in_sync import expand_in_sync_sets
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage


def cluster(*replicas: int, isr: list[int] | None = None, leader: int | None = None, gone: int = 0) -> MetadataImage:
    """Three brokers, of which one may be fenced, and a partition."""
    brokers = [broker(number, fenced=number == gone) for number in (1, 2, 3)]
    return replayed([*brokers, *topic("t", replicas, isr=isr, leader=leader)])


def after(image: MetadataImage, to: int | None) -> PartitionImage:
    outcome = hand_over(image, "t", 0, to)
    state = replayed(outcome.records, image).partition("t", 0)
    assert state is not None and state.leader == outcome.response
    return state


def test_a_replica_leads_in_a_new_epoch_and_is_in_sync() -> None:
    image = cluster(1, 2, 3, isr=[1, 3])
    state = after(image, 2)
    assert (state.leader, state.leader_epoch) == (2, 1)
    assert state.replicas == (1, 2, 3) and set(state.isr) == {1, 2, 3}


def test_who_has_no_replica_takes_the_place_of_the_leaders() -> None:
    state = after(cluster(1), 3)
    assert (state.leader, state.replicas, state.isr, len(state.directories)) == (3, (3,), (3,), 1)
    state = after(cluster(2, 1), 3)
    assert (state.leader, state.replicas, set(state.isr)) == (3, (3, 1), {3, 1})


@pytest.mark.parametrize(
    ("replicas", "leader", "gone", "follows"),
    [
        ((1, 2, 3), 1, 0, 2),
        ((1, 2, 3), 3, 0, 1),
        ((1, 2, 3), 1, 2, 3),
        ((1, 3), 1, 0, 3),  # who has a replica comes first
        ((1, 2), 1, 2, 3),
        ((2,), 2, 0, 3),
    ],
)
def test_the_next_is_an_active_replica_by_id(replicas: tuple[int, ...], leader: int, gone: int, follows: int) -> None:
    assert after(cluster(*replicas, leader=leader, gone=gone), None).leader == follows


def test_a_single_broker_leads_on_in_a_new_epoch() -> None:
    image = replayed([broker(1), *topic("t", (1,))])
    state = after(image, None)
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_nobody_leads_who_is_not_there() -> None:
    for nobody in (2, 9):
        with pytest.raises(errors.BrokerNotAvailableError):
            hand_over(cluster(1, 2, 3, gone=2), "t", 0, nobody)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        hand_over(cluster(1), "t", 1, 2)


def test_everybody_who_is_up_is_in_sync() -> None:
    image = cluster(1, 2, 3, isr=[1], gone=3)
    outcome = expand_in_sync_sets(image, lambda name: LogConfig())
    assert outcome.response == 1
    state = replayed(outcome.records, image).partition("t", 0)
    assert state is not None and (set(state.isr), state.leader, state.leader_epoch) == ({1, 2}, 1, 0)
    assert expand_in_sync_sets(replayed(outcome.records, image), lambda name: LogConfig()).records == []
