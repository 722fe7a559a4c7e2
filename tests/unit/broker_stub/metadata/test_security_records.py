"""ACLs, SCRAM credentials and delegation tokens of a Kafka cluster stay in the image and in snapshots."""

from __future__ import annotations

import uuid

import pytest

from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import replayed
from triokafka.broker_stub.metadata.image_difference import difference_steps
from triokafka.broker_stub.metadata.records import decode_batches, encode_records
from triokafka.broker_stub.metadata.snapshots import image_records
from triokafka.protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord

ACL = AccessControlEntryRecord(
    id=uuid.UUID(int=7), resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3
)
SCRAM = UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
TOKEN = DelegationTokenRecord(owner="User:a", requester="User:a", renewers=["User:b"], token_id="i")


@pytest.mark.parametrize(
    ("added", "removed"),
    [
        (ACL, RemoveAccessControlEntryRecord(id=uuid.UUID(int=7))),
        (SCRAM, RemoveUserScramCredentialRecord(name="a", mechanism=1)),
        (TOKEN, RemoveDelegationTokenRecord(token_id="i")),
    ],
    ids=["acl", "scram", "token"],
)
def test_entry_is_kept_until_it_is_removed(added: MetadataRecord, removed: MetadataRecord) -> None:
    image = replayed([added])
    assert list(image.security_records.values()) == [added]
    assert list(image_records(image)) == [added]
    assert not replayed([removed], image).security_records
    empty = replayed([])
    assert list(filter(None, difference_steps(empty, image))) == [added]
    assert list(filter(None, difference_steps(image, empty))) == [removed]


def test_log_with_records_of_every_kind_is_read() -> None:
    records = [ACL, SCRAM, TOKEN, ZkMigrationStateRecord(zk_migration_state=3)]
    data = encode_records(records, base_offset=0, epoch=1, timestamp_ms=0, metadata_version=25)
    image, _ = replayed_batches(decode_batches(data))
    assert list(image.security_records.values()) == [ACL, SCRAM, TOKEN]
