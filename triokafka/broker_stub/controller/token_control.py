"""Changes of delegation tokens (KIP-48, KIP-373) as decisions over the image. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delegation_tokens import (
    USER_TYPE,
    TokenSecrets,
    created_response,
    is_expired,
    owner_of,
)
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.protocol.stored.cluster_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from triokafka.security.delegation_tokens import token_secret
from triokafka.structs import format_uuid

if TYPE_CHECKING:
    from triokafka.protocol.api.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from triokafka.protocol.api.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_FOREVER: Final = 2**63 - 1


class TokenControl:
    """Creates, renews, expires and removes tokens.

    A requester is a principal, ``Type:name``; times are milliseconds since 1970. The caller has checked that the
    requester may create tokens of the owner.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._secret_key = config.delegation_token_secret_key or None
        self._secrets = TokenSecrets(self._secret_key or "")
        self._max_lifetime_ms = config.delegation_token_max_lifetime_ms
        self._expiry_time_ms = config.delegation_token_expiry_time_ms

    @property
    def enabled(self) -> bool:
        """Whether ``delegation.token.secret.key`` is set."""
        return self._secret_key is not None

    def create(
        self,
        image: MetadataImage,
        request: CreateDelegationTokenRequest,
        *,
        requester: str,
        version: int,
        now_ms: int,
        new_id: Callable[[], uuid.UUID],
    ) -> Outcome[CreateDelegationTokenResponse]:
        """Create a token. Errors are in the response."""
        response = created_response(request, requester, version)
        try:
            secret_key = self._checked_key(image)
            if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
                raise errors.InvalidPrincipalTypeError
        except errors.BrokerResponseError as error:
            response.error_code = error.code
            return Outcome([], response)
        lifetime_ms = self._max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        response.issue_timestamp_ms = now_ms
        response.max_timestamp_ms = min(now_ms + lifetime_ms, _FOREVER)
        response.expiry_timestamp_ms = min(response.max_timestamp_ms, now_ms + self._expiry_time_ms)
        response.token_id = format_uuid(new_id())
        while response.token_id.startswith("-"):  # a command line would take it for an option
            response.token_id = format_uuid(new_id())
        response.hmac = token_secret(response.token_id, secret_key)
        record = DelegationTokenRecord(
            owner=owner_of(request, requester),
            requester=requester,
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=response.max_timestamp_ms,
            expiration_timestamp=response.expiry_timestamp_ms,
            token_id=response.token_id,
        )
        return Outcome([record], response)

    def renew(
        self, image: MetadataImage, request: RenewDelegationTokenRequest, *, requester: str, now_ms: int
    ) -> Outcome[RenewDelegationTokenResponse]:
        """Let a token expire later, at most at its maximum timestamp. Errors are in the response."""
        from triokafka.protocol.api.renew_delegation_token import RenewDelegationTokenResponse

        try:
            token = self._found(image, bytes(request.hmac))
            if is_expired(token, now_ms):
                raise errors.DelegationTokenExpiredError
            _check_renewer(token, requester)
        except errors.BrokerResponseError as error:
            return Outcome([], RenewDelegationTokenResponse(error_code=error.code))
        period_ms = self._expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        expiry = min(token.max_timestamp, now_ms + period_ms)
        return Outcome([_expiring_at(token, expiry)], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry))

    def expire(
        self, image: MetadataImage, request: ExpireDelegationTokenRequest, *, requester: str, now_ms: int
    ) -> Outcome[ExpireDelegationTokenResponse]:
        """Change when a token expires; a negative period removes it, even if it has expired."""
        from triokafka.protocol.api.expire_delegation_token import ExpireDelegationTokenResponse

        try:
            token = self._found(image, bytes(request.hmac))
            _check_renewer(token, requester)
            if request.expiry_time_period_ms < 0:
                removal = RemoveDelegationTokenRecord(token_id=token.token_id)
                return Outcome([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
            if is_expired(token, now_ms):
                raise errors.DelegationTokenExpiredError
        except errors.BrokerResponseError as error:
            return Outcome([], ExpireDelegationTokenResponse(error_code=error.code))
        expiry = min(token.max_timestamp, now_ms + request.expiry_time_period_ms)
        return Outcome([_expiring_at(token, expiry)], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry))

    def _checked_key(self, image: MetadataImage) -> str:
        if self._secret_key is None:
            raise errors.DelegationTokenAuthDisabledError
        if not features.has_delegation_tokens(image):
            raise errors.UnsupportedVersionError
        return self._secret_key

    def _found(self, image: MetadataImage, secret: bytes) -> DelegationTokenRecord:
        self._checked_key(image)
        token = self._secrets.find(image, secret)
        if token is None:
            raise errors.DelegationTokenNotFoundError
        return token


def _check_renewer(token: DelegationTokenRecord, requester: str) -> None:
    if requester != token.owner and requester not in token.renewers:
        raise errors.DelegationTokenOwnerMismatchError


def _expiring_at(token: DelegationTokenRecord, expiry: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry,
        token_id=token.token_id,
    )
