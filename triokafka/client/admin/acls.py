"""Access control lists: create, describe, delete (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.errors import BrokerResponseError, SecurityDisabledError
from triokafka.protocol.api.create_acls import AclCreation, CreateAclsRequest
from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from triokafka.protocol.api.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from triokafka.security.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)

_EVERY_ACL: Final = AclBindingFilter()


class AclAdmin:
    """The part of `AdminClient` about access control lists. A cluster without an authorizer raises
    `SecurityDisabledError`.
    """

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: float | None = None) -> None:
        """Add ACLs. An ACL that exists already is no error.

        Raises:
            InvalidRequestError, ClusterAuthorizationFailedError, SecurityDisabledError: one ACL could not be added; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[AclBinding], call: CallRouting) -> Mapping[AclBinding, Exception | None]:
            request = CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        resource_pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in items
                ]
            )
            response = await call.to_controller(request)
            return {
                acl: self._error(result.error_code, _text(acl), result.error_message)
                for acl, result in zip(items, response.results, strict=False)
            }

        await self._retries.change(acls, do_round, timeout_ms)

    async def describe_acls(
        self, acl_filter: AclBindingFilter = _EVERY_ACL, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match a filter, by default all.

        Raises:
            ClusterAuthorizationFailedError, SecurityDisabledError: the broker refused.
        """
        request = DescribeAclsRequest(**_filter_fields(acl_filter))
        response = await self._retries.ask_any(request, "ACLs", timeout_ms)
        return [_binding(resource, acl) for resource in response.resources for acl in resource.acls]

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Remove the ACLs that match any of the filters; return those that each filter matched.

        Raises:
            InvalidRequestError, ClusterAuthorizationFailedError, SecurityDisabledError: one filter failed; an
                `ExceptionGroup` when several did.
        """

        async def do_round(
            items: list[AclBindingFilter], call: CallRouting
        ) -> Mapping[AclBindingFilter, list[AclBinding] | Exception]:
            request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(one)) for one in items])
            response = await call.to_controller(request)
            outcomes: dict[AclBindingFilter, list[AclBinding] | Exception] = {}
            for one, result in zip(items, response.filter_results, strict=False):
                error = self._error(result.error_code, _filter_text(one), result.error_message)
                outcomes[one] = error or [_binding(acl, acl) for acl in result.matching_acls]
            return outcomes

        return await self._retries.change(filters, do_round, timeout_ms)

    def _error(self, code: int, acl: str, message: str | None) -> BrokerResponseError | None:
        # Without an authorizer the broker refuses each ACL for the same reason, which is none of the ACL's.
        return self._retries.error(code, "ACLs" if code == SecurityDisabledError.code else acl, message)


def _filter_fields(one: AclBindingFilter) -> dict[str, Any]:
    """Return the fields of a filter as DescribeAcls and DeleteAcls name them."""
    filtered = ("resource_type", "resource_name", "pattern_type", "principal", "host")
    return {f"{name}_filter" if name in filtered else name: value for name, value in one._asdict().items()}


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    return AclBinding(
        ResourceType(resource.resource_type),
        resource.resource_name,
        AclPatternType(resource.pattern_type),
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission_type),
    )


def _filter_text(one: AclBindingFilter) -> str:
    return (
        f"ACLs {one.permission_type.name} {one.principal or 'of anyone'} {one.operation.name} from "
        f"{one.host or 'anywhere'} on {one.resource_type.name} {one.resource_name or 'of any name'!r} "
        f"({one.pattern_type.name})"
    )


def _text(acl: AclBinding) -> str:
    return (
        f"the ACL {acl.permission_type.name} {acl.principal} {acl.operation.name} from {acl.host} on "
        f"{acl.resource_type.name} {acl.resource_name!r} ({acl.pattern_type.name})"
    )
