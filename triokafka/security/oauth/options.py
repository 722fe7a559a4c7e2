"""From options with Kafka's names to the token source of a client, or the validator of a listener.

Clients and brokers name their options differently, so both pass a function that looks an option up, and one that names
it for messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.oauth.allow_list import AllowList, read_allow_list
from triokafka.security.oauth.assertion import ALGORITHMS, Assertion, AssertionFile, SignedAssertion
from triokafka.security.oauth.endpoint import OAuthEndpoint, check_scheme
from triokafka.security.oauth.refresh_window import RefreshWindow
from triokafka.security.oauth.retrieved_tokens import (
    AssertionGrant,
    Grant,
    RetrievedTokens,
    SecretGrant,
    TokenFile,
)
from triokafka.security.oauth.token_claims import ClaimRules
from triokafka.security.secret import reveal
from triokafka.security.tls import KAFKAS_NAMES, TlsContexts, TlsSettings

logger = logging.getLogger(__name__)

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
_EXTENSIONS: Final = ("extension_", "unsecuredLoginExtension_")
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client."
_ASSERTION: Final = "sasl.oauthbearer.assertion."
_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
    "JwtBearerJwtRetriever",
)
_JAAS_NAMES: Final = {
    f"{_CLIENT}id": "clientId",
    f"{_CLIENT}secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}


class OAuthSettings(NamedTuple):
    """The options of one client or listener.

    ``get`` returns the value of an option by Kafka's name (a text, a number, a function, or None), ``named`` the user's
    name of it. ``jaas`` are the options of the login module.
    """

    get: Callable[[str], Any]
    named: Callable[[str], str]
    jaas: Mapping[str, str]

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text; empty ones count as missing."""
        value = self.get(name)
        return default if value is None or not reveal(value).strip() else value

    def number(self, name: str, default: float, low: float, high: float = float("inf")) -> float:
        """Return a number within bounds. Raises `ConfigurationError`."""
        value = self.get(name)
        if value is None:
            return default
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = float("nan")
        if not low <= found <= high:
            upper = "" if high == float("inf") else f" to {high:g}"
            raise ConfigurationError(f"{self.named(name)}={value}: expected a number from {low:g}{upper}")
        return found

    def flag(self, name: str) -> bool:
        """Return a truth value; False when missing. Raises `ConfigurationError`."""
        value = self.get(name)
        if isinstance(value, bool) or value is None:
            return bool(value)
        if str(value).strip().lower() not in ("true", "false"):
            raise ConfigurationError(f"{self.named(name)}={value}: expected true or false")
        return str(value).strip().lower() == "true"

    def here_or_jaas(self, name: str) -> Any:
        """Return an option, or else the option of the login module that it replaces (KIP-1139)."""
        value = self.get(name)
        old = self.jaas.get(_JAAS_NAMES[name])
        if value is not None and old is not None:
            logger.warning(
                "%s and %s of the login module are both set: the first one is used", self.named(name), _JAAS_NAMES[name]
            )
        return value if value is not None else old

    def allow_list(self) -> AllowList:
        """Return which URLs and files may be used."""
        return read_allow_list(
            self.text(ALLOWED_URLS),
            self.text(ALLOWED_FILES),
            urls_option=self.named(ALLOWED_URLS),
            files_option=self.named(ALLOWED_FILES),
        )


def retrieved_tokens(options: OAuthSettings) -> RetrievedTokens | None:
    """Return the tokens of a client with a token endpoint; None without one.

    Raises:
        ConfigurationError: an option is missing, invalid, or not on the allow-list.
    """
    url = options.text(TOKEN_URL)
    if url is None:
        return None
    allow = options.allow_list()
    endpoint = _endpoint(options, TOKEN_URL, url, allow, backoff="sasl.login.retry.backoff")
    endpoint = endpoint._replace(
        connect_ms=options.number("sasl.login.connect.timeout.ms", 10_000, 1),
        read_ms=options.number("sasl.login.read.timeout.ms", 10_000, 1),
    )
    window = RefreshWindow(
        factor=options.number("sasl.login.refresh.window.factor", 0.8, 0.5, 1),
        jitter=options.number("sasl.login.refresh.window.jitter", 0.05, 0, 0.25),
        min_period=options.number("sasl.login.refresh.min.period.seconds", 60, 0, 900),
        buffer=options.number("sasl.login.refresh.buffer.seconds", 300, 0, 3600),
    )
    return RetrievedTokens(endpoint, _grant(options, endpoint, allow), window=window, rules=_claim_names(options))


def jwks_endpoint(options: OAuthSettings) -> OAuthEndpoint | None:
    """Return where a listener finds the keys for signed tokens; None without one. Raises `ConfigurationError`."""
    url = options.text(JWKS_URL)
    if url is None:
        return None
    return _endpoint(
        options, JWKS_URL, url, options.allow_list(), backoff="sasl.oauthbearer.jwks.endpoint.retry.backoff"
    )


def claim_rules(options: OAuthSettings) -> ClaimRules:
    """Return a listener's rules for the claims of a token. Raises `ConfigurationError`."""
    audiences = options.text("sasl.oauthbearer.expected.audience") or ""
    return _claim_names(options)._replace(
        issuer=options.text("sasl.oauthbearer.expected.issuer"),
        audiences=frozenset(one.strip() for one in audiences.split(",") if one.strip()),
        skew_ms=int(1000 * options.number("sasl.oauthbearer.clock.skew.seconds", 30, 0)),
    )


def extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions among the options of a login module: ``extension_NAME="…"``, or Kafka's for tests."""
    return {
        name.removeprefix(prefix): value
        for prefix in _EXTENSIONS
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _claim_names(options: OAuthSettings) -> ClaimRules:
    principal = options.text("sasl.oauthbearer.sub.claim.name", "sub")
    scope = options.text("sasl.oauthbearer.scope.claim.name", "scope")
    return ClaimRules(principal_claim=principal or "sub", scope_claim=scope or "scope")


def _endpoint(options: OAuthSettings, name: str, url: str, allow: AllowList, *, backoff: str) -> OAuthEndpoint:
    option = options.named(name)
    check_scheme(url, option)
    allow.check_url(url, option)
    first = options.number(f"{backoff}.ms", 100, 0)
    longest = options.number(f"{backoff}.max.ms", 10_000, 0)
    return OAuthEndpoint(
        url, option, retry_backoff_ms=first, retry_backoff_max_ms=max(first, longest), tls=_tls(options.jaas)
    )


def _tls(jaas: Mapping[str, str]) -> TlsContexts | None:
    """Return the TLS of the login module's options, as Kafka's brokers and clients have it; None without any."""
    given = {name: value for name, value in jaas.items() if name.startswith("ssl.")}
    if not given:
        return None
    check = reveal(given.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    return TlsContexts(
        TlsSettings(
            trust=given.get("ssl.truststore.certificates") or _revealed(given.get("ssl.truststore.location")),
            trust_password=given.get("ssl.truststore.password"),
            chain=given.get("ssl.keystore.certificate.chain") or _revealed(given.get("ssl.keystore.location")),
            key=given.get("ssl.keystore.key"),
            password=given.get("ssl.key.password") or given.get("ssl.keystore.password"),
            store_password=given.get("ssl.keystore.password"),
            check_hostname=check,
            names=KAFKAS_NAMES,
        )
    )


def _revealed(value: str | None) -> str | None:
    return None if value is None else reveal(value)


def _grant(options: OAuthSettings, endpoint: OAuthEndpoint, allow: AllowList) -> Grant:
    name = "sasl.oauthbearer.jwt.retriever.class"
    retriever = (options.text(name) or _RETRIEVERS[0]).rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        raise ConfigurationError(f"{options.named(name)}={retriever}: known are {', '.join(_RETRIEVERS)}")
    is_file = endpoint.path is not None
    if retriever != _RETRIEVERS[0] and is_file != (retriever == "FileJwtRetriever"):
        raise ConfigurationError(f"{options.named(name)}={retriever} does not fit {endpoint.option}={endpoint.url}")
    if is_file:
        return TokenFile()
    client_id, scope = options.here_or_jaas(f"{_CLIENT}id"), options.here_or_jaas("sasl.oauthbearer.scope")
    scope = None if scope is None else reveal(scope)
    has_assertion = options.text(f"{_ASSERTION}file") or options.text(f"{_ASSERTION}claim.iss")
    if retriever == "JwtBearerJwtRetriever" or has_assertion:
        is_grant = retriever == "JwtBearerJwtRetriever"
        return AssertionGrant(_assertion(options, allow), None if is_grant else client_id, scope, is_grant)
    secret = options.here_or_jaas(f"{_CLIENT}secret")
    for part, value in (("id", client_id), ("secret", secret)):
        if value is None or (isinstance(value, str) and not reveal(value).strip()):
            option = options.named(f"{_CLIENT}{part}")
            raise ConfigurationError(
                f'{endpoint.option} needs {option} (or client{part.title()}="…" in sasl.jaas.config)'
            )
    return SecretGrant(client_id, secret, scope, options.flag("sasl.oauthbearer.header.urlencode"))


def _assertion(options: OAuthSettings, allow: AllowList) -> Assertion:
    def file(name: str) -> str | None:
        path = options.text(_ASSERTION + name)
        if path is not None:
            allow.check_file(path, options.named(_ASSERTION + name))
        return path

    ready = file("file")
    if ready is not None:
        return AssertionFile(ready, options.named(f"{_ASSERTION}file"))
    algorithm = options.text(f"{_ASSERTION}algorithm", "RS256")
    if algorithm not in ALGORITHMS:
        raise ConfigurationError(
            f"{options.named(_ASSERTION + 'algorithm')}={algorithm}: known are {', '.join(ALGORITHMS)}"
        )
    key = file("private.key.file")
    if key is None:
        raise ConfigurationError(
            f"a signed assertion needs {options.named(_ASSERTION + 'private.key.file')}, or a finished one in"
            f" {options.named(_ASSERTION + 'file')}"
        )
    fixed = {name: options.text(f"{_ASSERTION}claim.{name}") for name in ("iss", "sub", "aud")}
    return SignedAssertion(
        algorithm=algorithm,
        key_file=key,
        passphrase=options.text(f"{_ASSERTION}private.key.passphrase"),
        template_file=file("template.file"),
        claims={name: value for name, value in fixed.items() if value is not None},
        exp_seconds=int(options.number(f"{_ASSERTION}claim.exp.seconds", 300, 0)),
        nbf_seconds=int(options.number(f"{_ASSERTION}claim.nbf.seconds", 60, 0)),
        has_id=options.flag(f"{_ASSERTION}claim.jti.include"),
        named=options.named,
    )
