"""Copies access control lists of topics to their mirrors, as MirrorMaker 2 does (``sync.topic.acls.enabled``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from triokafka.errors import AuthorizationError, SecurityDisabledError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.security.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)

logger = logging.getLogger(__name__)

_OF_TOPICS: Final = AclBindingFilter(ResourceType.TOPIC, None, AclPatternType.LITERAL)


def mirrored_acls(acls: Iterable[AclBinding], remote_topics: Mapping[str, str]) -> list[AclBinding]:
    """Return what ACLs of source topics become for their mirrors, by the names of these.

    Only the mirror writes to a mirrored topic: permissions to write are left out, and a permission for everything
    becomes one to read. What is forbidden stays forbidden. Patterns that are prefixes or ``*`` are left out.
    """
    found: dict[AclBinding, None] = {}
    for acl in acls:
        literal = acl.resource_type is ResourceType.TOPIC and acl.pattern_type is AclPatternType.LITERAL
        if not literal or acl.resource_name not in remote_topics:
            continue
        operation = acl.operation
        if acl.permission_type is AclPermissionType.ALLOW:
            if operation is AclOperation.WRITE:
                continue
            if operation is AclOperation.ALL:
                operation = AclOperation.READ
        found[acl._replace(resource_name=remote_topics[acl.resource_name], operation=operation)] = None
    return list(found)


class AclReplication:
    """Adds missing ACLs in the target. It removes none: the target may have more of its own."""

    def __init__(self, source: ClusterSide, target: ClusterSide) -> None:
        self._source = source
        self._target = target
        self._problem = ""

    async def refresh(self, remote_topics: Mapping[str, str]) -> None:
        """Copy the ACLs of these topics. A cluster without an authorizer, or that refuses, is logged once.

        Raises:
            KafkaError: a cluster did not answer, or refused an ACL.
        """
        side = self._source
        try:
            wanted = mirrored_acls(await side.admin.describe_acls(_OF_TOPICS), remote_topics)
            side = self._target
            present = set(await side.admin.describe_acls(_OF_TOPICS))
            missing = [acl for acl in wanted if acl not in present]
            if missing:
                await side.admin.create_acls(missing)
                logger.info("added %d ACLs to cluster %s", len(missing), side.alias)
        except (SecurityDisabledError, AuthorizationError) as error:
            problem = f"the ACLs of topics are not copied: cluster {side.alias}: {error}"
            if problem != self._problem:
                logger.warning("%s", problem)
            self._problem = problem
        else:
            self._problem = ""
