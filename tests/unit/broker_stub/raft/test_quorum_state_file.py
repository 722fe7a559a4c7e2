"""``quorum-state``: Kafka's JSON in both versions, replaced atomically, refused when it is damaged."""

from __future__ import annotations

import json
import random
import re
import uuid
from typing import Any

import pytest

from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.errors import ConfigurationError
from triokafka.world.memory import MemoryStorage

DIRECTORY = "/data/__cluster_metadata-0"
KEY = ReplicaKey(2, uuid.UUID("3db5cba8-07b0-4a6f-a1c5-8a2e7a7f3c11"))


def new() -> tuple[MemoryStorage, QuorumStateFile]:
    storage = MemoryStorage()
    storage.make_dirs(DIRECTORY)
    storage.sync_dir("/data")
    storage.sync_dir("/")
    return storage, QuorumStateFile(storage, DIRECTORY)


def without_checksum(storage: MemoryStorage, file: QuorumStateFile) -> bytes:
    """The content of the file as Kafka would write it."""
    content, changes = re.subn(rb',"crc32c":\d+', b"", storage.read_file(file.path))
    assert changes == 1
    return content


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_file_of_kafka_without_a_checksum_is_read(kraft_version: int) -> None:
    storage, file = new()
    state = ElectionState(7, 3, KEY if kraft_version else ReplicaKey(2))
    file.write(state, kraft_version=kraft_version, voter_ids=[1, 2])
    storage.replace_file(file.path, without_checksum(storage, file))
    assert file.read() == state


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_one_changed_bit_is_refused_wherever_it_is(kraft_version: int) -> None:
    storage, file = new()
    file.write(ElectionState(7, 3, KEY), kraft_version=kraft_version, voter_ids=[1, 2, 3])
    content = storage.read_file(file.path)
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        storage.replace_file(file.path, bytes(changed))
        with pytest.raises(ConfigurationError, match=file.path):
            file.read()


def test_nothing_is_stored_at_first() -> None:
    assert new()[1].read() is None


def test_static_quorum_is_stored_as_kafka_does() -> None:
    storage, file = new()
    file.write(ElectionState(7, 3, ReplicaKey(2)), kraft_version=0, voter_ids=[1, 2, 3])
    assert without_checksum(storage, file) == (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    assert file.read() == ElectionState(7, 3, ReplicaKey(2))


def test_dynamic_quorum_is_stored_as_kafka_does() -> None:
    storage, file = new()
    file.write(ElectionState(7, None, KEY), kraft_version=1, voter_ids=[1, 2, 3])
    assert without_checksum(storage, file) == (
        b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"PbXLqAewSm-hxYouen88EQ","data_version":1}'
    )
    assert file.read() == ElectionState(7, None, KEY)


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_state_without_a_vote_is_read_back(kraft_version: int) -> None:
    _, file = new()
    file.write(ElectionState(4), kraft_version=kraft_version, voter_ids=[1])
    assert file.read() == ElectionState(4, None, None)


def test_power_cut_leaves_the_old_state_or_the_new_one() -> None:
    for seed in range(20):
        storage, file = new()
        states = [ElectionState(epoch, None, KEY) for epoch in range(1, 5)]
        for state in states:
            file.write(state, kraft_version=1, voter_ids=[])
        storage.crash(random.Random(seed))
        assert file.read() == states[-1]


@pytest.mark.parametrize(
    "change",
    [
        {"data_version": 2},
        {"leaderEpoch": "7"},
        {"leaderEpoch": 2**31},
        {"votedId": -2},
        {"votedId": True},
        {"votedDirectoryId": "short"},
        {"leaderId": None},
        {"data_version": ...},
        {"votedDirectoryId": ...},
    ],
)
def test_damaged_state_is_refused_by_name(change: dict[str, Any]) -> None:
    storage, file = new()
    file.write(ElectionState(7, None, KEY), kraft_version=1, voter_ids=[])
    content = {**json.loads(storage.read_file(file.path)), **change}
    content = {name: value for name, value in content.items() if value is not ...}
    storage.replace_file(file.path, json.dumps(content).encode())
    with pytest.raises(ConfigurationError, match=file.path):
        file.read()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"3"])
def test_file_that_is_no_json_object_is_refused_by_name(content: bytes) -> None:
    storage, file = new()
    storage.replace_file(file.path, content)
    with pytest.raises(ConfigurationError, match=file.path):
        file.read()
