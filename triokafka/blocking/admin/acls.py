"""The access control list types of ``kafka.admin``."""

from __future__ import annotations

from triokafka.blocking.errors import IllegalArgumentError
from triokafka.security.acl import AclOperation, AclPatternType, AclPermissionType, ResourceType

# kafka-python's names.
ACLOperation = AclOperation
ACLPermissionType = AclPermissionType
ACLResourcePatternType = AclPatternType


class ResourcePatternFilter:
    """A filter for resources; ``ANY`` and ``MATCH`` are allowed."""

    def __init__(
        self, resource_type: ResourceType, resource_name: str | None, pattern_type: ACLResourcePatternType
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.validate()

    def validate(self) -> None:
        """Raise `IllegalArgumentError` for an invalid filter."""
        if not isinstance(self.resource_type, ResourceType):
            raise IllegalArgumentError("resource_type must be a ResourceType object")
        if not isinstance(self.pattern_type, ACLResourcePatternType):
            raise IllegalArgumentError("pattern_type must be an ACLResourcePatternType object")

    def _key(self) -> tuple[object, ...]:
        return self.resource_type, self.resource_name, self.pattern_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourcePatternFilter) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"<ResourcePattern type={self.resource_type.name}, name={self.resource_name},"
            f" pattern={self.pattern_type.name}>"
        )


class ResourcePattern(ResourcePatternFilter):
    """One resource, or all resources with a name prefix."""

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str,
        pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL,
    ) -> None:
        super().__init__(resource_type, resource_name, pattern_type)

    def validate(self) -> None:
        """Raise `IllegalArgumentError` for an invalid pattern."""
        super().validate()
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("resource_type cannot be ANY")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(f"pattern_type cannot be {self.pattern_type.name} on a concrete ResourcePattern")


class ACLFilter:
    """Which entries."""

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type
        self.resource_pattern = resource_pattern
        self.validate()

    def validate(self) -> None:
        """Raise `IllegalArgumentError` for an invalid filter."""
        if not isinstance(self.operation, ACLOperation):
            raise IllegalArgumentError("operation must be an ACLOperation object, and cannot be ANY")
        if not isinstance(self.permission_type, ACLPermissionType):
            raise IllegalArgumentError("permission_type must be an ACLPermissionType object, and cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError("resource_pattern must be a ResourcePatternFilter object")

    def _key(self) -> tuple[object, ...]:
        return self.principal, self.host, self.operation, self.permission_type, self.resource_pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ACLFilter) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"<ACL principal={self.principal}, resource={self.resource_pattern}, operation={self.operation.name},"
            f" type={self.permission_type.name}, host={self.host}>"
        )


class ACL(ACLFilter):
    """One entry."""

    def __init__(
        self,
        principal: str,
        host: str,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePattern,
    ) -> None:
        super().__init__(principal, host, operation, permission_type, resource_pattern)

    def validate(self) -> None:
        """Raise `IllegalArgumentError` for an invalid ACL."""
        super().validate()
        if self.operation is ACLOperation.ANY:
            raise IllegalArgumentError("operation cannot be ANY")
        if self.permission_type is ACLPermissionType.ANY:
            raise IllegalArgumentError("permission_type cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError("resource_pattern must be a ResourcePattern object")
