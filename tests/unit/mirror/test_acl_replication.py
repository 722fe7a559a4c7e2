"""ACLs of source topics become those of their mirrors, as with MirrorMaker 2."""

from __future__ import annotations

import pytest

from triokafka.mirror.acl_replication import mirrored_acls
from triokafka.security.acl import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType

Op = AclOperation
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
REMOTE = {"orders": "west.orders"}


def acl(
    operation: AclOperation,
    permission: AclPermissionType = ALLOW,
    *,
    name: str = "orders",
    kind: ResourceType = ResourceType.TOPIC,
    pattern: AclPatternType = AclPatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "10.0.0.1", operation, permission)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (acl(Op.READ), acl(Op.READ, name="west.orders")),
        (acl(Op.DESCRIBE_CONFIGS), acl(Op.DESCRIBE_CONFIGS, name="west.orders")),
        (acl(Op.ALL), acl(Op.READ, name="west.orders")),
        (acl(Op.WRITE), None),
        (acl(Op.WRITE, DENY), acl(Op.WRITE, DENY, name="west.orders")),
        (acl(Op.ALL, DENY), acl(Op.ALL, DENY, name="west.orders")),
        (acl(Op.READ, name="other"), None),
        (acl(Op.READ, name="*"), None),
        (acl(Op.READ, name="ord", pattern=AclPatternType.PREFIXED), None),
        (acl(Op.READ, pattern=AclPatternType.PREFIXED), None),
        (acl(Op.READ, kind=ResourceType.GROUP), None),
    ],
)
def test_acl_becomes_that_of_the_mirror(source: AclBinding, target: AclBinding | None) -> None:
    assert mirrored_acls([source], REMOTE) == ([] if target is None else [target])


def test_permissions_that_become_equal_are_one() -> None:
    assert mirrored_acls([acl(Op.ALL), acl(Op.READ)], REMOTE) == [acl(Op.READ, name="west.orders")]
