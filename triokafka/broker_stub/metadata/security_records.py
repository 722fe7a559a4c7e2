"""Metadata records of ACLs, SCRAM credentials and delegation tokens, which an image keeps as they are."""

from __future__ import annotations

import uuid

from triokafka.broker_stub.metadata.image import SecurityKey
from triokafka.protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord

ADDED = (AccessControlEntryRecord, UserScramCredentialRecord, DelegationTokenRecord)
"""The records that set an entry."""
REMOVED = (RemoveAccessControlEntryRecord, RemoveUserScramCredentialRecord, RemoveDelegationTokenRecord)
"""The records that remove an entry."""


def key_of(record: MetadataRecord) -> SecurityKey:
    """Return the key of the entry that a record sets or removes."""
    match record:
        case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
            return "acl", str(record.id), 0
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            return "scram", record.name, record.mechanism
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            return "token", record.token_id, 0
        case _:
            raise TypeError(f"{type(record).__name__} is no security record")


def removal_of(key: SecurityKey) -> MetadataRecord:
    """Return the record that removes an entry."""
    kind, name, number = key
    match kind:
        case "acl":
            return RemoveAccessControlEntryRecord(id=uuid.UUID(name))
        case "scram":
            return RemoveUserScramCredentialRecord(name=name, mechanism=number)
        case _:
            return RemoveDelegationTokenRecord(token_id=name)
