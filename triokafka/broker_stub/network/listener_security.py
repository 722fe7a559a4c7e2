"""TLS and SASL of a broker's listeners, from its configuration: `Authentication` of every connection."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from typing import Final

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.config.listeners import ListenerSpec
from triokafka.broker_stub.config.security_names import ListenerOptions
from triokafka.broker_stub.network.authentication import Authenticated, Authentication, AuthenticationFailedError
from triokafka.broker_stub.network.listener_mechanisms import (
    CredentialLookups,
    ScramLookups,
    enabled_mechanisms,
    jwks_validator,
    sasl_options,
)
from triokafka.broker_stub.network.login_scheduler import LoginScheduler
from triokafka.broker_stub.network.sasl_session import SaslOptions, SaslSession
from triokafka.errors import ConfigurationError
from triokafka.security.certificate_identity import CertificateIdentity, subject_of
from triokafka.security.delegation_tokens import DelegationTokens
from triokafka.security.oauth.jwks_validator import JwksValidator
from triokafka.security.principal_mapping import PrincipalMapping, distinguished_name
from triokafka.security.sasl.mechanism import (
    OAUTHBEARER,
)
from triokafka.security.scram_credentials import ScramCredentials
from triokafka.security.tls import KAFKAS_NAMES, TlsContexts, TlsSettings, check_handshake, own_identity
from triokafka.world import Stream, World
from triokafka.world.tls_stream import TlsStream, receive_client_hello

logger = logging.getLogger(__name__)

_SHOWN_NAME: Final = 200
_STORES: Final = ("PEM", "PKCS12", "JKS")


class ListenerSecurity(Authentication):
    """Authenticates the connections of a node's listeners.

    Args:
        scram: the SCRAM credentials of the cluster.
        tokens: the delegation tokens of the cluster; None without ``delegation.token.secret.key``.

    Raises:
        ConfigurationError: an option is missing, or a file cannot be used. The message names the listener.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listeners: tuple[ListenerSpec, ...],
        world: World,
        *,
        scram: ScramCredentials | None = None,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._world = world
        self._handshake_seconds = config.ssl_handshake_timeout_ms / 1000
        self._logins = LoginScheduler()
        lookups = CredentialLookups(scram or ScramLookups(), tokens, world.random_bytes(32))
        self._listeners: dict[str, _Listener] = {}
        for spec in listeners:
            try:
                self._listeners[spec.name] = _Listener(
                    spec, ListenerOptions(config.security or {}, spec.name), world, lookups
                )
            except ConfigurationError as error:
                raise ConfigurationError(f"listener {spec.name}: {error}") from None

    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        """See `Authentication`. SASL follows in the `SaslSession` of the result."""
        own = self._listeners[listener]
        principal = ANONYMOUS
        if own.tls is not None:
            stream = secured = await self._shake_hands(stream, own.tls)
            if own.sasl is None:
                principal = certificate_principal(secured.tls, own.mapping)
        session = None if own.sasl is None else SaslSession(own.sasl, self._world)
        return Authenticated(stream, principal, session)

    async def take_turn(self, stream: Stream) -> None:
        """See `Authentication`: in turns, by the peer's address."""
        await self._logins.take(stream.peer_address[0], self._world.now())

    def failed(self, stream: Stream) -> None:
        """See `Authentication`: other addresses go first for some time."""
        self._logins.failed(stream.peer_address[0], self._world.now())

    async def prepare(self) -> None:
        """See `Authentication`: load the keys for signed tokens."""
        for validator in self._validators():
            await validator.load()

    async def run(self) -> None:
        """See `Authentication`: keep the keys for signed tokens fresh."""
        async with trio.open_nursery() as nursery:
            for validator in self._validators():
                nursery.start_soon(validator.run)

    def _validators(self) -> list[JwksValidator]:
        return [own.jwks for own in self._listeners.values() if own.jwks is not None]

    def check(self, config: BrokerConfig) -> None:
        """Check that the listeners can use the stores of another configuration, and that it names the same node.

        As in Kafka, a new certificate must have the subject of the old one and all its alternative names, unless
        ``ssl.allow.dn.changes`` and ``ssl.allow.san.changes`` are set, and nodes must accept that of the inter-broker
        listener.

        Raises:
            ConfigurationError: a store cannot be used. Nothing has changed.
        """
        for name, settings in self._changed(config):
            own, options = self._listeners[name], ListenerOptions(config.security or {}, name)
            present, storage = own.settings, self._world.storage
            context = TlsContexts(settings, server_side=True).context(storage)
            assert present is not None
            _check_identity(own_identity(present, storage), own_identity(settings, storage), options)
            if name == config.inter_broker_listener:
                client = tls_settings(options, check_hostname=False)
                check_handshake(context, TlsContexts(client).context(storage))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use the stores of another configuration for new connections. An unusable one is logged and not used."""
        for name, settings in self._changed(config):
            own = self._listeners[name]
            assert own.tls is not None
            try:
                own.tls.reconfigure(settings, self._world.storage)
            except ConfigurationError as error:
                logger.error("Listener %s: the new key store or trust store is not used: %s", name, error)
            else:
                own.settings = settings
                logger.info("Listener %s: new connections use the new key store and trust store", name)

    def _changed(self, config: BrokerConfig) -> Iterator[tuple[str, TlsSettings]]:
        """Yield the listeners whose TLS differs in another configuration."""
        for name, own in self._listeners.items():
            if own.settings is not None:
                settings = tls_settings(
                    ListenerOptions(config.security or {}, name), client_auth=own.settings.client_auth
                )
                if settings != own.settings:
                    yield name, settings

    async def _shake_hands(self, stream: Stream, contexts: TlsContexts) -> TlsStream:
        """Do the TLS handshake, whose state takes memory only after the client's first message is complete."""
        try:
            with trio.fail_after(self._handshake_seconds):
                hello = await receive_client_hello(stream)
                await self.take_turn(stream)
                secured = TlsStream(
                    stream, contexts.context(self._world.storage), server_side=True, server_name=None, received=hello
                )
                await secured.handshake()
                return secured
        except trio.TooSlowError:
            limit = f"{self._handshake_seconds:g} s (ssl.handshake.timeout.ms)"
            raise AuthenticationFailedError(f"the TLS handshake did not end within {limit}") from None
        except ssl.SSLEOFError:
            raise
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or "handshake failure"
            raise AuthenticationFailedError(f"TLS: {reason.replace('_', ' ').lower()}") from None


class _Listener:
    """The security settings of one listener."""

    def __init__(
        self,
        spec: ListenerSpec,
        options: ListenerOptions,
        world: World,
        lookups: CredentialLookups,
    ) -> None:
        self.tls: TlsContexts | None = None
        self.settings: TlsSettings | None = None
        self.sasl: SaslOptions | None = None
        self.jwks: JwksValidator | None = None
        self.mapping = PrincipalMapping(options.get("ssl.principal.mapping.rules") or "DEFAULT")
        has_sasl = spec.security_protocol.startswith("SASL_")
        if spec.security_protocol.endswith("SSL"):
            # As Kafka: certificates of clients count on SSL listeners only, unless the listener sets the option itself.
            own_auth = (
                options.get("ssl.client.auth", "none") if not has_sasl else options.own("ssl.client.auth", "none")
            )
            self.settings = tls_settings(options, client_auth=own_auth or "none")
            self.tls = TlsContexts(self.settings, server_side=True)
            self.tls.context(world.storage)
        if has_sasl:
            if OAUTHBEARER in enabled_mechanisms(options):
                self.jwks = jwks_validator(options, world)
            self.sasl = sasl_options(options, world, lookups._replace(jwks=self.jwks))


def _check_identity(old: CertificateIdentity | None, new: CertificateIdentity | None, options: ListenerOptions) -> None:
    if old is None or new is None:
        return
    if new.subject != old.subject and (options.get("ssl.allow.dn.changes") or "").lower() != "true":
        raise ConfigurationError("Keystore DistinguishedName does not match that of the present certificate")
    if (
        not new.alternative_names >= old.alternative_names
        and (options.get("ssl.allow.san.changes") or "").lower() != "true"
    ):
        raise ConfigurationError("Keystore SubjectAltNames do not contain all those of the present certificate")


def certificate_principal(tls: ssl.SSLObject, mapping: PrincipalMapping) -> str:
    """Return the principal of a client by its certificate; ANONYMOUS without one.

    Raises:
        AuthenticationFailedError: no rule applies to its subject, which may be empty.
    """
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    name = distinguished_name(subject_of(certificate))
    principal = mapping.principal(name)
    if principal is None:
        shown = name[:_SHOWN_NAME]
        raise AuthenticationFailedError(f"TLS: no rule of ssl.principal.mapping.rules applies to {shown!r}")
    return f"User:{principal}"


def tls_settings(options: ListenerOptions, *, client_auth: str = "none", check_hostname: bool = True) -> TlsSettings:
    """Return the TLS of a listener, or of the node as its client. Raises `ConfigurationError`."""
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        kind = (options.get(name) or "PEM").upper()
        if kind not in _STORES:
            raise ConfigurationError(f"{options.name_of(name)}={kind}: supported are {', '.join(_STORES)}")
    if client_auth not in ("required", "requested", "none"):
        raise ConfigurationError(f"ssl.client.auth={client_auth}: expected required, requested or none")
    ciphers = options.get("ssl.cipher.suites")
    protocols = (options.get("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3").split(",")
    return TlsSettings(
        trust=options.get("ssl.truststore.certificates") or options.get("ssl.truststore.location"),
        trust_password=options.get("ssl.truststore.password"),
        chain=options.get("ssl.keystore.certificate.chain") or options.get("ssl.keystore.location"),
        key=options.get("ssl.keystore.key"),
        password=options.get("ssl.key.password") or options.get("ssl.keystore.password"),
        store_password=options.get("ssl.keystore.password"),
        revoked=options.get("ssl.crl.location"),
        names=KAFKAS_NAMES,
        ciphers=ciphers.replace(",", ":") if ciphers else None,
        protocols=tuple(one.strip() for one in protocols),
        check_hostname=check_hostname,
        client_auth=client_auth,
    )
