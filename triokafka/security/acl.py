"""The enumerations of access control lists, by Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
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

    @classmethod
    def of_bits(cls, bits: int) -> frozenset[AclOperation] | None:
        """Return the operations whose bit is set in the ``authorized_operations`` of a response.

        None when the client did not ask for them or the broker does not report them.
        """
        return None if bits < 0 else frozenset(one for one in cls if one >= cls.READ and bits >> one & 1)


class ResourceType(IntEnum):
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


class AclPatternType(IntEnum):
    """How the name in an entry matches the name of a resource."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every pattern type."""
    MATCH = 2
    """In filters: every entry that applies to the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    """In filters: both."""
    DENY = 2
    ALLOW = 3
