"""Validation of signed tokens by a broker, with the keys of an identity provider (KIP-768).

The keys are loaded before the listeners open, and then in intervals. A token with an unknown key id is refused, and
makes the broker load the keys earlier: the provider may have published a new key. The state is `KeyRefresh`; the tasks
around it are `JwksValidator.load` and `JwksValidator.run`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import trio

from triokafka.errors import ConfigurationError
from triokafka.security.oauth.endpoint import EndpointError, OAuthEndpoint, document
from triokafka.security.oauth.token_claims import ClaimRules, check_claims_of_broker
from triokafka.security.oauth.verification_keys import (
    UnknownKeyError,
    UnusableKeysError,
    VerificationKeys,
    require_jose,
)
from triokafka.security.sasl.oauthbearer import BearerToken, InvalidTokenError
from triokafka.world import World

logger = logging.getLogger(__name__)

_HEADERS: Final = {"Accept": "application/json, application/jwk-set+json", "Cache-Control": "no-cache"}
_MOST_KEY_IDS: Final = 16
_LONGEST_KEY_ID: Final = 1000
_SAME_KEY_ID_SECONDS: Final = 60.0
_EARLY_REFRESH_SECONDS: Final = 10.0
"""Shortest time between two early refreshes: clients that invent key ids must not load the provider."""


class KeyRefresh:
    """Decides whether an unknown key id is a reason to load the keys early. Times are seconds on the world's clock."""

    def __init__(self) -> None:
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._next_at = float("-inf")

    def unknown(self, kid: str, now: float) -> bool:
        """Note a token with an unknown key id, and return whether to load the keys now."""
        if len(kid) > _LONGEST_KEY_ID or now < self._next_at or now < self._unknown.get(kid, now):
            return False
        self._next_at = now + _EARLY_REFRESH_SECONDS
        self._unknown[kid] = now + _SAME_KEY_ID_SECONDS
        self._unknown.move_to_end(kid)
        if len(self._unknown) > _MOST_KEY_IDS:
            self._unknown.popitem(last=False)
        return True


class JwksValidator:
    """A `TokenValidator` for signed tokens.

    Args:
        endpoint: where the keys are; several validators may share one.
        refresh_ms: interval of loading the keys.

    Raises:
        ConfigurationError: the package for signatures is missing.
    """

    def __init__(self, world: World, endpoint: OAuthEndpoint, rules: ClaimRules, *, refresh_ms: float) -> None:
        require_jose()
        self._world = world
        self._endpoint = endpoint
        self._rules = rules
        self._refresh_ms = refresh_ms
        self._keys: VerificationKeys | None = None
        self._refresh = KeyRefresh()
        self._early = trio.Event()

    def __call__(self, token: str) -> BearerToken:
        """Validate a token. Waits for nothing. Raises `InvalidTokenError`."""
        if self._keys is None:
            raise InvalidTokenError("the keys of the identity provider are not loaded yet")
        try:
            claims = self._keys.verify(token)
        except UnknownKeyError as error:
            if error.kid is not None and self._refresh.unknown(error.kid, self._world.now()):
                self._early.set()
            raise
        return check_claims_of_broker(claims, self._rules, self._world.wall_ms())

    async def load(self) -> None:
        """Load the keys for the first time.

        Raises:
            ConfigurationError: the provider does not answer, or has no keys.
        """
        try:
            await self._load()
        except (EndpointError, UnusableKeysError) as error:
            raise ConfigurationError(f"{self._endpoint.option}: {error}") from None

    async def run(self) -> None:
        """Load the keys in intervals, until cancelled. After a failure the previous keys stay in use."""
        while True:
            with trio.move_on_after(self._refresh_ms / 1000):
                await self._early.wait()
            self._early = trio.Event()
            try:
                await self._load()
            except (EndpointError, UnusableKeysError, ConfigurationError) as error:
                logger.warning(
                    "%s: the keys could not be loaded again, and the old ones stay: %s", self._endpoint.option, error
                )

    async def _load(self) -> None:
        self._keys = VerificationKeys(await document(self._world, self._endpoint, _HEADERS))
        logger.info("%s: loaded %d keys from %s", self._endpoint.option, len(self._keys), self._endpoint.url)
