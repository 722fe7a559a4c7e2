"""Metadata records of ACLs, SCRAM credentials and delegation tokens, which an image keeps as they are."""

from __future__ import annotations

import uuid

from triokafka.broker_stub.metadata.image import SecurityKey
from triokafka.protocol.stored import cluster_metadata as stored
from triokafka.protocol.stored.metadata_record import MetadataRecord
from triokafka.security.acl import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType
from triokafka.security.scram_credentials import ScramCredential

ADDED = (stored.AccessControlEntryRecord, stored.UserScramCredentialRecord, stored.DelegationTokenRecord)
"""The records that set an entry."""
REMOVED = (
    stored.RemoveAccessControlEntryRecord,
    stored.RemoveUserScramCredentialRecord,
    stored.RemoveDelegationTokenRecord,
)
"""The records that remove an entry."""


def key_of(record: MetadataRecord) -> SecurityKey:
    """Return the key of the entry that a record sets or removes."""
    match record:
        case stored.AccessControlEntryRecord() | stored.RemoveAccessControlEntryRecord():
            return "acl", str(record.id), 0
        case stored.UserScramCredentialRecord() | stored.RemoveUserScramCredentialRecord():
            return "scram", record.name, record.mechanism
        case stored.DelegationTokenRecord() | stored.RemoveDelegationTokenRecord():
            return "token", record.token_id, 0
        case _:
            raise TypeError(f"{type(record).__name__} is not a security record")


def removal_of(key: SecurityKey) -> MetadataRecord:
    """Return the record that removes an entry."""
    kind, name, number = key
    match kind:
        case "acl":
            return stored.RemoveAccessControlEntryRecord(id=uuid.UUID(name))
        case "scram":
            return stored.RemoveUserScramCredentialRecord(name=name, mechanism=number)
        case _:
            return stored.RemoveDelegationTokenRecord(token_id=name)


def acl_of(record: stored.AccessControlEntryRecord) -> AclBinding:
    """Return the ACL of a record."""
    return AclBinding(
        ResourceType(record.resource_type),
        record.resource_name,
        AclPatternType(record.pattern_type),
        record.principal,
        record.host,
        AclOperation(record.operation),
        AclPermissionType(record.permission_type),
    )


def acl_record(acl_id: uuid.UUID, acl: AclBinding) -> stored.AccessControlEntryRecord:
    """Return the record that adds an ACL."""
    return stored.AccessControlEntryRecord(id=acl_id, **acl._asdict())


def scram_credential_of(record: stored.UserScramCredentialRecord) -> ScramCredential:
    """Return the credential of a record."""
    return ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)
