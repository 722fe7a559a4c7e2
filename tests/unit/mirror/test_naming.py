"""Names and filters are those of MirrorMaker 2."""

from __future__ import annotations

import pytest

from triokafka.errors import ConfigurationError
from triokafka.mirror.filters import EXCLUDED_GROUPS, EXCLUDED_TOPICS, NameFilter
from triokafka.mirror.naming import IdentityNaming, PrefixNaming, is_internal
from triokafka.mirror.offset_sync_rule import OffsetSyncRule
from triokafka.mirror.options import MirrorOptions


def test_remote_topic_has_the_prefix() -> None:
    assert PrefixNaming().remote_topic("west", "orders") == "west.orders"
    assert PrefixNaming("_").remote_topic("west", "orders") == "west_orders"


def test_identity_keeps_names_except_heartbeats() -> None:
    assert IdentityNaming().remote_topic("west", "orders") == "orders"
    assert IdentityNaming().remote_topic("west", "heartbeats") == "west.heartbeats"


@pytest.mark.parametrize(
    ("topic", "cycle"),
    [("orders", False), ("east.orders", True), ("west.east.orders", True), ("west.orders", False), ("east", False)],
)
def test_topic_that_came_from_the_target_is_a_cycle(topic: str, cycle: bool) -> None:
    """The topic came directly or through other clusters."""
    assert PrefixNaming().is_cycle(topic, "east") is cycle


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "mm2-offset-syncs.b.internal", "a.checkpoints.internal", "connect-internal", ".x"]
)
def test_internal_topics_are_never_mirrored(topic: str) -> None:
    assert is_internal(topic)


def test_filter_matches_whole_names() -> None:
    topics = NameFilter("topics", ["orders", "pay.*"], EXCLUDED_TOPICS)
    names = ["orders", "orders2", "payments", "pay.replica", "__orders"]
    assert [name for name in names if topics.accepts(name)] == ["orders", "payments"]
    groups = NameFilter("groups", [".*"], EXCLUDED_GROUPS)
    assert [name for name in ["billing", "console-consumer-1", "connect-a"] if groups.accepts(name)] == ["billing"]


def test_pattern_that_is_no_expression_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"topics_exclude: '\(' is not a regular expression"):
        NameFilter("topics", [], ["("])


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"source_alias": "a", "target_alias": "a"}, "both 'a'"),
        ({"source_alias": "a b"}, "source_alias='a b'"),
        ({"shard": 2, "shards": 2}, "from 0 to 1"),
        ({"commit_interval_ms": 0}, "more than 0"),
        ({"offset_lag_max": -1}, "at least 0"),
        ({"topics": ("(",)}, "not a regular expression"),
        ({"configs_exclude": ("*",)}, "not a regular expression"),
        ({"naming": "other"}, "naming='other'"),
    ],
)
def test_wrong_option_is_an_error_that_names_it(wrong: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        MirrorOptions(**{"source": {}, "target": {}, **wrong})  # type: ignore[arg-type]


def test_sync_is_due_first_then_by_lag_and_after_gaps() -> None:
    rule = OffsetSyncRule(100)
    assert rule.is_due((0, 0), (9, 9))
    assert not rule.is_due((10, 10), (59, 59))
    assert not rule.is_due((60, 60), (108, 108))
    assert rule.is_due((109, 109), (110, 110))
    assert rule.is_due((112, 111), (113, 112)), "a record of the source was skipped"
    assert rule.is_due((114, 20), (115, 21)), "the target's log was truncated"


def test_without_lag_every_run_is_synced() -> None:
    rule = OffsetSyncRule(0)
    assert rule.is_due((0, 0), (0, 0))
    assert rule.is_due((1, 1), (1, 1))
