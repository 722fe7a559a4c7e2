"""Access control lists: their enumerations by Kafka's numbers, an ACL, and a filter for ACLs."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from triokafka.named_tuple import NamedTuple

WILDCARD: Final = "*"
"""As a host: every host. As the name of a literal pattern: every resource of the type."""
EVERYBODY: Final = "User:*"
"""The principal of an ACL that applies to every principal, whatever its type."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of the resource type CLUSTER."""


class _Known(IntEnum):
    """Numbers that this version does not know become ``UNKNOWN``."""

    @classmethod
    def _missing_(cls, value: object) -> _Known | None:
        return cls(0) if isinstance(value, int) and value else None


class AclOperation(_Known):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every operation."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15
    """Two-phase commit (KIP-939), which this broker does not serve; ACLs of Apache Kafka have it."""

    @classmethod
    def of_bits(cls, bits: int) -> frozenset[AclOperation] | None:
        """Return the operations whose bit is set in the ``authorized_operations`` of a response.

        None when the client did not ask for them or the broker does not report them.
        """
        return None if bits < 0 else frozenset(one for one in cls if one >= cls.READ and bits >> one & 1)


class ResourceType(_Known):
    """The type of a resource."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every type."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(_Known):
    """How the name in an entry matches the name of a resource."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every pattern type."""
    MATCH = 2
    """In filters: every entry that applies to the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(_Known):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    """In filters: both."""
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL: who may or may not do what, from where, to which resources.

    ``principal`` is ``Type:name``, usually ``User:alice``; ``User:*`` is every user. ``host`` is the client's address
    as text, ``*`` for every address.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBindingFilter(NamedTuple):
    """A filter for ACLs. ``ANY`` and None match everything; `AclPatternType.MATCH` matches every ACL that applies to
    the resource of that name.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a part of the filter has a number that this version does not know."""
        return not (self.resource_type and self.pattern_type and self.operation and self.permission_type)

    def matches(self, acl: AclBinding) -> bool:
        """Whether an ACL passes the filter."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: AclBinding) -> bool:
        name, pattern_type = self.resource_name, self.pattern_type
        if pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if pattern_type is not AclPatternType.MATCH:
            return False
        if acl.pattern_type is AclPatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return acl.pattern_type is AclPatternType.PREFIXED and name.startswith(acl.resource_name)
