"""The authorizer of ``authorizer.class.name``: decisions of a node by its metadata, super users, and the audit log."""

from __future__ import annotations

import logging
import uuid
from itertools import pairwise

import pytest

from tests.unit.broker_stub.api.node import running_node
from triokafka.broker_stub.authorization_audit import LINES_PER_SECOND, AuthorizationAudit
from triokafka.broker_stub.authorizer import AllowAll
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER, configured_authorizer
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.security_records import acl_record
from triokafka.broker_stub.metadata.snapshots import image_records
from triokafka.broker_stub.standard_authorizer import StandardAuthorizer
from triokafka.broker_stub.work_budget import BUDGET
from triokafka.errors import ConfigurationError, UnknownError
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import RemoveAccessControlEntryRecord
from triokafka.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)
from triokafka.security.acl_decisions import AclDecisions

Op = AclOperation
TOPIC = ResourceType.TOPIC
ALICE_READS = AclBinding(TOPIC, "orders", AclPatternType.LITERAL, "User:alice", "*", Op.READ, AclPermissionType.ALLOW)
HOST = "192.0.2.1"


class World:
    """An authorizer that follows a publisher."""

    def __init__(self, *, loaded: bool = True, **properties: str) -> None:
        self.image = EMPTY_IMAGE
        self.publisher = MetadataPublisher()
        self.authorizer = StandardAuthorizer()
        self.authorizer.configure({name.replace("_", "."): text for name, text in properties.items()})
        self.authorizer.follow(self.publisher, loaded=lambda: loaded)

    def replay(self, *records: Struct) -> MetadataImage:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)
        self.publisher.publish(delta, self.image)
        return self.image

    def allows(self, principal: str, operation: AclOperation, name: str = "orders") -> bool:
        return self.authorizer.allows(principal, HOST, operation, TOPIC, name)


def test_acls_take_effect_and_lose_it_as_records_are_replayed() -> None:
    world, acl_id = World(), uuid.UUID(int=7)
    assert not world.allows("User:alice", Op.READ)
    image = world.replay(acl_record(acl_id, ALICE_READS))
    assert world.allows("User:alice", Op.READ) and world.allows("User:alice", Op.DESCRIBE)
    assert not world.allows("User:bob", Op.READ)
    assert image.acls == {ALICE_READS: acl_id}
    image = world.replay(RemoveAccessControlEntryRecord(id=acl_id))
    assert not world.allows("User:alice", Op.READ)
    assert not image.acls and not image.security_records


def test_two_phase_commit_is_an_operation_of_its_own() -> None:
    """ACLs of Apache Kafka 4.3 may have this operation (KIP-939). It once was an unknown one."""
    world = World()

    def given(operation: int) -> MetadataImage:
        record = acl_record(uuid.UUID(int=7), ALICE_READS._replace(resource_type=ResourceType.TRANSACTIONAL_ID))
        record.operation = operation
        return world.replay(record)

    def allowed() -> list[AclOperation]:
        of_id = ResourceType.TRANSACTIONAL_ID
        return [
            one for one in Op if one >= Op.READ and world.authorizer.allows("User:alice", HOST, one, of_id, "orders")
        ]

    assert [acl.operation.name for acl in given(15).acls] == ["TWO_PHASE_COMMIT"]
    assert allowed() == [Op.TWO_PHASE_COMMIT]
    given(Op.WRITE)
    assert allowed() == [Op.WRITE, Op.DESCRIBE]
    given(Op.ALL)
    assert Op.TWO_PHASE_COMMIT in allowed()


def test_late_subscriber_gets_all_acls_and_a_snapshot_has_them() -> None:
    first = World()
    image = first.replay(acl_record(uuid.UUID(int=7), ALICE_READS))
    late = StandardAuthorizer()
    late.follow(first.publisher, loaded=lambda: True)
    assert late.allows("User:alice", HOST, Op.READ, TOPIC, "orders")
    assert World().replay(*image_records(image)).acls == image.acls


def large_change(world: World) -> tuple[MetadataDelta, MetadataImage]:
    """Return a change that allows 6,000 topics and denies the first, as the last of its records."""
    delta = MetadataDelta(world.image)
    for number in range(6_000):
        delta.replay(acl_record(uuid.UUID(int=100 + number), ALICE_READS._replace(resource_name=f"t{number}")))
    delta.replay(acl_record(uuid.UUID(int=99), DENIED))
    return delta, delta.image(9_999, 2)


DENIED = ALICE_READS._replace(resource_name="t0", permission_type=AclPermissionType.DENY)


def test_large_change_is_indexed_in_steps_and_takes_effect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot with very many ACLs does not stop the event loop, and no decision follows a part of it."""
    world = World()
    world.replay(acl_record(uuid.UUID(int=1), ALICE_READS))
    delta, image = large_change(world)
    added = 0

    def add(index: AclDecisions, acl: AclBinding) -> None:
        nonlocal added
        added += 1
        original(index, acl)

    original = AclDecisions.add
    monkeypatch.setattr(AclDecisions, "add", add)
    at_steps = []
    for work in world.publisher.prepare(delta, image):
        assert work == BUDGET  # a checkpoint after each step
        at_steps.append(added)
        assert world.allows("User:alice", Op.READ) and not world.allows("User:alice", Op.READ, "t0")
        assert not world.allows("User:alice", Op.READ, "t5999")
    assert max(after - before for before, after in pairwise([0, *at_steps, added])) <= 200
    before = added
    world.publisher.publish(delta, image)
    assert added == before
    assert world.allows("User:alice", Op.READ) and world.allows("User:alice", Op.READ, "t5999")
    assert not world.allows("User:alice", Op.READ, "t0")
    world.image = image
    world.replay(RemoveAccessControlEntryRecord(id=uuid.UUID(int=99)))
    assert world.allows("User:alice", Op.READ, "t0")


def test_prepared_change_that_is_not_published_has_no_effect() -> None:
    world = World()
    delta, image = large_change(world)
    assert sum(world.publisher.prepare(delta, image))
    world.replay(acl_record(uuid.UUID(int=1), ALICE_READS))
    assert world.allows("User:alice", Op.READ)
    assert not world.allows("User:alice", Op.READ, "t5999")


def test_small_change_needs_no_preparation() -> None:
    world = World()
    delta = MetadataDelta(world.image)
    delta.replay(acl_record(uuid.UUID(int=1), ALICE_READS))
    assert not list(world.publisher.prepare(delta, delta.image(1, 1)))


def test_super_user_overrides_deny_acls() -> None:
    world = World(super_users="User:admin; User:CN=a,O=b ;")
    deny = ALICE_READS._replace(principal="User:*", operation=Op.ALL, permission_type=AclPermissionType.DENY)
    world.replay(acl_record(uuid.UUID(int=1), deny))
    for principal in ("User:admin", "User:CN=a,O=b"):
        assert world.allows(principal, Op.ALTER)
        assert world.authorizer.rule(principal, HOST, Op.READ, TOPIC, "orders") == "SuperUser"
    assert not world.allows("User:bob", Op.READ)
    with pytest.raises(ConfigurationError, match=r"super\.users: 'admin' is not a principal; .* User:admin"):
        World(super_users="admin")


def test_resource_without_acls_is_open_only_with_the_option() -> None:
    world = World(allow_everyone_if_no_acl_found="true")
    world.replay(acl_record(uuid.UUID(int=1), ALICE_READS))
    assert world.allows("User:bob", Op.WRITE, "payments")
    assert not world.allows("User:bob", Op.WRITE)
    assert not world.allows("User:alice", Op.WRITE)
    assert world.authorizer.allows_somewhere("User:bob", HOST, Op.WRITE, TOPIC)
    assert not World().allows("User:bob", Op.WRITE, "payments")


def test_only_super_users_are_answered_before_the_acls_are_loaded() -> None:
    world = World(loaded=False, super_users="User:ANONYMOUS")
    assert world.allows("User:ANONYMOUS", Op.READ)
    with pytest.raises(UnknownError, match="not loaded"):
        world.allows("User:alice", Op.READ)


def test_refusal_of_a_node_before_the_acls_are_loaded_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(loaded=False, super_users="User:admin")
    for operation in (Op.READ, Op.CLUSTER_ACTION, Op.CLUSTER_ACTION):
        with pytest.raises(UnknownError, match="not loaded"):
            world.authorizer.allows("User:ANONYMOUS", HOST, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    [line] = caplog.messages
    assert "User:ANONYMOUS" in line
    assert line.endswith("Add the principals of all nodes to super.users.")


@pytest.mark.parametrize("kind", [TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID])
def test_authorized_operations_are_those_that_the_type_has(kind: ResourceType) -> None:
    everything = AllowAll().allowed_operations("User:alice", HOST, kind, CLUSTER_NAME)
    world = World(super_users="User:admin")
    world.replay(
        acl_record(uuid.UUID(int=1), ALICE_READS._replace(resource_type=kind, resource_name="*", operation=Op.ALL))
    )
    for principal in ("User:alice", "User:admin"):
        assert world.authorizer.allowed_operations(principal, HOST, kind, CLUSTER_NAME) == everything
    assert world.authorizer.allowed_operations("User:bob", HOST, kind, CLUSTER_NAME) == 0


def test_authorizer_that_cannot_be_made_stops_the_node() -> None:
    assert configured_authorizer(BrokerConfig()) is None
    for name, reason in (
        ("x.Y", "no such authorizer. Name org.apache"),
        ("nowhere:Authorizer", "ModuleNotFoundError"),
        ("builtins:dict", "is not a triokafka.broker_stub.authorizer.Authorizer"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            configured_authorizer(BrokerConfig.from_properties({"authorizer.class.name": name}))
    own = configured_authorizer(BrokerConfig(authorizer_class_name="triokafka.broker_stub.authorizer:AllowAll"))
    assert isinstance(own, AllowAll)


async def test_denied_request_is_in_the_audit_log_once_per_resource(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    async with running_node(authorizer_class_name=STANDARD_AUTHORIZER) as node:
        await node.create("orders")
        response = await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
        assert [topic.error_code for topic in response.topics] == [29]
        assert not (await node.call(MetadataRequest(topics=None), 9)).topics
    (line,) = (record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger")
    assert line == (
        "Principal = User:test is Denied operation = DESCRIBE from host = 192.0.2.1 on resource = Topic:LITERAL:orders "
        "for request = Metadata with resourceRefCount = 1 based on rule DefaultDeny"
    )


def test_audit_log_has_a_limit_and_no_forged_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    now = 5.0
    audit = AuthorizationAudit(lambda: now)
    for _ in range(LINES_PER_SECOND + 7):
        audit.log("User:a\nb", HOST, Op.READ, TOPIC, "x\ny", allowed=False, request="Fetch", rule=lambda: "DefaultDeny")
    assert len(caplog.records) == LINES_PER_SECOND
    assert "User:a\\nb" in caplog.messages[0] and "x\\ny" in caplog.messages[0]
    now = 6.0
    audit.log("User:a", HOST, Op.READ, TOPIC, "x", allowed=False, request="Fetch", rule=lambda: None)
    assert caplog.messages[-2] == "7 further decisions of one second are not logged"
