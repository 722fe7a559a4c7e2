"""The decisions over a set of ACLs, as Kafka's StandardAuthorizer makes them. Pure.

Entries are indexed by resource type, pattern type and name, then by principal and host. Bisection finds prefixes. A
decision looks up a few entries whatever the number of ACLs, and covers all operations of a resource at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator
from ipaddress import IPv6Address
from typing import Final

from triokafka.named_tuple import NamedTuple
from triokafka.security.acl import (
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)

_EVERY_OPERATION: Final = sum(1 << operation for operation in AclOperation if operation >= AclOperation.READ)
_IMPLIED: Final[dict[AclOperation, int]] = {
    AclOperation.ALL: _EVERY_OPERATION,
    **dict.fromkeys(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER), 1 << AclOperation.DESCRIBE
    ),
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
"""The operations that an ALLOW of an operation allows too, as bits. A DENY implies nothing, except that of ALL."""
_MOST_DECISIONS: Final = 10_000
"""Decisions that the index remembers until the next change."""
_LONGEST_NAME: Final = 512
"""Longest name of a resource whose decision is remembered: clients choose the names, of up to 32 KB each."""

Entry = tuple[AclOperation, AclPermissionType]


class Decision(NamedTuple):
    """The operations that a principal may do to a resource, as bits by operation.

    ``has_acls`` is False if no ACL applies to the resource, whatever its principal: then nothing is allowed or denied.
    """

    allowed: int
    denied: int
    has_acls: bool

    def allows(self, operation: AclOperation) -> bool:
        """Whether an ACL allows the operation and none denies it."""
        return bool((self.allowed & ~self.denied) >> operation & 1)


def _bits(entry: Entry) -> tuple[int, int]:
    """Return the operations that an entry allows, and those that it denies."""
    operation, permission = entry
    if permission is AclPermissionType.ALLOW:
        return 1 << operation | _IMPLIED.get(operation, 0), 0
    if permission is AclPermissionType.DENY:
        return 0, _EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation
    return 0, 0


class _Principal:
    """The entries of one pattern for one principal: per host the ACLs, and what they allow and deny as bits."""

    __slots__ = ("acls", "bits")

    def __init__(self) -> None:
        self.acls: dict[str, set[Entry]] = {}
        self.bits: dict[str, tuple[int, int]] = {}

    def add(self, host: str, entry: Entry) -> bool:
        """Add an entry of a host. Return whether it is new."""
        entries = self.acls.get(host)
        if entries is None:
            self.acls[host] = {entry}
            self.bits[host] = _bits(entry)
            return True
        if entry in entries:
            return False
        entries.add(entry)
        (allowed, denied), (allows, denies) = self.bits[host], _bits(entry)
        self.bits[host] = allowed | allows, denied | denies
        return True

    def remove(self, host: str, entry: Entry) -> bool:
        """Remove an entry of a host, and a host without entries. Return whether it was there."""
        entries = self.acls.get(host)
        if entries is None or entry not in entries:
            return False
        entries.remove(entry)
        if not entries:
            del self.acls[host], self.bits[host]
            return True
        allowed = denied = 0
        for other in entries:
            allows, denies = _bits(other)
            allowed |= allows
            denied |= denies
        self.bits[host] = allowed, denied
        return True


_Pattern = dict[str, _Principal]
"""The entries of one pattern by principal."""
_PatternKey = tuple[AclPatternType, str]


class _Type:
    """The ACLs of one resource type."""

    __slots__ = ("by_principal", "patterns", "prefixes")

    def __init__(self) -> None:
        self.patterns: dict[_PatternKey, _Pattern] = {}
        self.prefixes: list[str] = []
        self.by_principal: dict[str, dict[_PatternKey, None]] = {}

    def prefixes_of(self, name: str) -> Iterator[str]:
        """Yield the prefixed patterns that match a name, the longest first."""
        prefixes, key = self.prefixes, name
        while at := bisect_right(prefixes, key):
            found = prefixes[at - 1]
            if name.startswith(found):
                yield found
                key = found[:-1]  # the others are prefixes of this one
            else:
                key = _common_prefix(key, found)
            if not key:
                return


class AclDecisions:
    """A set of ACLs that answers who may do what. Not thread-safe; adding an ACL twice has no further effect."""

    def __init__(self) -> None:
        self._types: dict[ResourceType, _Type] = {}
        self._decisions: dict[tuple[str, str, ResourceType, str], Decision] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, acl: AclBinding) -> None:
        """Add an ACL."""
        of_type = self._types.get(acl.resource_type)
        if of_type is None:
            of_type = self._types[acl.resource_type] = _Type()
        key = acl.pattern_type, acl.resource_name
        pattern = of_type.patterns.get(key)
        if pattern is None:
            pattern = of_type.patterns[key] = {}
            if acl.pattern_type is AclPatternType.PREFIXED:
                insort(of_type.prefixes, acl.resource_name)
        principal = pattern.get(acl.principal)
        if principal is None:
            principal = pattern[acl.principal] = _Principal()
            of_type.by_principal.setdefault(acl.principal, {})[key] = None
        if principal.add(acl.host, (acl.operation, acl.permission_type)):
            self._count += 1
            self._decisions.clear()

    def remove(self, acl: AclBinding) -> None:
        """Remove an ACL; do nothing if it is not in the set."""
        of_type = self._types.get(acl.resource_type)
        key = acl.pattern_type, acl.resource_name
        pattern = None if of_type is None else of_type.patterns.get(key)
        principal = None if pattern is None else pattern.get(acl.principal)
        if of_type is None or pattern is None or principal is None:
            return
        if not principal.remove(acl.host, (acl.operation, acl.permission_type)):
            return
        if not principal.acls:
            del pattern[acl.principal]
            patterns = of_type.by_principal[acl.principal]
            del patterns[key]
            if not patterns:
                del of_type.by_principal[acl.principal]
        if not pattern:
            del of_type.patterns[key]
            if acl.pattern_type is AclPatternType.PREFIXED:
                del of_type.prefixes[bisect_left(of_type.prefixes, acl.resource_name)]
        self._count -= 1
        self._decisions.clear()

    def decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> Decision:
        """Return what ``principal``, connected from ``host``, may do to a resource."""
        asked = principal, host, resource_type, name
        found = self._decisions.get(asked)
        if found is None and len(name) > _LONGEST_NAME:
            return self._decide(principal, host, resource_type, name)
        if found is None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            found = self._decisions[asked] = self._decide(principal, host, resource_type, name)
        return found

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> Decision:
        allowed = denied = 0
        has_acls = False
        hosts = _hosts_of(host)
        for _, pattern in self._applying(resource_type, name):
            has_acls = True
            for whom in (principal, EVERYBODY):
                entries = pattern.get(whom)
                if entries is not None:
                    for where in hosts:
                        allows, denies = entries.bits.get(where, (0, 0))
                        allowed |= allows
                        denied |= denies
        return Decision(allowed, denied, has_acls)

    def _applying(self, resource_type: ResourceType, name: str) -> Iterator[tuple[_PatternKey, _Pattern]]:
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        patterns = of_type.patterns
        for literal in dict.fromkeys((name, WILDCARD)):
            key = AclPatternType.LITERAL, literal
            pattern = patterns.get(key)
            if pattern is not None:
                yield key, pattern
        for prefix in of_type.prefixes_of(name):
            key = AclPatternType.PREFIXED, prefix
            yield key, patterns[key]

    def rule(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclBinding | None:
        """Return an ACL that decides about an operation: one that denies it, else one that allows it, else None."""
        allows: AclBinding | None = None
        hosts = _hosts_of(host)
        for (pattern_type, resource_name), pattern in self._applying(resource_type, name):
            for whom in (principal, EVERYBODY):
                entries = pattern.get(whom)
                for where in () if entries is None else hosts:
                    for one, permission in () if entries is None else entries.acls.get(where, ()):
                        acl = AclBinding(resource_type, resource_name, pattern_type, whom, where, one, permission)
                        if permission is AclPermissionType.DENY and one in (operation, AclOperation.ALL):
                            return acl
                        if permission is AclPermissionType.ALLOW:
                            bits = 1 << one | _IMPLIED.get(one, 0)
                            allows = acl if bits >> operation & 1 else allows
        return allows

    def allows_somewhere(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether ACLs allow an operation on some resource of the type (KIP-679).

        As in Kafka, an allowed pattern counts unless a deny of the same literal name or of a prefix of it covers it,
        and implied operations do not count.
        """
        of_type = self._types.get(resource_type)
        if of_type is None:
            return False
        allowed: list[_PatternKey] = []
        denied: set[_PatternKey] = set()
        for whom in dict.fromkeys((principal, EVERYBODY)):
            for key in of_type.by_principal.get(whom, ()):
                entries = of_type.patterns[key][whom]
                for where in dict.fromkeys(_hosts_of(host)):
                    for one, permission in entries.acls.get(where, ()):
                        if one not in (operation, AclOperation.ALL):
                            continue
                        if permission is AclPermissionType.ALLOW:
                            allowed.append(key)
                        elif permission is AclPermissionType.DENY:
                            denied.add(key)
        everything = AclPatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        return everything in allowed or not all(_is_covered(key, denied) for key in allowed)


def _is_covered(pattern: _PatternKey, denied: Collection[_PatternKey]) -> bool:
    name = pattern[1]
    return pattern in denied or any((AclPatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def _hosts_of(host: str) -> tuple[str, ...]:
    """Return the hosts of ACLs that apply to a client's address: itself, as Java writes it, and the wildcard.

    Java abbreviates no zeros of an IPv6 address, and so do ACLs for Apache Kafka.
    """
    if ":" not in host:
        return host, WILDCARD
    address, percent, zone = host.partition("%")
    try:
        groups = IPv6Address(address).exploded.split(":")
    except ValueError:
        return host, WILDCARD
    return host, ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone, WILDCARD


def _common_prefix(one: str, other: str) -> str:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:at]
    return min(one, other, key=len)
