from __future__ import annotations

import pytest

from triokafka import topic_names
from triokafka.errors import InvalidTopicError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_legal_names_are_accepted(name: str) -> None:
    topic_names.validate(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "٣"])
def test_illegal_names_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidTopicError) as refused:
        topic_names.validate(name)
    assert len(str(refused.value)) > 20


def test_names_that_metrics_cannot_tell_apart_have_one_key() -> None:
    assert topic_names.collision_key("a.b_c") == topic_names.collision_key("a_b.c")
    assert topic_names.collision_key("a-b") != topic_names.collision_key("a.b")
    assert not topic_names.has_collision_characters("a-b")


def test_only_the_brokers_own_topics_are_internal() -> None:
    assert topic_names.is_internal("__consumer_offsets")
    assert not topic_names.is_internal("__cluster_metadata")
    assert not topic_names.is_internal("__mine")
