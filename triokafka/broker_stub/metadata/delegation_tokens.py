"""The delegation tokens in the metadata image (KIP-48): lookup by id for logins, and by secret for changes."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.protocol.stored.cluster_metadata import DelegationTokenRecord
from triokafka.security.delegation_tokens import TokenLogin, token_password, token_secret
from triokafka.security.scram_credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    salt_password,
    stored_credential,
)
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.protocol.api.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )

TOKEN: Final = "token"
_MOST_CREDENTIALS: Final = 1_000
"""Credentials of tokens in memory; those of others are computed again at their next login."""


USER_TYPE: Final = "User"
NO_TIMESTAMP: Final = -1
"""The expiry in the answer to a request that the broker itself refuses."""


def tokens_of(image: MetadataImage) -> Iterator[DelegationTokenRecord]:
    """Yield the tokens of an image."""
    for record in image.security_records.values():
        if isinstance(record, DelegationTokenRecord):
            yield record


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether a token can no longer be used or renewed."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Return the owner of the token that a request asks for: by default, the requester."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def created_response(
    request: CreateDelegationTokenRequest, requester: str, version: int, error_code: int = 0
) -> CreateDelegationTokenResponse:
    """Return a response with owner and requester, and without a token."""
    from triokafka.protocol.api.create_delegation_token import CreateDelegationTokenResponse

    response = CreateDelegationTokenResponse(error_code=error_code)
    response.principal_type, _, response.principal_name = owner_of(request, requester).partition(":")
    if version >= 3:
        kind, _, name = requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    if error_code:
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP
    return response


class TokenSecrets:
    """Finds tokens by their secrets. The secrets of new tokens are computed at the next search.

    Args:
        secret_key: ``delegation.token.secret.key``.
    """

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        self._ids: dict[bytes, str] = {}
        self._searched: object = None

    def find(self, image: MetadataImage, secret: bytes) -> DelegationTokenRecord | None:
        """Return the token that has a secret, or None."""
        if image.security_records is not self._searched:
            known = {token_id: of_token for of_token, token_id in self._ids.items()}
            ids = [token.token_id for token in tokens_of(image)]
            self._ids = {known.get(token_id) or token_secret(token_id, self._secret_key): token_id for token_id in ids}
            self._searched = image.security_records
        token = image.security_records.get((TOKEN, self._ids.get(secret, ""), 0))
        return token if isinstance(token, DelegationTokenRecord) else None


def delegation_tokens(
    config: BrokerConfig, image: Callable[[], MetadataImage], world: World
) -> MetadataDelegationTokens | None:
    """Return the lookup of tokens for the listeners of a node; None without ``delegation.token.secret.key``."""
    if not config.delegation_token_secret_key:
        return None
    return MetadataDelegationTokens(
        image, world.wall_ms, secret_key=config.delegation_token_secret_key, salt_key=world.random_bytes(32)
    )


class MetadataDelegationTokens:
    """Looks tokens up in the newest image of a node; implements `DelegationTokens`.

    Args:
        image: returns the newest image.
        now_ms: returns the wall clock, in milliseconds since 1970.
        secret_key: ``delegation.token.secret.key``.
        salt_key: a random key of this node, from which the salts derive.
    """

    def __init__(
        self, image: Callable[[], MetadataImage], now_ms: Callable[[], int], *, secret_key: str, salt_key: bytes
    ) -> None:
        self._image = image
        self._now_ms = now_ms
        self._secret_key = secret_key
        self._salt_key = salt_key
        self._credentials: OrderedDict[tuple[ScramMechanism, str], ScramCredential] = OrderedDict()

    def login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Return the login of a token; None if there is no such token, or it has expired."""
        token = self._image().security_records.get((TOKEN, token_id, 0))
        if not isinstance(token, DelegationTokenRecord) or is_expired(token, self._now_ms()):
            return None
        expires_at_ms = min(token.expiration_timestamp, token.max_timestamp)
        return TokenLogin(self._credential(mechanism, token_id), token.owner.partition(":")[2], expires_at_ms)

    def _credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        key = mechanism, token_id
        known = self._credentials.get(key)
        if known is None:
            salt = hmac.digest(self._salt_key, token_id.encode(), "sha256")[:20]
            password = token_password(token_secret(token_id, self._secret_key)).encode()
            salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
            known = self._credentials[key] = stored_credential(mechanism, salted, salt, MIN_ITERATIONS)
            if len(self._credentials) > _MOST_CREDENTIALS:
                self._credentials.popitem(last=False)
        else:
            self._credentials.move_to_end(key)
        return known
