"""The calls of `KafkaAdminClient` about access control lists and SCRAM users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from triokafka.blocking.admin.acls import ACL, ACLFilter, ResourcePattern
from triokafka.blocking.admin.session import AdminSession, class_of, message_of, together
from triokafka.blocking.admin.types import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from triokafka.blocking.errors import IllegalArgumentError, NoError
from triokafka.client.admin import AclBinding, AclBindingFilter
from triokafka.client.admin import ScramMechanism as Mechanism
from triokafka.client.admin import UserScramCredentialDeletion as Deletion
from triokafka.client.admin import UserScramCredentialUpsertion as Upsertion
from triokafka.errors import KafkaError

if TYPE_CHECKING:
    from triokafka import AdminClient


class SecurityCalls:
    """Describes and changes ACLs and SCRAM credentials."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaError]]:
        """Return the ACLs that match a filter, and `NoError`.

        Raises:
            SecurityDisabledError: the cluster has no authorizer.
            ClusterAuthorizationFailedError: the caller may not describe the cluster.
        """
        patience = self._session.timeout_ms()
        found = self._session.run(lambda admin: admin.describe_acls(_filter(acl_filter), timeout_ms=patience))
        return [_acl(one) for one in found], NoError

    def create_acls(self, acls: Sequence[ACL]) -> dict[str, list[Any]]:
        """Create ACLs; return a dict of the ACLs that ``succeeded`` and the errors that others ``failed`` with."""
        for acl in acls:
            if not isinstance(acl, ACL):
                raise IllegalArgumentError("acls must contain ACL objects")
        bindings = {AclBinding(*_filter(acl)): acl for acl in acls}  # type: ignore[arg-type]
        patience = self._session.timeout_ms()
        outcomes = self._session.change(bindings, lambda admin: admin.create_acls(bindings, timeout_ms=patience))
        return {
            "succeeded": [bindings[one] for one, outcome in outcomes.items() if not isinstance(outcome, KafkaError)],
            "failed": [class_of(outcome) for outcome in outcomes.values() if isinstance(outcome, KafkaError)],
        }

    def delete_acls(self, acl_filters: Sequence[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], type[KafkaError]]]:
        """Delete the ACLs that match any filter; return each filter with its deleted ACLs and its error class."""
        for one in acl_filters:
            if not isinstance(one, ACLFilter):
                raise IllegalArgumentError("acl_filters must contain ACLFilter type objects")
        filters = [_filter(one) for one in acl_filters]
        patience = self._session.timeout_ms()
        outcomes = self._session.change(filters, lambda admin: admin.delete_acls(filters, timeout_ms=patience))
        results = []
        for given, wanted in zip(acl_filters, filters, strict=True):
            outcome = outcomes[wanted]
            deleted = [] if isinstance(outcome, KafkaError) else [_acl(acl) for acl in outcome]
            results.append((given, deleted, class_of(outcome)))
        return results

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Set and delete SCRAM credentials; return an error message, or None for success, by user."""
        changes = [_change(one) for one in alterations]
        users = [change.user for change in changes]
        patience = self._session.timeout_ms()

        async def work(admin: AdminClient) -> dict[str, Any]:
            return await together(users, admin.alter_user_scram_credentials(changes, timeout_ms=patience))

        return {user: _brokers_message(user, outcome) for user, outcome in self._session.run(work).items()}

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Describe the SCRAM credentials of users, or of all; by user a dict of ``error`` and ``credential_infos``."""
        names = None if users is None else list(users)
        patience = self._session.timeout_ms()
        found = self._session.run(lambda admin: admin.describe_user_scram_credentials(names, timeout_ms=patience))
        described: dict[str, dict[str, Any]] = {
            user: {"error": _brokers_message(user, error), "credential_infos": []}
            for user, error in found.errors.items()
        }
        for user in found:
            if user not in found.errors:
                infos = [
                    {"mechanism": ScramMechanism(mechanism.value), "iterations": iterations}
                    for mechanism, iterations in found[user].items()
                ]
                described[user] = {"error": None, "credential_infos": infos}
        return described


def _brokers_message(user: str, outcome: object) -> str | None:
    """Return the broker's message about a user, without the SDK's words before it; None for success."""
    message = message_of(outcome)
    return None if message is None else message.removeprefix(f"the user {user!r}: ")


def _filter(given: ACLFilter) -> AclBindingFilter:
    pattern = given.resource_pattern
    return AclBindingFilter(
        pattern.resource_type,
        pattern.resource_name,
        pattern.pattern_type,
        given.principal,
        given.host,
        given.operation,
        given.permission_type,
    )


def _acl(found: AclBinding) -> ACL:
    pattern = ResourcePattern(found.resource_type, found.resource_name, found.pattern_type)
    return ACL(found.principal, found.host, found.operation, found.permission_type, pattern)


def _change(one: UserScramCredentialDeletion | UserScramCredentialUpsertion) -> Deletion | Upsertion:
    if isinstance(one, UserScramCredentialDeletion):
        return Deletion(one.user, Mechanism(one.mechanism.value))
    if isinstance(one, UserScramCredentialUpsertion):
        return Upsertion(
            one.user,
            Mechanism(one.mechanism.value),
            iterations=one.iterations,
            salt=one.salt,
            salted_password=one.salted_password,
        )
    raise IllegalArgumentError(
        f"alterations must be UserScramCredentialDeletion or UserScramCredentialUpsertion, got {type(one).__name__}"
    )
