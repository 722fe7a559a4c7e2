"""Offsets and partitions as JSON (JsonUtilsSuite, KafkaSourceOffsetSuite)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.offsets_json import (
    format_offsets,
    offsets_json,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from triokafka.structs import TopicPartition

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "topic-10", "topic-2"]), st.integers(0, 20)),
    st.integers(-2, 2**63 - 1),
)


def test_parsing_partitions() -> None:
    found = parse_partitions('{"topicA":[0,1],"topicB":[4,6]}')
    assert found == (
        TopicPartition("topicA", 0),
        TopicPartition("topicA", 1),
        TopicPartition("topicB", 4),
        TopicPartition("topicB", 6),
    )
    assert parse_partitions('{"topicB":[6,4],"topicA":[1,0]}') == found


def test_parsing_partition_offsets() -> None:
    found = parse_offsets('{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    assert found == {TopicPartition("topicA", 0): 23, TopicPartition("topicA", 1): -1, TopicPartition("topicB", 0): -2}


def test_reading_the_offset_format_of_spark_2_1_0() -> None:
    """KafkaSourceOffsetSuite: read Spark 2.1.0 offset format"""
    assert parse_offsets('{"topic1":{"0":456,"1":789},"topic2":{"0":0}}') == {
        TopicPartition("topic1", 0): 456,
        TopicPartition("topic1", 1): 789,
        TopicPartition("topic2", 0): 0,
    }


def test_topics_are_sorted_by_name_and_partitions_by_number() -> None:
    """Spark compares offsets as text: a different order would count as new data."""
    mixed = {TopicPartition("b", 10): 1, TopicPartition("b", 2): 2, TopicPartition("a", 0): 3}
    assert format_offsets(mixed) == '{"a":{"0":3},"b":{"2":2,"10":1}}'
    assert json.dumps(offsets_json(mixed)) == json.dumps(offsets_json(dict(reversed(mixed.items()))))


@given(OFFSETS)
def test_offsets_survive_being_written_however_spark_spaces_them(offsets: dict[TopicPartition, int]) -> None:
    """KafkaSourceOffsetSuite: the connector writes no spaces, Python's json does."""
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert parse_offsets(json.dumps(offsets_json(offsets))) == offsets
    assert parse_offsets(offsets_json(offsets)) == offsets
    assert list(parse_offsets(format_offsets(offsets))) == sorted(offsets)


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[]", '"latest"', '{"a": 1}', '{"a": {"0": true}}', '{"a": {"0": 1.5}}', '{"a": {"first": 1}}',
     '{"a": {"-1": 1}}', '{"a": {"0": "7"}}', '{"a": {"0": 99999999999999999999}}',
     '{"a": {"0": 1, "00": 2}}'],
)  # fmt: skip
def test_invalid_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Expected e\.g\. .*, got"):
        parse_offsets(text)
    with pytest.raises(ConfigurationError, match=r"Expected e\.g\. .*123456789"):
        parse_timestamps(text)


@pytest.mark.parametrize("text", ["", "7", '{"a": 0}', '{"a": {"0": 1}}', '{"a": ["0"]}', '{"a": [true]}'])
def test_invalid_partition_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Expected e\.g\. \{\"topicA\":\[0,1\]"):
        parse_partitions(text)
