"""The initial offsets of a query, in the connector's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from triokafka.errors import ConfigurationError, KafkaError
from triokafka.spark.planning.initial_offsets_file import (
    decode_initial_offsets,
    encode_initial_offsets,
    load_initial_offsets,
    store_initial_offsets,
)
from triokafka.structs import TopicPartition

OFFSETS = {TopicPartition("b", 10): 7, TopicPartition("b", 2): 1, TopicPartition("a", 0): 3}


def test_the_file_begins_with_a_zero_byte_and_its_version() -> None:
    assert encode_initial_offsets(OFFSETS) == b'\0v1\n{"a":{"0":3},"b":{"2":1,"10":7}}'


def test_written_offsets_are_read() -> None:
    assert decode_initial_offsets(encode_initial_offsets(OFFSETS)) == OFFSETS


def test_a_file_of_spark_2_1_0_is_read() -> None:
    """It has another first byte, and no version."""
    content = b'2{"kafka-initial-offset-2-1-0":{"2":0,"1":0,"0":0}}'
    assert decode_initial_offsets(content) == {TopicPartition("kafka-initial-offset-2-1-0", n): 0 for n in range(3)}


def test_a_file_of_a_future_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"maximum supported log version is v1, but encountered v99999"):
        decode_initial_offsets(b'\0v99999\n{"topic":{"0":1}}')


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"\0v\xc2\xb2\n{}",
        b"\0v" + b"9" * 5000,
        b"\0v+1\n{}",
        b"\0v\n{}",
        b"\0vx\n{}",
        b"\0v0\n{}",
        b"\0v1\n",
        b'\0v1\n{"t":1}',
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError):
        decode_initial_offsets(content)


@pytest.mark.parametrize("content", [b"", b"\0v2\n{}", b"\0v1\nnonsense"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"option 'initialOffsetsPath', {tmp_path}/0, cannot be used: "):
        load_initial_offsets(str(tmp_path / "0"))


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_the_file_is_stored_at_the_given_path(tmp_path: Path, form: str) -> None:
    path = form.format(tmp_path / "checkpoint" / "sources" / "0" / "0")
    assert load_initial_offsets(path) is None
    store_initial_offsets(path, OFFSETS)
    assert load_initial_offsets(path) == OFFSETS
    assert [file.name for file in (tmp_path / "checkpoint" / "sources" / "0").iterdir()] == ["0"]


@pytest.mark.parametrize("where", ["/dev/null/sources/0/0", "nobody://knows/0"])
def test_unusable_path_is_reported_with_the_option(where: str) -> None:
    with pytest.raises(KafkaError, match=f"option 'initialOffsetsPath', {where}, cannot be written"):
        store_initial_offsets(where, OFFSETS)
    with pytest.raises(KafkaError, match="'initialOffsetsPath', nobody://knows/0, cannot be read"):
        load_initial_offsets("nobody://knows/0")
