"""TLS and SASL of a broker's listeners, from its configuration: `Authentication` of every connection."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.config.broker import BrokerConfig
from triokafka.broker_stub.config.listeners import ListenerSpec
from triokafka.broker_stub.config.security_names import ListenerOptions
from triokafka.broker_stub.network.authentication import Authenticated, Authentication, AuthenticationFailedError
from triokafka.broker_stub.network.login_turns import LoginTurns
from triokafka.broker_stub.network.sasl_session import MechanismOptions, SaslOptions, SaslSession
from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.certificate_identity import CertificateIdentity
from triokafka.security.client_security import ClientSecurity, SaslSettings
from triokafka.security.delegation_tokens import DelegationTokens
from triokafka.security.jaas import LoginModule, parse_jaas
from triokafka.security.jaas_file import OPTION, SERVER_SECTION, login_module
from triokafka.security.kerberos.local_names import LocalNames
from triokafka.security.kerberos.login import MODULE as KERBEROS_MODULE
from triokafka.security.kerberos.login import KerberosLogin, KerberosSettings, default_realm
from triokafka.security.kerberos.login import settings_of as kerberos_settings
from triokafka.security.oauth.jwks import JwksValidator
from triokafka.security.oauth.options import (
    JWKS_URL,
    OAuthOptions,
    claim_rules,
    jwks_endpoint,
    retrieved_tokens,
)
from triokafka.security.oauth.options import extensions as sasl_extensions
from triokafka.security.principal_mapping import PrincipalMapping, distinguished_name
from triokafka.security.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    SUPPORTED,
    SaslServer,
)
from triokafka.security.sasl.oauthbearer import OAuthBearerServer, UnsecuredValidator
from triokafka.security.sasl.plain import PlainServer, PlainUsers
from triokafka.security.sasl.scram import ScramServer
from triokafka.security.sasl.unsecured_login import UnsecuredTokens
from triokafka.security.scram_credentials import ScramCredential, ScramCredentials, ScramMechanism
from triokafka.security.secret import reveal
from triokafka.security.tls import KAFKAS_NAMES, TlsContexts, TlsSettings, check_handshake, own_identity
from triokafka.world import Storage, Stream, World
from triokafka.world.tls_stream import TlsStream, receive_client_hello

logger = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 30
"""How long a TLS handshake may take."""
_STORES: Final = ("PEM", "PKCS12", "JKS")
_USER: Final = "user_"
_CLAIM: Final = "unsecuredLoginStringClaim_"
_SCRAM: Final = {
    SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256,
    SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512,
}


class ScramLookups:
    """`ScramCredentials` that asks several lookups in turn; without any, no user exists."""

    def __init__(self, *lookups: ScramCredentials | None) -> None:
        self._lookups = [one for one in lookups if one is not None]

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the first credential that a lookup has."""
        for lookup in self._lookups:
            found = lookup.credential(mechanism, user)
            if found is not None:
                return found
        return None


class _Lookups(NamedTuple):
    """Users and tokens of the cluster, and the key of the salts for unknown users."""

    scram: ScramCredentials
    tokens: DelegationTokens | None
    unknown_user_key: bytes
    jwks: JwksValidator | None = None


def is_secure(listener: ListenerSpec) -> bool:
    """Whether the listener has TLS or SASL."""
    return listener.security_protocol != "PLAINTEXT"


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
        self._turns = LoginTurns()
        lookups = _Lookups(scram or ScramLookups(), tokens, world.random_bytes(32))
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
                principal = _principal(secured.tls, own.mapping)
        session = None if own.sasl is None else SaslSession(own.sasl, self._world)
        return Authenticated(stream, principal, session)

    async def take_turn(self, stream: Stream) -> None:
        """See `Authentication`: in turns, by the peer's address."""
        await self._turns.take(stream.peer_address[0], self._world.now())

    def failed(self, stream: Stream) -> None:
        """See `Authentication`: other addresses go first for some time."""
        self._turns.failed(stream.peer_address[0], self._world.now())

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
            with trio.fail_after(_HANDSHAKE_SECONDS):
                hello = await receive_client_hello(stream)
                await self.take_turn(stream)
                secured = TlsStream(
                    stream, contexts.context(self._world.storage), server_side=True, server_name=None, received=hello
                )
                await secured.handshake()
                return secured
        except trio.TooSlowError:
            raise AuthenticationFailedError(f"the TLS handshake did not end within {_HANDSHAKE_SECONDS} s") from None
        except ssl.SSLEOFError:
            raise
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or "handshake failure"
            raise AuthenticationFailedError(f"TLS: {reason.replace('_', ' ').lower()}") from None


class _Listener:
    """What one listener asks of its peers."""

    def __init__(
        self,
        spec: ListenerSpec,
        options: ListenerOptions,
        world: World,
        lookups: _Lookups,
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
            if OAUTHBEARER in _enabled(options):
                self.jwks = _jwks_validator(options, world)
            self.sasl = _sasl_options(options, world, lookups._replace(jwks=self.jwks))


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


def _principal(tls: ssl.SSLObject, mapping: PrincipalMapping) -> str:
    certificate: Mapping[str, Any] | None = tls.getpeercert()
    if not certificate or not certificate.get("subject"):
        return ANONYMOUS
    return f"User:{mapping.principal(distinguished_name(certificate['subject']))}"


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


def _enabled(options: ListenerOptions) -> list[str]:
    return [one.strip() for one in (options.get("sasl.enabled.mechanisms") or "").split(",") if one.strip()]


def _sasl_options(options: ListenerOptions, world: World, lookups: _Lookups) -> SaslOptions:
    enabled = _enabled(options)
    if not enabled:
        raise ConfigurationError(f"sasl.enabled.mechanisms: no mechanism is enabled; known are {', '.join(SUPPORTED)}")
    found: dict[str, MechanismOptions] = {}
    for mechanism in enabled:
        if mechanism not in SUPPORTED:
            raise ConfigurationError(
                f"sasl.enabled.mechanisms: {mechanism} is not supported; known are {', '.join(SUPPORTED)}"
            )
        if mechanism != OAUTHBEARER and options.get(_HANDLER, mechanism=mechanism) is not None:
            logger.warning("%s of %s has no effect: classes of Java are not used", _HANDLER, mechanism)
        start = _starter(mechanism, options, world, lookups)
        reauth = _number(options, "connections.max.reauth.ms", 0, mechanism=mechanism)
        found[mechanism] = MechanismOptions(start, reauth)
    return SaslOptions(found, _number(options, "sasl.server.max.receive.size", 524_288))


def _number(options: ListenerOptions, name: str, default: int, *, mechanism: str | None = None) -> int:
    text = options.get(name, mechanism=mechanism)
    if text is None:
        return default
    if not text.strip().isdigit():
        raise ConfigurationError(f"{options.name_of(name)}={text.strip()!r} is not a whole number from 0")
    return int(text)


def _login_module(options: ListenerOptions, mechanism: str) -> LoginModule | None:
    text = options.get("sasl.jaas.config", mechanism=mechanism)
    if text is not None:
        return parse_jaas(text, source=f"sasl.jaas.config of {mechanism}")
    sections = (f"{options.listener}.{SERVER_SECTION}", SERVER_SECTION)
    return login_module(options.get(OPTION), sections, mechanism)


_HANDLER: Final = "sasl.server.callback.handler.class"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


def _oauth_options(options: ListenerOptions) -> OAuthOptions:
    module = _login_module(options, OAUTHBEARER)

    def get(name: str) -> str | None:
        return options.get(name, mechanism=OAUTHBEARER)

    return OAuthOptions(get, options.name_of, {} if module is None else module.options)


def _jwks_validator(options: ListenerOptions, world: World) -> JwksValidator | None:
    """Return the validation of signed tokens; None where a listener has no JWKS, and so takes unsecured ones."""
    oauth = _oauth_options(options)
    endpoint = jwks_endpoint(oauth)
    if endpoint is None:
        handler = options.get(_HANDLER, mechanism=OAUTHBEARER) or _UNSECURED_HANDLER
        if not handler.endswith(_UNSECURED_HANDLER):
            # Unsecured tokens instead would let everybody in.
            raise ConfigurationError(
                f"{_HANDLER}={handler}: {OAUTHBEARER} needs {JWKS_URL}; classes of Java are not used"
            )
        return None
    refresh_ms = oauth.number("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, 1)
    return JwksValidator(world, endpoint, claim_rules(oauth), refresh_ms=refresh_ms)


def _starter(mechanism: str, options: ListenerOptions, world: World, lookups: _Lookups) -> Callable[[], SaslServer]:
    if mechanism == PLAIN:
        module = _login_module(options, mechanism)
        if module is None:
            raise ConfigurationError(
                "PLAIN needs the users: set plain.sasl.jaas.config to '…PlainLoginModule required user_NAME=\"…\";', or"
                f" {OPTION} to a JAAS file with them"
            )
        users = PlainUsers(
            {name.removeprefix(_USER): value for name, value in module.options.items() if name.startswith(_USER)}
        )
        return lambda: PlainServer(users.verify)
    if mechanism == OAUTHBEARER:
        jwks = lookups.jwks
        if jwks is not None:
            return lambda: OAuthBearerServer(jwks, lambda reason: logger.info("OAUTHBEARER: %s", reason))
        validate = UnsecuredValidator(
            world.wall_ms,
            principal_claim=options.get("sasl.oauthbearer.sub.claim.name") or "sub",
            clock_skew_ms=1000 * _number(options, "sasl.oauthbearer.clock.skew.seconds", 0),
        )
        logger.warning("OAUTHBEARER accepts unsecured tokens, which anybody can make: use it for tests only")
        return lambda: OAuthBearerServer(validate, lambda reason: logger.info("OAUTHBEARER: %s", reason))
    if mechanism == GSSAPI:
        from triokafka.security.sasl.gssapi import GssapiServer  # rarely needed

        login = KerberosLogin(_kerberos(options))
        names = LocalNames(options.get("sasl.kerberos.principal.to.local.rules") or "DEFAULT", default_realm())
        return lambda: GssapiServer(login, names)
    kind = _SCRAM[mechanism]
    return lambda: ScramServer(
        kind,
        lookups.scram,
        random_bytes=world.random_bytes,
        unknown_user_key=lookups.unknown_user_key,
        tokens=lookups.tokens,
    )


def _kerberos(options: ListenerOptions) -> KerberosSettings:
    module = _login_module(options, GSSAPI)
    if module is None:
        raise ConfigurationError(
            "GSSAPI needs the broker's keytab: set gssapi.sasl.jaas.config to"
            f' \'…{KERBEROS_MODULE} required useKeyTab=true keyTab="…" principal="…";\''
        )
    if module.name != KERBEROS_MODULE:
        raise ConfigurationError(f"sasl.jaas.config of GSSAPI: the login module {module.name} does not fit GSSAPI")
    principal = reveal(module.options.get("principal", ""))
    service = options.get("sasl.kerberos.service.name") or principal.partition("@")[0].partition("/")[0] or "kafka"
    window = options.get("sasl.kerberos.ticket.renew.window.factor") or "0.8"
    try:
        renew_window = float(window)
    except ValueError:
        raise ConfigurationError(f"sasl.kerberos.ticket.renew.window.factor={window!r} is not a number") from None
    return kerberos_settings(module.options, service=service, renew_window=renew_window)


# The node as a client of other nodes


def inter_broker_security(config: BrokerConfig) -> ClientSecurity | None:
    """Return the security of connections to other brokers; None for PLAINTEXT. Raises `ConfigurationError`."""
    return _node_security(config, config.inter_broker_listener, "sasl.mechanism.inter.broker.protocol")


def reconfigure_peers(security: ClientSecurity, config: BrokerConfig, storage: Storage) -> None:
    """Use the inter-broker listener's stores of another configuration for new connections to other brokers."""
    if security.tls is None:
        return
    options = ListenerOptions(config.security or {}, config.inter_broker_listener)
    settings = tls_settings(options, check_hostname=security.tls.check_hostname)
    if settings != security.tls.settings:
        try:
            security.tls.reconfigure(settings, storage)
        except ConfigurationError as error:
            logger.error("Connections to other brokers: the new key store or trust store is not used: %s", error)


def controller_security(config: BrokerConfig) -> ClientSecurity | None:
    """Return the security of connections to controllers; None for PLAINTEXT. Raises `ConfigurationError`."""
    names = [name.upper() for name in config.controller_listener_names]
    return _node_security(config, names[0], "sasl.mechanism.controller.protocol") if names else None


def _node_security(config: BrokerConfig, listener: str, mechanism_option: str) -> ClientSecurity | None:
    protocol = config.security_protocol_of(listener)
    if protocol == "PLAINTEXT":
        return None
    options = ListenerOptions(config.security or {}, listener)
    tls = sasl = None
    if protocol.endswith("SSL"):
        check = (options.get("ssl.endpoint.identification.algorithm", "https") or "").lower() == "https"
        tls = TlsContexts(tls_settings(options, check_hostname=check))
    if protocol.startswith("SASL_"):
        mechanism = options.get(mechanism_option) or ""
        if mechanism not in SUPPORTED:
            raise ConfigurationError(
                f"{mechanism_option}={mechanism!r}: the listener {listener} needs one of {', '.join(SUPPORTED)}"
            )
        module = _login_module(options, mechanism)
        given = {} if module is None else module.options
        if mechanism == OAUTHBEARER:
            claims = {name.removeprefix(_CLAIM): reveal(v) for name, v in given.items() if name.startswith(_CLAIM)}
            provider = retrieved_tokens(_oauth_options(options)) or UnsecuredTokens(claims)
            sasl = SaslSettings(mechanism, token_provider=provider, extensions=sasl_extensions(given))
        elif mechanism == GSSAPI:
            sasl = SaslSettings(mechanism, kerberos=_kerberos(options))
        elif "username" not in given or "password" not in given:
            raise ConfigurationError(
                f"sasl.jaas.config of {mechanism} on the listener {listener} needs username and password, with which"
                " this node logs in to others"
            )
        else:
            sasl = SaslSettings(mechanism, given["username"], given["password"])
    return ClientSecurity(protocol, tls, sasl)
