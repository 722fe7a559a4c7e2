"""Incremental fetch sessions, without a broker."""

from __future__ import annotations

import uuid

from triokafka.network.fetch_sessions.fetch_session_handler import NO_TOPIC_ID, FetchSessionHandler, FetchTarget
from triokafka.structs import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def at(offset: int) -> FetchTarget:
    return FetchTarget(offset, 1000)


def started() -> FetchSessionHandler:
    session = FetchSessionHandler()
    session.plan({A: at(0), B: at(0)})
    assert session.answered(7, 0)
    return session


def test_the_first_request_is_full_and_requests_a_session() -> None:
    plan = FetchSessionHandler().plan({A: at(0), B: at(5)})
    assert (plan.session_id, plan.epoch, plan.send, plan.forget) == (0, 0, {A: at(0), B: at(5)}, ())


def test_later_requests_contain_only_changed_partitions() -> None:
    plan = started().plan({A: at(10), B: at(0)})
    assert (plan.session_id, plan.epoch, plan.send, list(plan.forget)) == (7, 1, {A: at(10)}, [])
    assert plan.targets == {A: at(10), B: at(0)}


def test_partitions_left_out_are_forgotten_and_return_whole() -> None:
    session = started()
    assert session.plan({A: at(0)}).forget == [(B, NO_TOPIC_ID)]
    assert session.answered(7, 0)
    plan = session.plan({A: at(0), B: at(3)})
    assert (plan.epoch, plan.send, plan.forget) == (2, {B: at(3)}, [])


def test_recreated_topic_is_forgotten_under_its_old_id() -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    session = FetchSessionHandler()
    session.plan({A: at(0)._replace(topic_id=old)})
    session.answered(7, 0)
    plan = session.plan({A: at(0)._replace(topic_id=new)})
    assert (plan.forget, plan.send) == ([(A, old)], {A: at(0)._replace(topic_id=new)})


def test_a_forgotten_session_starts_over_with_a_full_request() -> None:
    session = started()
    session.plan({A: at(1), B: at(0)})
    assert not session.answered(0, 70)
    plan = session.plan({A: at(1), B: at(0)})
    assert (plan.session_id, plan.epoch, plan.send) == (0, 0, {A: at(1), B: at(0)})


def test_after_a_lost_answer_a_full_request_replaces_the_session() -> None:
    session = started()
    session.plan({A: at(1), B: at(0)})
    session.failed()
    plan = session.plan({A: at(1), B: at(0)})
    assert (plan.session_id, plan.epoch, plan.send) == (7, 0, {A: at(1), B: at(0)})


def test_a_broker_without_room_for_sessions_gets_full_requests() -> None:
    session = FetchSessionHandler()
    session.plan({A: at(0)})
    assert session.answered(0, 0)
    assert session.plan({A: at(1)}).epoch == 0
