"""The small files beside the segments."""

from __future__ import annotations

import random
import uuid

import pytest

from triokafka.broker_stub.log.checkpoints import (
    CorruptCheckpointError,
    read_leader_epochs,
    read_offsets,
    write_leader_epochs,
    write_offsets,
)
from triokafka.broker_stub.log.partition_metadata import read_topic_id, write_topic_id
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage


def test_an_offset_checkpoint_is_version_count_and_lines() -> None:
    storage = MemoryStorage()
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a-b", 10): 2**40}
    write_offsets(storage, "c", offsets)
    assert storage.read_file("c") == b"0\n2\na-b 10 1099511627776\nb 1 7\n"
    assert read_offsets(storage, "c") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na x 1\n",
        "0\n1\na 0 --1\n",
        "0\n1\na 0 %s\n" % ("9" * 20),
        "0\n1\na 0 %s\n" % ("9" * 5000),
        "0\nx\n",
        "0\n",
        "0\n1\na 0 1",
    ],
)
def test_a_malformed_checkpoint_says_so(text: str) -> None:
    storage = MemoryStorage()
    storage.replace_file("c", text.encode())
    with pytest.raises(CorruptCheckpointError, match="c"):
        read_offsets(storage, "c")


def test_a_missing_or_empty_checkpoint_is_empty() -> None:
    storage = MemoryStorage()
    assert read_offsets(storage, "c") == {}
    storage.replace_file("c", b"")
    assert read_offsets(storage, "c") == {}


def test_a_crash_leaves_the_old_checkpoint_or_the_new_one() -> None:
    partition = TopicPartition("a", 0)
    seen = set()
    for seed in range(60):
        storage = MemoryStorage()
        write_offsets(storage, "c", {partition: 1})
        steps = seed % 6
        storage.before_operation = _power_cut_after(steps)
        try:
            write_offsets(storage, "c", {partition: 2})
        except OSError:
            pass
        storage.before_operation = None
        storage.crash(random.Random(seed))
        seen.add(read_offsets(storage, "c")[partition])
    assert seen == {1, 2}


def _power_cut_after(steps: int):  # type: ignore[no-untyped-def]
    left = [steps]

    def before(operation: str, path: str, size: int) -> None:
        if left[0] == 0:
            raise OSError("the power is gone")
        left[0] -= 1

    return before


def test_leader_epochs_are_epoch_and_offset() -> None:
    storage = MemoryStorage()
    write_leader_epochs(storage, "e", [(0, 0), (3, 17)])
    assert storage.read_file("e") == b"0\n2\n0 0\n3 17\n"
    assert read_leader_epochs(storage, "e") == [(0, 0), (3, 17)]


def test_a_torn_file_of_leader_epochs_is_no_shorter_number() -> None:
    """The file is written without a sync: a power cut may leave "3 1" of "3 17"."""
    storage = MemoryStorage()
    write_leader_epochs(storage, "e", [(0, 0), (3, 17)])
    whole = storage.read_file("e")
    for size in range(len(whole)):
        storage.replace_file("e", whole[:size])
        with pytest.raises(CorruptCheckpointError):
            read_leader_epochs(storage, "e")


def test_partition_metadata_has_version_and_topic_id() -> None:
    storage = MemoryStorage()
    topic_id = uuid.UUID("9b7a4c9e-3f07-4f0b-8d6e-2d9d3f0b7a11")
    write_topic_id(storage, "p", topic_id)
    assert storage.read_file("p") == b"version: 0\ntopic_id: m3pMnj8HTwuNbi2dPwt6EQ\n"
    assert read_topic_id(storage, "p") == topic_id
    assert read_topic_id(storage, "missing") is None
    storage.replace_file("p", b"")
    with pytest.raises(CorruptCheckpointError):
        read_topic_id(storage, "p")
