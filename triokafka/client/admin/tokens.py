"""Delegation tokens: create, renew, expire and describe (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from triokafka.client.admin.retries import AdminRetries
from triokafka.protocol.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from triokafka.protocol.api.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from triokafka.protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from triokafka.security.delegation_tokens import TOKEN_AUTH, token_password
from triokafka.security.secret import Secret

_SCRAM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with which a client logs in as ``owner``. Its secret, ``hmac``, does not appear in the ``repr``.

    Principals are texts, ``User:alice``. Times are milliseconds since 1970. ``requester`` is empty from brokers before
    3.3.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def password(self) -> str:
        """The password of a SCRAM login whose user name is the token's id. `reveal` shows it."""
        return Secret(token_password(self.hmac))

    def login_options(self, mechanism: str = _SCRAM) -> dict[str, Any]:
        """Return the client options that log in with this token; give them with ``security_protocol``."""
        password = token_password(self.hmac)
        text = f'ScramLoginModule required username="{self.token_id}" password="{password}" {TOKEN_AUTH}="true";'
        return {"sasl_mechanism": mechanism, "sasl_jaas_config": Secret(text)}


class TokenAdmin:
    """The part of `AdminClient` about delegation tokens.

    A broker answers these calls only on connections that have logged in, and not with a token.
    """

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Create a token of ``owner``, by default the caller.

        Args:
            owner: a principal such as ``User:alice``. For another than the caller, the caller needs CREATE_TOKENS on
                that user.
            renewers: the principals that may renew and expire the token, besides its owner.
            max_lifetime_ms: how long the token can be renewed; -1 for ``delegation.token.max.lifetime.ms``.

        Raises:
            ValueError: a principal is not ``Type:name``.
            DelegationTokenAuthDisabledError: the brokers have no ``delegation.token.secret.key``.
            DelegationTokenRequestNotAllowedError: this client did not log in, or with a token.
            DelegationTokenAuthorizationFailedError: the caller may not create tokens of the owner.
        """
        kind, name = (None, None) if owner is None else _parts(owner)
        wanted = [_parts(renewer) for renewer in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in wanted],
            max_lifetime_ms=max_lifetime_ms,
        )
        response = await self._retries.ask_any(request, "the delegation token", timeout_ms)
        return DelegationToken(
            token_id=response.token_id,
            hmac=bytes(response.hmac),
            owner=f"{response.principal_type}:{response.principal_name}",
            requester=_principal(response.token_requester_principal_type, response.token_requester_principal_name),
            renewers=tuple(f"{kind}:{name}" for kind, name in wanted),
            issue_timestamp_ms=response.issue_timestamp_ms,
            expiry_timestamp_ms=response.expiry_timestamp_ms,
            max_timestamp_ms=response.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: float | None = None
    ) -> int:
        """Let a token expire later, and return when, in milliseconds since 1970.

        Args:
            hmac: the token's secret.
            renew_period_ms: from now until the expiry; -1 for ``delegation.token.expiry.time.ms``.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError: no such token, or it can no longer be renewed.
            DelegationTokenOwnerMismatchError: the caller is neither owner nor renewer.
        """
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        response = await self._retries.ask_any(request, "the delegation token", timeout_ms)
        return response.expiry_timestamp_ms

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: float | None = None
    ) -> int:
        """Change when a token expires, and return it. A negative period removes the token immediately.

        Connections that have logged in with the token stay until their session ends.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError: as
                `renew_delegation_token`.
        """
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        response = await self._retries.ask_any(request, "the delegation token", timeout_ms)
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that the caller may see: its own, those that it may renew, and those that ACLs allow.

        Args:
            owners: only tokens of these principals, as owners or renewers.
        """
        wanted = None if owners is None else [_parts(owner) for owner in owners]
        request = DescribeDelegationTokenRequest(
            owners=None
            if wanted is None
            else [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in wanted]
        )
        response = await self._retries.ask_any(request, "delegation tokens", timeout_ms)
        return [_described(token) for token in response.tokens]


def _parts(principal: str) -> tuple[str, str]:
    kind, separator, name = principal.partition(":")
    if not (kind and separator and name):
        raise ValueError(f"{principal!r} is not a principal: write Type:name, such as User:alice")
    return kind, name


def _principal(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""


def _described(token: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token_id=token.token_id,
        hmac=bytes(token.hmac),
        owner=f"{token.principal_type}:{token.principal_name}",
        requester=_principal(token.token_requester_principal_type, token.token_requester_principal_name),
        renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
    )
