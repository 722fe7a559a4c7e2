"""From the flags of a command to ACLs and filters: resources times principals, hosts and operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import click

from triokafka.cli.parameter_types import principal_of
from triokafka.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)

Op = AclOperation
OPERATIONS: Final[dict[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        {Op.READ, Op.WRITE, Op.CREATE, Op.DESCRIBE, Op.DELETE, Op.ALTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.ALL}
    ),
    ResourceType.GROUP: frozenset({Op.READ, Op.DESCRIBE, Op.DELETE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.ALL}),
    ResourceType.CLUSTER: frozenset(
        {
            Op.CREATE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.IDEMPOTENT_WRITE, Op.ALTER,
            Op.DESCRIBE, Op.ALL,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Op.DESCRIBE, Op.WRITE, Op.TWO_PHASE_COMMIT, Op.ALL}),
    ResourceType.DELEGATION_TOKEN: frozenset({Op.DESCRIBE, Op.ALL}),
    ResourceType.USER: frozenset({Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS, Op.ALL}),
}  # fmt: skip
"""The operations that an ACL for a resource type may have."""


class Resource(NamedTuple):
    """A resource pattern of the command line; its pattern type may be ANY or MATCH in a filter."""

    resource_type: ResourceType
    name: str
    pattern_type: AclPatternType

    def __str__(self) -> str:
        return f"{self.resource_type.name} {self.name!r} ({self.pattern_type.name})"


class Entry(NamedTuple):
    """The principal, host, operation and permission of an ACL."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __str__(self) -> str:
        return f"{self.permission_type.name} {self.principal} {self.operation.name} from {self.host}"


class ChosenAcls(NamedTuple):
    """The flags about resources and entries."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    delegation_tokens: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    cluster: bool = False
    pattern_type: AclPatternType = AclPatternType.LITERAL
    operations: tuple[str, ...] = ()
    allow_principals: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_principals: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def resources(self) -> list[Resource]:
        """Return the named resources."""
        found = [
            Resource(kind, name.strip(), self.pattern_type)
            for kind, names in (
                (ResourceType.TOPIC, self.topics),
                (ResourceType.GROUP, self.groups),
                (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
                (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
                (ResourceType.USER, self.users),
            )
            for name in names
        ]
        if self.cluster and self.pattern_type is AclPatternType.LITERAL:
            found.append(_CLUSTER)
        return found

    def entries(self) -> dict[Resource, list[Entry]]:
        """Return the entries of each resource; no entries without principals.

        Raises:
            UsageError: the flags contradict each other, or an operation does not exist for a resource.
        """
        self._check()
        found: dict[Resource, list[Entry]] = {}
        if not self.producer and not self.consumer:
            operations = [_operation(text) for text in self.operations] or [Op.ALL]
            for resource in self.resources():
                found[resource] = self._entries(operations)
        if self.producer:
            for resource in self.resources():
                if resource.resource_type is ResourceType.TOPIC:
                    self._add(found, resource, (Op.WRITE, Op.DESCRIBE, Op.CREATE))
                elif resource.resource_type is ResourceType.TRANSACTIONAL_ID:
                    self._add(found, resource, (Op.WRITE, Op.DESCRIBE))
            if self.idempotent:
                self._add(found, _CLUSTER, (Op.IDEMPOTENT_WRITE,))
        if self.consumer:
            for resource in self.resources():
                if resource.resource_type is ResourceType.TOPIC:
                    self._add(found, resource, (Op.READ, Op.DESCRIBE))
                elif resource.resource_type is ResourceType.GROUP:
                    self._add(found, resource, (Op.READ,))
        for resource, entries in found.items():
            _check_operations(resource, entries)
        return found

    def bindings(self) -> list[AclBinding]:
        """Return the ACLs to add.

        Raises:
            UsageError: as `entries`, or the ACLs need a literal or prefixed pattern, a resource and a principal.
        """
        if self.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
            raise click.UsageError(f"--resource-pattern-type {self.pattern_type.name.lower()} is only for filters.")
        by_resource = self.entries()
        if not by_resource:
            raise click.UsageError("Name a resource: --topic, --group, --cluster, --transactional-id, …")
        if not all(by_resource.values()):
            raise click.UsageError("Name a principal: --allow-principal or --deny-principal.")
        return [
            AclBinding(resource.resource_type, resource.name, resource.pattern_type, *entry)
            for resource, entries in by_resource.items()
            for entry in entries
        ]

    def filters(self) -> list[AclBindingFilter]:
        """Return the filters of the ACLs to remove: exactly those of the entries, all of a resource without entries.

        Raises:
            UsageError: as `entries`, or no resource is named.
        """
        by_resource = self.entries()
        if not by_resource:
            raise click.UsageError("Name a resource: --topic, --group, --cluster, --transactional-id, …")
        found: list[AclBindingFilter] = []
        for resource, entries in by_resource.items():
            whole = AclBindingFilter(*resource)
            found += [whole._replace(**entry._asdict()) for entry in entries] or [whole]
        return found

    def _check(self) -> None:
        if self.idempotent and not self.producer:
            raise click.UsageError("--idempotent needs --producer.")
        if self.producer or self.consumer:
            if self.operations or self.deny_principals or self.deny_hosts:
                raise click.UsageError(
                    "--producer and --consumer exclude --operation, --deny-principal and --deny-host."
                )
            if not self.topics and (self.consumer or not self.transactional_ids):
                raise click.UsageError("--producer and --consumer need --topic.")
        if self.consumer and not self.groups:
            raise click.UsageError("--consumer needs --group.")
        if self.consumer and not self.producer and (self.cluster or self.transactional_ids):
            raise click.UsageError("--consumer takes --topic and --group only.")
        if self.allow_hosts and not self.allow_principals:
            raise click.UsageError("--allow-host needs --allow-principal.")
        if self.deny_hosts and not self.deny_principals:
            raise click.UsageError("--deny-host needs --deny-principal.")

    def _add(self, found: dict[Resource, list[Entry]], resource: Resource, operations: Sequence[AclOperation]) -> None:
        known = found.setdefault(resource, [])
        known += [entry for entry in self._entries(operations) if entry not in known]

    def _entries(self, operations: Iterable[AclOperation]) -> list[Entry]:
        return [
            Entry(principal_of(principal), host.strip(), operation, permission)
            for permission, principals, hosts in (
                (AclPermissionType.ALLOW, self.allow_principals, self.allow_hosts),
                (AclPermissionType.DENY, self.deny_principals, self.deny_hosts),
            )
            for principal in principals
            for operation in dict.fromkeys(operations)
            for host in hosts or (WILDCARD,)
        ]


_CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME, AclPatternType.LITERAL)


def _operation(text: str) -> AclOperation:
    """Return an operation by its name, in Kafka's spelling (``DescribeConfigs``) or ours (``describe-configs``)."""
    plain = text.strip().replace("_", "").replace("-", "").lower()
    for operation in AclOperation:
        if operation >= Op.ALL and operation.name.replace("_", "").lower() == plain:
            return operation
    valid = ", ".join(operation.name for operation in AclOperation if operation >= Op.ALL)
    raise click.UsageError(f"--operation {text}: no such operation. Valid are {valid}.")


def _check_operations(resource: Resource, entries: Iterable[Entry]) -> None:
    valid = OPERATIONS[resource.resource_type]
    for entry in entries:
        if entry.operation not in valid:
            names = ", ".join(sorted(operation.name for operation in valid))
            raise click.UsageError(f"{entry.operation.name} is not an operation of {resource}; valid are {names}.")
