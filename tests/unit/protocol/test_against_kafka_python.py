"""Our bytes are kafka-python 3's bytes, for every message and version that both declare."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest

from tests.unit.protocol.fillings import name_of, rich, versions_of, wire_messages
from triokafka.protocol.message import Message, Struct

_MODULES = (
    "admin.acl", "admin.client_quotas", "admin.cluster", "admin.configs", "admin.groups", "admin.topics",
    "admin.transactions", "admin.users", "consumer.fetch", "consumer.group", "consumer.metadata", "consumer.offsets",
    "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata", "producer.produce",
    "producer.transaction", "sasl",
)  # fmt: skip


def _peer_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _MODULES:
        found.update(vars(import_module(f"kafka.protocol.{name}")))
    return found


_NEWER_THAN_KAFKA_PYTHON = {("DescribeLogDirs", 5), ("ListTransactions", 2)}
# Between brokers, for operators only, or a protocol that it does not speak yet.
_NOT_IN_KAFKA_PYTHON = (
    "AlterPartition", "UnregisterBroker", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "Vote", "BeginQuorumEpoch",
    "EndQuorumEpoch", "FetchSnapshot", "BrokerRegistration", "BrokerHeartbeat", "AllocateProducerIds", "Envelope",
    "AssignReplicasToDirs", "ControllerRegistration", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter",
    "WriteTxnMarkers", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken", "GetTelemetrySubscriptions", "PushTelemetry",
)  # fmt: skip
PEERS = _peer_classes()


def _api(cls: type[Message]) -> str:
    return cls.__name__.removesuffix("Request").removesuffix("Response")


CASES = [
    (cls, version)
    for cls, version in versions_of(wire_messages())
    if _api(cls) not in _NOT_IN_KAFKA_PYTHON and (_api(cls), version) not in _NEWER_THAN_KAFKA_PYTHON
]


def to_peer(ours: Struct, peer_class: Any, fields: Any, version: int) -> Any:
    """The same message as kafka-python's object. Tagged fields are set only where they differ from the default."""
    values: dict[str, Any] = {}
    for f in ours.__fields__:
        value = getattr(ours, f.name)
        if version not in f.versions or (f.tag is not None and value == f.default()):
            continue
        name = f.name
        if "authorized_operations" in fields and name.endswith("authorized_operations"):
            # kafka-python holds these 32 bits as a set, under one name.
            name = "authorized_operations"
            value = {bit for bit in range(32) if value >> bit & 1}
        theirs = fields[name]
        if f.struct is None or value is None:
            values[name] = value
        elif f.is_array:
            values[name] = [to_peer(item, theirs.data_class, theirs.array_of.fields, version) for item in value]
        else:
            values[name] = to_peer(value, theirs.data_class, theirs.fields, version)
    return peer_class(version=version, **values)


def peer_bytes(ours: Message, version: int) -> bytes:
    """kafka-python's encoding of our message."""
    peer_class = PEERS[type(ours).__name__]
    return bytes(to_peer(ours, peer_class, peer_class._struct.fields, version).encode(version=version))


def test_kafka_python_has_every_message_and_version() -> None:
    assert [cls.__name__ for cls, version in CASES if version > PEERS[cls.__name__].max_version] == []


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_defaults_encode_to_the_same_bytes(cls: type[Message], version: int) -> None:
    assert cls().encode(version) == peer_bytes(cls(), version)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_filled_messages_encode_to_the_same_bytes(cls: type[Message], version: int) -> None:
    for seed in range(6):
        message = rich(cls, version, random.Random(f"{cls.__name__} {version} {seed}"))
        assert message.encode(version) == peer_bytes(message, version), message
