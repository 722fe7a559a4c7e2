"""`token_endpoint`: one source of tokens for several clients, in every interface of this package."""

from __future__ import annotations

from typing import Any

from triokafka.client.config import ClientOptions
from triokafka.errors import ConfigurationError
from triokafka.security.oauth.retrieved_tokens import RetrievedTokens


def token_endpoint(**options: Any) -> RetrievedTokens:
    """Return the tokens of an identity provider, to pass to clients as ``sasl_oauth_token_provider``.

    A client takes the same options itself. With this object, several clients share one token, and clients of
    `triokafka.asyncio`, which have aiokafka's options only, can use a token endpoint. The clients must run on one event
    loop: those of the blocking and the asyncio interface of a process do.

    Args:
        options: the options ``sasl_oauthbearer_…``, ``sasl_login_…`` and ``sasl_jaas_config`` of a client.

    Raises:
        ConfigurationError: an option is unknown, missing or invalid, or its URL is not on the allow-list.
    """
    parsed = ClientOptions.parse({**options, "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"})
    security = parsed.security()
    tokens = security.sasl.token_provider if security is not None and security.sasl is not None else None
    if not isinstance(tokens, RetrievedTokens):
        raise ConfigurationError("token_endpoint needs sasl_oauthbearer_token_endpoint_url")
    return tokens
