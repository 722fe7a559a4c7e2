"""Decoders of keys and values: as text or numbers, or as records of Kafka's internal topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Message
from triokafka.protocol.stored import (
    cluster_metadata,  # noqa: F401 - declares the records decoded here
    consumer_group,
)
from triokafka.protocol.stored.as_json import as_json
from triokafka.protocol.stored.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue
from triokafka.protocol.stored.metadata_record import decode_record
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue
from triokafka.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue
from triokafka.protocol.stored.versioned import VersionedMessage, stored_version

Shown = tuple[str | None, str | None]
"""Printable key and value; None if absent."""
Decoder = Callable[[bytes | None, bytes | None], Shown]
"""Returns the printable key and value of a record."""

REDACTED: Final = "[redacted]"
_MARKERS: Final = {0: "ABORT", 1: "COMMIT"}
# The names that Kafka's tool prints, one with a colon.
_CONTROL: Final[dict[int, tuple[str, type[Message]]]] = {
    2: ("LeaderChange:", LeaderChangeMessage),
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}
_OFFSETS_KINDS: Final[dict[int, tuple[type[VersionedMessage], type[VersionedMessage]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (consumer_group.ConsumerGroupMetadataKey, consumer_group.ConsumerGroupMetadataValue),
    4: (consumer_group.ConsumerGroupPartitionMetadataKey, consumer_group.ConsumerGroupPartitionMetadataValue),
    5: (consumer_group.ConsumerGroupMemberMetadataKey, consumer_group.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_group.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_group.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (consumer_group.ConsumerGroupTargetAssignmentMemberKey, consumer_group.ConsumerGroupTargetAssignmentMemberValue),
    8: (
        consumer_group.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (consumer_group.ConsumerGroupRegularExpressionKey, consumer_group.ConsumerGroupRegularExpressionValue),
}


def text_decoder(name: str) -> Callable[[bytes], str]:
    """Return the decoder of that name: string, hex, integer or long, or the equivalent Java class name.

    Raises:
        ValueError: the name is unknown.
    """
    kind = name.rpartition(".")[2].removesuffix("Decoder").removesuffix("Deserializer").lower()
    decoders: dict[str, Callable[[bytes], str]] = {
        "string": lambda data: data.decode("utf-8", "backslashreplace"),
        "default": bytes.hex,
        "hex": bytes.hex,
        "integer": lambda data: str(int.from_bytes(data, "big", signed=True)) if len(data) == 4 else data.hex(),
        "long": lambda data: str(int.from_bytes(data, "big", signed=True)) if len(data) == 8 else data.hex(),
    }
    if kind not in decoders:
        raise ValueError(f"unknown decoder {name!r}; use string, hex, integer or long")
    return decoders[kind]


def with_texts(key_decoder: Callable[[bytes], str], value_decoder: Callable[[bytes], str]) -> Decoder:
    """Decodes key and value with separate decoders."""

    def decode(key: bytes | None, value: bytes | None) -> Shown:
        return None if key is None else key_decoder(key), None if value is None else value_decoder(value)

    return decode


def offsets_record(key: bytes | None, value: bytes | None) -> Shown:
    """Decode a record of ``__consumer_offsets``."""
    if key is None:
        return None, _unreadable(value, "no key")
    try:
        kind = stored_version(key, "OffsetCommitKey")
    except ProtocolError as error:
        return _unreadable(key, str(error)), _unreadable(value, str(error))
    classes = _OFFSETS_KINDS.get(kind)
    if classes is None:
        reason = f"unknown record type {kind}"
        return _unreadable(key, reason), _unreadable(value, reason)
    return _shown("type", classes[0], key), _shown("version", classes[1], value)


def transaction_record(key: bytes | None, value: bytes | None) -> Shown:
    """Decode a record of ``__transaction_state``."""
    return _shown("type", TransactionLogKey, key), _shown("version", TransactionLogValue, value)


def metadata_record(key: bytes | None, value: bytes | None, *, with_secrets: bool = False) -> Shown:
    """Decode a record of ``__cluster_metadata`` or of one of its snapshots.

    ``with_secrets`` shows the salts and keys of SCRAM users, and secret options, as Kafka's tool does.
    """
    shown_key = None if key is None else key.hex()
    if value is None:
        return shown_key, None
    try:
        record = decode_record(value)
    except (ProtocolError, UnsupportedVersionError) as error:
        return shown_key, _unreadable(value, str(error))
    version = value[2]
    kind = "".join("_" + c if c.isupper() else c for c in type(record).__name__).strip("_").upper()
    data = as_json(record, version)
    if not with_secrets:
        for name in _secrets_of(kind, data):
            data[name] = REDACTED
    return shown_key, json.dumps({"type": kind, "version": version, "data": data})


def _secrets_of(kind: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the secret fields: what helps to guess a password, or is one."""
    if kind == "USER_SCRAM_CREDENTIAL_RECORD":
        return "salt", "storedKey", "serverKey"
    if kind == "CONFIG_RECORD" and data["resourceType"] == ConfigResourceType.BROKER:
        from triokafka.broker_stub.config.broker_config import is_hidden  # loads the options of the broker

        return ("value",) if is_hidden(data["name"]) else ()
    return ()


def control_record(key: bytes | None, value: bytes | None) -> str:
    """Decode a record of a control batch."""
    if key is None or len(key) < 4:
        return f"controlType: UNKNOWN key: {None if key is None else key.hex()}"
    kind = int.from_bytes(key[2:4], "big")
    if kind in _MARKERS:
        epoch = int.from_bytes(value[2:6], "big", signed=True) if value is not None and len(value) >= 6 else -1
        return f"endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {epoch}"
    if kind not in _CONTROL or value is None:
        return f"controlType: UNKNOWN({kind})"
    name, message = _CONTROL[kind]
    try:
        version = int.from_bytes(value[:2], "big")
        return f"{name} {json.dumps(as_json(message.decode(value, version), version))}"
    except (ProtocolError, UnsupportedVersionError) as error:
        return f"{name} {_unreadable(value, str(error))}"


def _shown(label: str, message: type[VersionedMessage], data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        version = stored_version(data, message.__name__)
        return json.dumps({label: str(version), "data": as_json(message.decode_versioned(data), version)})
    except (ProtocolError, UnsupportedVersionError) as error:
        return _unreadable(data, str(error))


def _unreadable(data: bytes | None, reason: str) -> str | None:
    return None if data is None else f"{data.hex()} (cannot be decoded: {reason})"
