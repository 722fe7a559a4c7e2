"""SCRAM users: describe, set and remove credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import Results
from triokafka.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from triokafka.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from triokafka.security.scram_credentials import MIN_ITERATIONS, ScramMechanism, salt_password

_SALT_BYTES = 24


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True, eq=False)
class UserScramCredentialUpsertion:
    """A credential to set. The password is never sent or shown: the broker gets the salted password.

    ``iterations`` are 4096 to 16384. The client makes a random ``salt`` if None is given. A caller that has only the
    ``salted_password`` gives that with its ``salt`` instead of the password.
    """

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(default=b"", repr=False)
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)
    salted_password: bytes | None = field(default=None, repr=False)


class UserAdmin:
    """The part of `AdminClient` about SCRAM users."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> Results[str, dict[ScramMechanism, int]]:
        """Return the iterations of each user's credentials by mechanism: of all users, or of those in ``users``.

        Reading a user without credentials raises `ResourceNotFoundError`.

        Raises:
            ClusterAuthorizationFailedError: the broker refused.
        """
        names = None if users is None else list(dict.fromkeys(users))
        if names == []:
            return Results({}, {})
        asked = None if names is None else [UserName(name=name) for name in names]
        request = DescribeUserScramCredentialsRequest(users=asked)
        response = await self._retries.ask_any(request, "users", timeout_ms)
        found: dict[str, dict[ScramMechanism, int]] = {}
        failed: dict[str, Exception] = {}
        for result in response.results:
            error = self._retries.error(result.error_code, f"the user {result.user!r}", result.error_message)
            if error is not None:
                failed[result.user] = error
            else:
                found[result.user] = {
                    ScramMechanism(info.mechanism): info.iterations
                    for info in result.credential_infos
                    if info.mechanism in _NUMBERS
                }
        return Results(found, failed)

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set and remove credentials, at most one per user.

        Raises:
            ValueError: two alterations are about one user, or a password is empty.
            ResourceNotFoundError, UnacceptableCredentialError, ClusterAuthorizationFailedError, …: one user could not
                be changed; an `ExceptionGroup` when several could not.
        """
        by_user: dict[str, ScramCredentialUpsertion | ScramCredentialDeletion] = {}
        for one in alterations:
            if one.user in by_user:
                raise ValueError(f"two alterations are about the user {one.user!r}: a broker accepts one per request")
            by_user[one.user] = self._change(one)

        async def do_round(users: list[str], call: CallRouting) -> Mapping[str, Exception | None]:
            changes = [by_user[user] for user in users]
            request = AlterUserScramCredentialsRequest(
                deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
                upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
            )
            response = await call.to_controller(request)
            return {
                result.user: self._retries.error(result.error_code, f"the user {result.user!r}", result.error_message)
                for result in response.results
            }

        await self._retries.change(by_user, do_round, timeout_ms)

    def _change(
        self, one: UserScramCredentialUpsertion | UserScramCredentialDeletion
    ) -> ScramCredentialUpsertion | ScramCredentialDeletion:
        if isinstance(one, UserScramCredentialDeletion):
            return ScramCredentialDeletion(name=one.user, mechanism=one.mechanism.value)
        salt = self._retries.world.random_bytes(_SALT_BYTES) if one.salt is None else one.salt
        salted = one.salted_password
        if salted is None:
            if not one.password:
                raise ValueError(f"the user {one.user!r} has an empty password")
            password = one.password.encode() if isinstance(one.password, str) else one.password
            salted = salt_password(one.mechanism, password, salt, one.iterations)
        return ScramCredentialUpsertion(
            name=one.user,
            mechanism=one.mechanism.value,
            iterations=one.iterations,
            salt=salt,
            salted_password=salted,
        )


_NUMBERS = frozenset(mechanism.value for mechanism in ScramMechanism)
