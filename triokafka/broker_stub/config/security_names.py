"""The names of the options of TLS and SASL, and how a listener finds its value of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.security.sasl.mechanism import SUPPORTED

DYNAMIC_STORE_NAMES: Final = frozenset(
    {
        "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
        "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.truststore.type",
    }
)  # fmt: skip
"""The options of key stores and trust stores, which may change while the broker runs (KIP-226)."""
SECURITY_NAMES: Final = frozenset(
    {
        # TLS
        "ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.cipher.suites", "ssl.client.auth", "ssl.crl.location",
        "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.principal.mapping.rules",
        # OAUTHBEARER
        "org.apache.kafka.sasl.oauthbearer.allowed.files", "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file", "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.scope", "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
        # Kerberos
        "sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.window.factor",
        # SASL: logins
        "sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        # SASL, and the choice between listeners
        "connections.max.reauth.ms", "java.security.auth.login.config", "sasl.enabled.mechanisms", "sasl.jaas.config",
        "sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol",
        "sasl.server.callback.handler.class", "sasl.server.max.receive.size", "security.inter.broker.protocol",
    } | DYNAMIC_STORE_NAMES
)  # fmt: skip
_MECHANISM_PREFIXES: Final = tuple(f"{mechanism.lower()}." for mechanism in SUPPORTED)


def _without_mechanism(name: str) -> str:
    prefix = next((one for one in _MECHANISM_PREFIXES if name.startswith(one)), "")
    return name[len(prefix) :]


def is_security(name: str) -> bool:
    """Whether this is an option of TLS or SASL, also with ``listener.name.NAME.`` and a mechanism before it."""
    if name in SECURITY_NAMES:
        return True
    parts = name.split(".", 3)
    if parts[:2] == ["listener", "name"] and len(parts) == 4:
        return _without_mechanism(parts[3]) in SECURITY_NAMES
    return _without_mechanism(name) in SECURITY_NAMES


def is_dynamic_store(name: str) -> bool:
    """Whether this is a listener's own key store or trust store, which may change while the broker runs (KIP-226)."""
    parts = name.split(".", 3)
    return parts[:2] == ["listener", "name"] and len(parts) == 4 and parts[3] in DYNAMIC_STORE_NAMES


def needs_listener(name: str) -> bool:
    """Whether this option may change while the broker runs only with ``listener.name.NAME.`` before it."""
    return name in DYNAMIC_STORE_NAMES


class ListenerOptions:
    """The options of TLS and SASL as one listener has them: its own values before the general ones."""

    def __init__(self, texts: Mapping[str, str], listener: str) -> None:
        self.listener = listener.lower()
        """The listener's name, in lower case."""
        self._texts = texts
        self._prefix = f"listener.name.{listener.lower()}."

    def get(self, name: str, default: str | None = None, *, mechanism: str | None = None) -> str | None:
        """Return the text of an option, or ``default``; for a mechanism, its own value before the listener's."""
        texts = self._texts
        if mechanism is not None:
            special = f"{mechanism.lower()}.{name}"
            for key in (self._prefix + special, special):
                if key in texts:
                    return texts[key]
        return texts.get(self._prefix + name, texts.get(name, default))

    def own(self, name: str, default: str | None = None) -> str | None:
        """Return the listener's own text of an option, or ``default``."""
        return self._texts.get(self._prefix + name, default)

    def name_of(self, name: str) -> str:
        """Return the name to show in a message about this listener's value."""
        return self._prefix + name if self._prefix + name in self._texts else name
