"""The files that ``storage format`` writes, compared with those of Apache Kafka 4.3's kafka-storage."""

from __future__ import annotations

import random

import pytest

from tests.unit.broker_stub.clusters import CONFIG, DATA, MemoryWorld, running
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.features import INITIAL_LEVELS
from triokafka.broker_stub.metadata.records import decode_batches
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint
from triokafka.broker_stub.storage_format import (
    BOOTSTRAP_FILE,
    encode_bootstrap,
    encode_format_snapshot,
    format_metadata_directory,
    read_bootstrap_records,
    write_format_snapshot,
)
from triokafka.errors import ConfigurationError
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, FeatureLevelRecord
from triokafka.protocol.stored.control_records import ControlRecordType, decode_control_key
from triokafka.records import RecordDecoder, iter_batches
from triokafka.structs import parse_uuid
from triokafka.world.memory import MemoryStorage

SNAPSHOT = f"{DATA}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
VOTER = Voter(
    ReplicaKey(1, parse_uuid("T76LR7I-QJmec0usQuljng")), (VoterEndpoint("CONTROLLER", "127.0.0.1", 19999),), 0, 1
)
KAFKAS_VOTERS = (
    "000002000000014fbe8b47b23e40999e734bac42e9639e020b434f4e54524f4c4c45520a3132372e302e302e314e1f0000000001000000"
)
RECORDS = [FeatureLevelRecord(name="metadata.version", feature_level=20)]


def controls(data: bytes) -> list[tuple[int, ControlRecordType, str]]:
    """Offset, type and value of every control record."""
    found = []
    for info in iter_batches(memoryview(data), check_crc=True):
        if info.is_control:
            batch = memoryview(data)[info.position : info.position + info.size]
            for record in RecordDecoder(batch, from_offset=0, include_control=True).take():
                assert record.key is not None and record.value is not None
                found.append(
                    (record.offset, ControlRecordType(decode_control_key(record.key)), bytes(record.value).hex())
                )
    return found


def test_voters_are_in_the_snapshot_at_offset_0_as_kafka_writes_them() -> None:
    assert controls(encode_format_snapshot([VOTER], now_ms=0x1A20E83BE43)) == [
        (0, ControlRecordType.SNAPSHOT_HEADER, "0000000001a20e83be4300"),
        (1, ControlRecordType.KRAFT_VERSION, "0000000100"),
        (2, ControlRecordType.KRAFT_VOTERS, KAFKAS_VOTERS),
        (3, ControlRecordType.SNAPSHOT_FOOTER, "000000"),
    ]


def test_bootstrap_checkpoint_is_laid_out_as_kafka_does() -> None:
    data = encode_bootstrap(RECORDS * 6, metadata_version=20, now_ms=5)
    infos = list(iter_batches(memoryview(data), check_crc=True))
    assert [(info.base_offset, info.last_offset, info.is_control) for info in infos] == [
        (0, 0, True),
        (1, 6, False),
        (7, 7, True),
    ]
    assert {info.partition_leader_epoch for info in infos} == {0}
    assert controls(data) == [
        (0, ControlRecordType.SNAPSHOT_HEADER, "0000000000000000000000"),
        (7, ControlRecordType.SNAPSHOT_FOOTER, "000000"),
    ]


def test_bootstrap_records_are_read_back() -> None:
    storage = MemoryStorage()
    storage.make_dirs(DATA)
    assert read_bootstrap_records(storage, DATA) == []
    storage.replace_file(f"{DATA}/{BOOTSTRAP_FILE}", encode_bootstrap(RECORDS, metadata_version=20, now_ms=5))
    assert read_bootstrap_records(storage, DATA) == RECORDS


def test_damaged_bootstrap_checkpoint_is_refused_by_name() -> None:
    storage = MemoryStorage()
    storage.make_dirs(DATA)
    data = bytearray(encode_bootstrap(RECORDS, metadata_version=20, now_ms=5))
    data[100] ^= 1
    storage.replace_file(f"{DATA}/{BOOTSTRAP_FILE}", bytes(data))
    with pytest.raises(ConfigurationError, match=BOOTSTRAP_FILE):
        read_bootstrap_records(storage, DATA)


def test_only_a_new_metadata_directory_is_formatted() -> None:
    storage = MemoryStorage()
    storage.make_dirs_durably(DATA)
    assert format_metadata_directory(storage, DATA, VOTER, now_ms=1)
    assert not format_metadata_directory(storage, DATA, VOTER, now_ms=2)
    storage.remove(SNAPSHOT)
    storage.replace_file(f"{DATA}/__cluster_metadata-0/{0:020d}.log", b"")
    assert not format_metadata_directory(storage, DATA, VOTER, now_ms=3)
    assert not storage.exists(SNAPSHOT)


def test_format_survives_a_power_cut() -> None:
    for seed in range(10):
        storage = MemoryStorage()
        storage.make_dirs_durably(DATA)
        write_format_snapshot(storage, DATA, [VOTER], now_ms=1)
        storage.crash(random.Random(seed))
        assert len(list(decode_batches(storage.read_file(SNAPSHOT)))) == 2


async def test_new_node_is_the_only_voter_of_a_dynamic_quorum() -> None:
    async with running(MemoryWorld()) as controller:
        assert controller.metadata.kraft_version == 1
        (voter,) = controller.metadata.raft.voters
        assert voter.key == ReplicaKey(1, controller.metadata.identity.directory_ids[DATA])
        first = controls(bytes(controller.metadata.files.read(0, 1)))
        assert [kind for _, kind, _ in first] == [
            ControlRecordType.LEADER_CHANGE,
            ControlRecordType.KRAFT_VERSION,
            ControlRecordType.KRAFT_VOTERS,
        ]


async def test_static_quorum_of_one_keeps_kraft_version_0() -> None:
    config = BrokerConfig.for_tests(
        log_dirs=(DATA,),
        listeners=("PLAINTEXT://127.0.0.1:0", "CONTROLLER://127.0.0.1:19998"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
        controller_quorum_voters=("1@127.0.0.1:19998",),
    )
    async with running(MemoryWorld(), config, register=False) as controller:
        assert controller.metadata.kraft_version == 0
        assert controls(bytes(controller.metadata.files.read(0, 1)))[0][1] is ControlRecordType.LEADER_CHANGE


async def test_first_records_of_a_formatted_directory_replace_the_defaults() -> None:
    world = MemoryWorld()
    world.disk.make_dirs(DATA)
    levels = {**INITIAL_LEVELS, "eligible.leader.replicas.version": 0, "metadata.version": 20}
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    world.disk.replace_file(f"{DATA}/{BOOTSTRAP_FILE}", encode_bootstrap(records, metadata_version=20, now_ms=5))
    async with running(world, CONFIG) as controller:
        assert controller.image.features == {name: level for name, level in levels.items() if level}
        assert not controller.image.broker_configs(None)
    elr = [FeatureLevelRecord(name=name, feature_level=level) for name, level in INITIAL_LEVELS.items()]
    chosen = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="3")
    for first, expected in ((elr, "1"), ([*elr, chosen], "3")):
        world = MemoryWorld()
        world.disk.make_dirs(DATA)
        world.disk.replace_file(f"{DATA}/{BOOTSTRAP_FILE}", encode_bootstrap(first, metadata_version=25, now_ms=5))
        async with running(world, CONFIG) as controller:
            assert controller.image.broker_configs(None)["min.insync.replicas"] == expected
