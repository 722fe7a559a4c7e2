"""The authorizer over the ACLs in the cluster's metadata, with the rules of Kafka's StandardAuthorizer (KIP-801)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from triokafka.broker_stub.authorizer import SUPPORTED, Authorizer
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.loader import MAX_RECORDS
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.security_records import acl_of
from triokafka.broker_stub.work_budget import BUDGET
from triokafka.errors import ConfigurationError, UnknownError
from triokafka.protocol.stored.cluster_metadata import AccessControlEntryRecord
from triokafka.security.acl import AclBinding, AclOperation, AclPermissionType, ResourceType
from triokafka.security.acl_decisions import AclDecisions

logger = logging.getLogger(__name__)

SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
_ANY_RESOURCE: Final = "hardcode"
"""The name that Kafka's authorizer asks about to learn whether a principal may use any resource whatever its ACLs."""
_ACLS_IN_A_STEP: Final = 200
"""ACLs that are added to an index between two checkpoints: about a millisecond of work."""


class StandardAuthorizer(Authorizer):
    """Decides by the ACLs of this node's own metadata image.

    A deny beats every allow. What no ACL allows is denied, except to super users, and, with
    ``allow.everyone.if.no.acl.found``, on resources to which no ACL applies. Until the node has loaded the metadata,
    only super users are answered; the requests of others fail with `UnknownError`, as in Kafka.
    """

    def __init__(self) -> None:
        self._loaded: Callable[[], bool] = lambda: False
        self._super_users: frozenset[str] = frozenset()
        self._allow_everyone = False
        self._acls = AclDecisions()
        self._prepared: tuple[MetadataImage, AclDecisions] | None = None
        self._reported_node = False

    def configure(self, properties: Mapping[str, str]) -> None:
        """Read ``super.users`` and ``allow.everyone.if.no.acl.found``.

        Raises:
            ConfigurationError: a super user is not of the form ``Type:name``.
        """
        users = [user.strip() for user in properties.get(SUPER_USERS, "").split(";")]
        for user in filter(None, users):
            if ":" not in user:
                raise ConfigurationError(
                    f"{SUPER_USERS}: {user!r} is not a principal; write Type:name, such as User:{user}"
                )
        self._super_users = frozenset(filter(None, users))
        self._allow_everyone = properties.get(ALLOW_EVERYONE, "false").strip().lower() == "true"

    @property
    def stores_acls(self) -> bool:
        return True

    def follow(self, publisher: MetadataPublisher, *, loaded: Callable[[], bool]) -> None:
        """Apply the ACLs of the metadata from now on."""
        self._loaded = loaded
        publisher.subscribe(self.metadata_changed, preparation=self.prepare)

    def prepare(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[int]:
        """Index all ACLs of a large change, such as a snapshot, in steps; `metadata_changed` then only switches to it.

        Decisions follow the ACLs before the change until then: a part of the new ones may lack those that deny.
        """
        if len(delta.changed_security) <= MAX_RECORDS:
            return
        acls = AclDecisions()
        for number, acl in enumerate(image.acls, 1):
            acls.add(acl)
            if not number % _ACLS_IN_A_STEP:
                yield BUDGET
        self._prepared = image, acls

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the changes of a delta to the ACLs."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] is image:
            self._acls = prepared[1]
            return
        records_before, records_after = delta.base.security_records, image.security_records
        for key in delta.changed_security:
            if key[0] != "acl":
                continue
            before, after = records_before.get(key), records_after.get(key)
            if isinstance(before, AccessControlEntryRecord):
                self._acls.remove(acl_of(before))
            if isinstance(after, AccessControlEntryRecord):
                self._acls.add(acl_of(after))

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        if operation is AclOperation.CLUSTER_ACTION and not self._loaded():
            self._report_node(principal, host)
        self._check_loaded()
        decision = self._acls.decide(principal, host, resource_type, name)
        return decision.allows(operation) if decision.has_acls else self._allow_everyone

    def allows_somewhere(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        if self.allows(principal, host, operation, resource_type, _ANY_RESOURCE):
            return True
        return self._acls.allows_somewhere(principal, host, operation, resource_type)

    def allowed_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return SUPPORTED[resource_type]
        self._check_loaded()
        decision = self._acls.decide(principal, host, resource_type, name)
        if not decision.has_acls:
            return SUPPORTED[resource_type] if self._allow_everyone else 0
        return decision.allowed & ~decision.denied & SUPPORTED[resource_type]

    def rule(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> str | None:
        if principal in self._super_users:
            return "SuperUser"
        acl = self._acls.rule(principal, host, operation, resource_type, name)
        if acl is not None:
            return f"MatchingAcl(acl={_text(acl)})"
        has_acls = self._acls.decide(principal, host, resource_type, name).has_acls
        return "DefaultAllow" if self._allow_everyone and not has_acls else "DefaultDeny"

    def _report_node(self, principal: str, host: str) -> None:
        """Log that a node was refused, once: a cluster whose voters refuse each other never elects a leader."""
        if not self._reported_node:
            self._reported_node = True
            logger.warning(
                "A node that connects from %s as %s is refused: it is not in %s, and this node has not loaded the ACLs "
                "of the cluster yet. Add the principals of all nodes to %s.",
                host,
                principal,
                SUPER_USERS,
                SUPER_USERS,
            )

    def _check_loaded(self) -> None:
        if not self._loaded():
            raise UnknownError("The authorizer has not loaded the ACLs of the cluster yet. Retry.")


def _text(acl: AclBinding) -> str:
    permission = "Allow" if acl.permission_type is AclPermissionType.ALLOW else "Deny"
    return (
        f"{permission} {acl.principal} {acl.operation.name} from {acl.host} on "
        f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}"
    )
