"""The options of tokens for OAUTHBEARER, with Kafka's names (KIP-768, KIP-1139, KIP-1258)."""

# ruff: noqa: RUF009 - option() makes dataclass fields

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triokafka.client.checks import credential, flag, integer, number, option, secret, text


@dataclass(frozen=True, kw_only=True)
class OAuthOptions:
    """Options of a client that asks an identity provider for its tokens. All are unused without a token endpoint."""

    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        text(optional=True),
        "For OAUTHBEARER: where tokens come from, an http, https or file URL. It must be on the allow-list.",
    )
    sasl_oauthbearer_allowed_urls: str | None = option(
        None,
        text(optional=True),
        "The URLs that OAUTHBEARER may use, separated by commas; none by default. The environment variable"
        " TRIOKAFKA_SASL_OAUTHBEARER_ALLOWED_URLS overrides it.",
    )
    sasl_oauthbearer_allowed_files: str | None = option(
        None,
        text(optional=True),
        "The files of assertions, keys and templates that OAUTHBEARER may use, like sasl_oauthbearer_allowed_urls.",
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = option(
        None,
        text(optional=True),
        "How to get a token: 'ClientCredentialsJwtRetriever', 'JwtBearerJwtRetriever' (RFC 7523) or 'FileJwtRetriever',"
        " also with Java's package. None: from the URL.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | Callable[[], str] | None = option(
        None, credential, "The client's id at the provider, or a function for it."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | Callable[[], str] | None = option(
        None, secret(callable_too=True), "The client's secret at the provider, or a function for it."
    )
    sasl_oauthbearer_scope: str | None = option(None, text(optional=True), "The scope to ask for.")
    sasl_oauthbearer_header_urlencode: bool = option(
        False, flag(), "Form-encode id and secret in the Authorization header, as RFC 6749 requires."
    )
    sasl_oauthbearer_scope_claim_name: str = option("scope", text(), "The claim of a token with its scopes.")
    sasl_oauthbearer_sub_claim_name: str = option("sub", text(), "The claim of a token with the principal.")
    sasl_oauthbearer_assertion_file: str | None = option(
        None, text(optional=True), "A file with a finished assertion, used in place of a secret."
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None, text(optional=True), "The private key that signs assertions, in PEM."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = option(
        None, secret(), "The passphrase of that key."
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None, text(optional=True), 'A JSON file with further fields of assertions: {"header": {…}, "payload": {…}}.'
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        "RS256", text(), "The algorithm that signs assertions: 'RS256' or 'ES256'."
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        None, text(optional=True), "The issuer of assertions; with it, client credentials use a signed assertion."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(None, text(optional=True), "The subject of assertions.")
    sasl_oauthbearer_assertion_claim_aud: str | None = option(None, text(optional=True), "The audience of assertions.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        300, integer(0), "How long an assertion is valid, in seconds."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60, integer(0), "How long before its creation an assertion is valid, in seconds."
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(False, flag(), "Give every assertion a unique id.")
    sasl_login_callback_handler_class: str | None = option(
        None, text(optional=True), "Accepts Java's OAuthBearerLoginCallbackHandler. It has no effect."
    )
    sasl_login_connect_timeout_ms: float = option(10_000, number(1), "How long connecting to the provider may take.")
    sasl_login_read_timeout_ms: float = option(10_000, number(1), "How long the provider's answer may take.")
    sasl_login_retry_backoff_ms: float = option(
        100, number(0), "Wait before the next request to the provider; doubles with each failure."
    )
    sasl_login_retry_backoff_max_ms: float = option(
        10_000, number(0), "Longest such wait. No attempt begins later than this after the first one."
    )
    sasl_login_refresh_window_factor: float = option(
        0.8, number(0.5, 1), "The part of a token's life after which the client replaces it."
    )
    sasl_login_refresh_window_jitter: float = option(
        0.05, number(0, 0.25), "The largest random addition to sasl_login_refresh_window_factor."
    )
    sasl_login_refresh_min_period_seconds: float = option(
        60, number(0, 900), "Shortest time between two replacements of a token, in seconds."
    )
    sasl_login_refresh_buffer_seconds: float = option(
        300, number(0, 3600), "Time before a token's expiry at which the client replaces it at the latest, in seconds."
    )
