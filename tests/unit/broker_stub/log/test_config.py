"""The table of topic configuration."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.log.config import DEFINITIONS, ConfigType, LogConfig, parse_topic_config
from triokafka.errors import InvalidConfigurationError


def test_the_defaults_of_the_table_are_the_defaults_of_the_log() -> None:
    defaults = LogConfig()
    for field in LogConfig._fields:
        assert getattr(defaults, field) == DEFINITIONS[field.replace("_", ".")].default


def test_defaults_are_those_of_kafka_4() -> None:
    config = LogConfig()
    assert (config.max_message_bytes, config.segment_bytes, config.retention_ms) == (1_048_588, 2**30, 604_800_000)
    assert (config.message_timestamp_after_max_ms, config.unclean_leader_election_enable) == (3_600_000, False)


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1, 12:3 ,4:5", ",0:1,,"])
def test_throttled_replicas_are_pairs(text: str) -> None:
    parsed = parse_topic_config({"leader.replication.throttled.replicas": text})
    assert list(parsed.values()) == [tuple(item.strip() for item in text.split(",") if item)]


@pytest.mark.parametrize(
    "text", [":", "0:", ":1", "0::1", "a:1", "0:1,b", "**", "-1:2", "0 1", "7", "0:1:2", "*,0:1", "*,*"]
)
def test_throttled_replicas_that_are_no_pairs_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="must be"):
        parse_topic_config({"leader.replication.throttled.replicas": text})


def test_dotted_names_are_parsed_over_a_base() -> None:
    base = LogConfig(retention_ms=5)
    config = LogConfig.from_properties({"segment.bytes": " 2000000 ", "cleanup.policy": "compact, delete"}, base=base)
    assert (config.retention_ms, config.segment_bytes) == (5, 2_000_000)
    assert config.compacts
    assert config.deletes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "many"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "shred"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "perhaps"),
        ("compression.gzip.level", "0"),
        ("remote.storage.enable", "true"),
        ("retention.ms", "1_000"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0_1"),
        ("flush.ms", None),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str | None) -> None:
    """This includes values of a feature that does not exist here: tiered storage."""
    with pytest.raises(InvalidConfigurationError, match=name):
        parse_topic_config({name: text})


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"retention\.mss; did you mean retention\.ms\?"):
        parse_topic_config({"retention.mss": "1"})


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms"):
        parse_topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_every_default_is_formatted_as_it_is_parsed() -> None:
    for definition in DEFINITIONS.values():
        if definition.default is not None:
            assert definition.parse(definition.format(definition.default)) == definition.default
        assert definition.doc
        assert isinstance(definition.type, ConfigType)


def test_tests_may_have_small_segments() -> None:
    assert LogConfig.from_properties({"internal.segment.bytes": "100"}).segment_bytes == 100
