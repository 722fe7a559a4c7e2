from __future__ import annotations

import uuid

import pytest

from tests.unit.broker_stub.clusters import DATA, MemoryWorld, broker, running, topic
from triokafka.broker_stub.controller import activation_records
from triokafka.broker_stub.metadata.records import decode_batches, encode_records, version_of
from triokafka.errors import CorruptRecordError
from triokafka.protocol.stored.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from triokafka.protocol.stored.control_records import LeaderChangeMessage, VotersRecord, decode_control_key
from triokafka.records import RecordDecoder

DIRECTORY = uuid.UUID(int=9)


def test_batch_is_decoded_with_its_offsets_and_epoch() -> None:
    records = [
        *activation_records.initial_records(),
        broker(1, rack="r"),
        *topic("t", [1, 2], configs={"retention.ms": "5"}),
    ]
    data = encode_records(records, base_offset=40, epoch=3, timestamp_ms=1, metadata_version=25)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.epoch) == (40, 39 + len(records), 3)
    assert list(batch.records) == records


async def test_opening_of_an_epoch_is_one_control_batch_with_leader_and_voters() -> None:
    async with running(MemoryWorld()) as controller:
        data = bytes(controller.metadata.files.read(0, 1))
        directory = controller.metadata.identity.directory_ids[DATA]
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.kraft_version) == (0, 2, 1, 1)
    assert batch.records == []
    controls = RecordDecoder(data, include_control=True).take()
    assert [decode_control_key(control.key or b"") for control in controls] == [2, 5, 6]
    change = LeaderChangeMessage.decode(controls[0].value or b"", 0)
    assert change.leader_id == 1 and [voter.voter_id for voter in change.voters] == [1]
    (voter,) = VotersRecord.decode(controls[2].value or b"", 0).voters
    assert (voter.voter_id, voter.voter_directory_id, voter.endpoints[0].host) == (1, directory, "localhost")


async def test_later_epochs_open_with_the_leader_alone() -> None:
    world = MemoryWorld()
    async with running(world, register=False):
        pass
    async with running(world, register=False) as controller:
        opening = next(batch for batch in controller.metadata.files.read_all() if batch.epoch == 2)
    assert (opening.last_offset, opening.kraft_version) == (opening.base_offset, None)


@pytest.mark.parametrize(
    ("record", "level", "version"),
    [
        (RegisterBrokerRecord(), 7, 1),
        (RegisterBrokerRecord(), 16, 2),
        (RegisterBrokerRecord(), 25, 3),
        (RegisterBrokerRecord(), 30, 4),
        (PartitionRecord(), 16, 0),
        (PartitionRecord(), 22, 1),
        (PartitionRecord(), 23, 2),
        (PartitionChangeRecord(), 25, 2),
        (BrokerRegistrationChangeRecord(), 7, 1),
        (BrokerRegistrationChangeRecord(), 25, 2),
        (TopicRecord(), 30, 0),
    ],
)
def test_records_are_written_in_the_version_of_the_metadata_level(
    record: TopicRecord, level: int, version: int
) -> None:
    assert version_of(record, level) == version


def test_damaged_batch_is_refused() -> None:
    data = bytearray(encode_records(topic("t", [1]), base_offset=0, epoch=1, timestamp_ms=1, metadata_version=25))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        list(decode_batches(data))


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    data = encode_records(topic("t", [1]), base_offset=0, epoch=1, timestamp_ms=1, metadata_version=25)
    assert len(list(decode_batches(data + data[:-1]))) == 1
