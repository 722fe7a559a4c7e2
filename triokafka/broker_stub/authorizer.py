"""The plug-in interface of authorizers, the accesses that a request declares, and `AllowAll`.

A handler's registration names the operations and resources that a request touches (`Access`). Where the API answers per
item, a denial concerns that item only and the handler asks `RequestContext.denied`; otherwise the whole request is
refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from triokafka import errors
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.named_tuple import NamedTuple
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType

ANONYMOUS: Final = "User:ANONYMOUS"


_DENIED: Final[dict[ResourceType, type[errors.BrokerResponseError]]] = {
    ResourceType.TOPIC: errors.TopicAuthorizationFailedError,
    ResourceType.GROUP: errors.GroupAuthorizationFailedError,
    ResourceType.CLUSTER: errors.ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: errors.TransactionalIdAuthorizationFailedError,
    ResourceType.DELEGATION_TOKEN: errors.DelegationTokenAuthorizationFailedError,
    ResourceType.USER: errors.DelegationTokenAuthorizationFailedError,
}


NOT_ASKED: Final = -(2**31)
"""The authorized operations in a response whose request did not ask for them."""

_SUPPORTED: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
}  # fmt: skip


def denial(resource_type: ResourceType) -> type[errors.BrokerResponseError]:
    """Return the authorization error for a type of resource."""
    return _DENIED[resource_type]


SUPPORTED: Final = {kind: sum(1 << one for one in operations) for kind, operations in _SUPPORTED.items()}
"""The operations that a resource type has, as bits."""


class Access(NamedTuple):
    """One kind of resource that a request touches.

    ``names`` lists the resources of a request. ``per_item`` says that the API answers per resource, so that a denied
    one does not fail the others: then the handler asks `RequestContext.denied` for each, also for those that the
    request names by an id or not at all (fetch sessions), and ``names`` is for the reader.
    """

    operation: AclOperation
    resource_type: ResourceType
    names: Callable[[Any], Iterable[str]]
    per_item: bool = True


def cluster(operation: AclOperation) -> Access:
    """An operation on the cluster as a whole; a denial refuses the request."""
    return Access(operation, ResourceType.CLUSTER, lambda request: (CLUSTER_NAME,), per_item=False)


def or_cluster(operation: AclOperation) -> Access:
    """A permission on the cluster that stands for the same permission on every item of a request; the handler checks
    it."""
    return Access(operation, ResourceType.CLUSTER, lambda request: (CLUSTER_NAME,))


def of_group(operation: AclOperation) -> Access:
    """Return the requirement of a permission on the group that a request names."""
    return Access(operation, ResourceType.GROUP, lambda request: (request.group_id,), per_item=False)


def of_topics(operation: AclOperation) -> Access:
    """Return the requirement of a permission on each topic of a request."""
    return Access(operation, ResourceType.TOPIC, lambda request: [topic.name for topic in request.topics])


class Authorizer(ABC):
    """Decides which operations a principal may perform: the plug-in interface behind ``authorizer.class.name``.

    The methods are synchronous and must be quick: a broker asks for every resource of every request, on its event loop.
    An exception fails the request with an unknown error, so nothing is allowed by accident.
    """

    @property
    def stores_acls(self) -> bool:
        """Whether the ACLs of the cluster's metadata take effect; then the node serves CreateAcls and its relatives."""
        return False

    def configure(self, properties: Mapping[str, str]) -> None:  # noqa: B027 - an authorizer may need no options
        """Receive all options of the node by their dotted names, once, before the first decision.

        Raise an exception to stop the node's start.
        """

    def follow(self, publisher: MetadataPublisher, *, loaded: Callable[[], bool]) -> None:  # noqa: B027 - the same
        """Receive the node's metadata at its start: its changes, and whether all that is committed has been applied."""

    @abstractmethod
    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether ``principal``, connected from ``host``, may do this to the resource."""

    def allows_somewhere(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of this type to which ``principal`` may do this (KIP-679).

        An authorizer that cannot find out returns False; then the permission for the cluster is needed.
        """
        return False

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """A bit field of the operations that are allowed on a resource, as metadata and group descriptions show it."""
        bits = 0
        for operation in _SUPPORTED[resource_type]:
            if self.allows(principal, host, operation, resource_type, name):
                bits |= 1 << operation
        return bits

    def rule(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> str | None:
        """Return the rule that decides, as text for the audit log; None if the authorizer names no rule."""
        return None


class AllowAll(Authorizer):
    """No access control, as Kafka without ``authorizer.class.name``."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return True

    def allows_somewhere(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True
