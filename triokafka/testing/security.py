"""TLS and users for a test's brokers: certificates made on the spot, and what a client needs to connect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.security.sasl.mechanism import MECHANISMS, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from triokafka.security.sasl.scram import make_credential
from triokafka.security.scram_credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism

_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
_SALT: Final = b"salt of a test's broker"


class FixedScramCredentials:
    """The SCRAM credentials of given users with their passwords."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)
        self._known: dict[tuple[ScramMechanism, str], ScramCredential] = {}

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user; computed once."""
        if user not in self._users:
            return None
        known = self._known.get((mechanism, user))
        if known is None:
            known = make_credential(mechanism, self._users[user], _SALT, MIN_ITERATIONS)
            self._known[mechanism, user] = known
        return known


class BrokerSecurity:
    """TLS with a certificate of its own authority, and users for PLAIN, SCRAM and unsecured OAUTHBEARER.

    Args:
        hosts: names of hosts for the certificate, besides those of the loopback interface.

    Raises:
        ConfigurationError: ``tls`` needs the package trustme, which is missing.
    """

    def __init__(self, *, tls: bool, users: Mapping[str, str], hosts: Iterable[str] = ()) -> None:
        self.users = dict(users)
        self.protocol = {
            (False, False): "PLAINTEXT",
            (True, False): "SSL",
            (False, True): "SASL_PLAINTEXT",
            (True, True): "SASL_SSL",
        }[tls, bool(users)]
        self.scram_credentials = FixedScramCredentials(users)
        self._chain = self._key = self.authority = ""
        if tls:
            self._make_certificates(hosts)

    def _make_certificates(self, hosts: Iterable[str]) -> None:
        try:
            import trustme
        except ImportError:
            raise ConfigurationError(
                "tls=True makes certificates with the package trustme: pip install trustme"
            ) from None
        authority = trustme.CA()
        certificate = authority.issue_cert(*_HOSTS, *hosts)
        self._key = certificate.private_key_pem.bytes().decode()
        self._chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
        self.authority = authority.cert_pem.bytes().decode()

    def broker_options(self) -> dict[str, Any]:
        """Return the broker's options, as `BrokerConfig` takes them."""
        texts: dict[str, str] = {}
        if self._chain:
            texts |= {"ssl.keystore.certificate.chain": self._chain, "ssl.keystore.key": self._key}
            texts["ssl.truststore.certificates"] = self.authority
        if self.users:
            accounts = " ".join(f"{_quoted('user_' + name)}={_quoted(word)}" for name, word in self.users.items())
            texts |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "plain.sasl.jaas.config": f"PlainLoginModule required {accounts};",
                "sasl.mechanism.inter.broker.protocol": PLAIN,
            }
            user, password = next(iter(self.users.items()))
            texts["plain.sasl.jaas.config"] = (
                f"PlainLoginModule required username={_quoted(user)} password={_quoted(password)} {accounts};"
            )
        return {
            "listeners": (f"{self.protocol}://127.0.0.1:0",),
            "inter_broker_listener_name": self.protocol,
            # Nobody but the nodes knows the ports of a cluster's controllers.
            "listener_security_protocol_map": (f"{self.protocol}:{self.protocol}", "CONTROLLER:PLAINTEXT"),
            "security": texts,
        }

    def client_options(self, user: str | None, mechanism: str) -> dict[str, Any]:
        """Return the options of a client that connects as ``user``; the first of the users when None."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.authority:
            options["ssl_cafile"] = self.authority
        if self.users:
            name = next(iter(self.users)) if user is None else user
            options |= {"sasl_mechanism": mechanism}
            if mechanism in (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512):
                options |= {"sasl_username": name, "sasl_password": self.users[name]}
            else:
                claim = f"unsecuredLoginStringClaim_sub={_quoted(name)}"
                options["sasl_jaas_config"] = f"OAuthBearerLoginModule required {claim};"
        return options


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
