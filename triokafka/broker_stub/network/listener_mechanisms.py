"""The SASL mechanisms of a listener, from its configuration: users, credentials, keys of tokens, keytabs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.config.security_names import ListenerOptions
from triokafka.broker_stub.network.sasl_session import MechanismOptions, SaslOptions
from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.delegation_tokens import DelegationTokens
from triokafka.security.jaas import OPTION, SERVER_SECTION, LoginModule, login_module, parse_jaas
from triokafka.security.kerberos.local_names import LocalNames
from triokafka.security.kerberos.login import MODULE as KERBEROS_MODULE
from triokafka.security.kerberos.login import KerberosLogin, KerberosSettings, default_realm
from triokafka.security.kerberos.login import settings_of as kerberos_settings
from triokafka.security.oauth.jwks_validator import JwksValidator
from triokafka.security.oauth.options import (
    JWKS_URL,
    OAuthSettings,
    claim_rules,
    jwks_endpoint,
)
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
from triokafka.security.scram_credentials import ScramCredential, ScramCredentials, ScramMechanism
from triokafka.security.secret import reveal
from triokafka.world import World

logger = logging.getLogger(__name__)

_USER: Final = "user_"
_SCRAM: Final = {
    SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256,
    SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512,
}
_HANDLER: Final = "sasl.server.callback.handler.class"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


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


class CredentialLookups(NamedTuple):
    """Users and tokens of the cluster, and the key of the salts for unknown users."""

    scram: ScramCredentials
    tokens: DelegationTokens | None
    unknown_user_key: bytes
    jwks: JwksValidator | None = None


def enabled_mechanisms(options: ListenerOptions) -> list[str]:
    """Return ``sasl.enabled.mechanisms``."""
    return [one.strip() for one in (options.get("sasl.enabled.mechanisms") or "").split(",") if one.strip()]


def sasl_options(options: ListenerOptions, world: World, lookups: CredentialLookups) -> SaslOptions:
    """Return the SASL of a listener. Raises `ConfigurationError`."""
    enabled = enabled_mechanisms(options)
    if not enabled:
        raise ConfigurationError(f"sasl.enabled.mechanisms: no mechanism is enabled; known are {', '.join(SUPPORTED)}")
    found: dict[str, MechanismOptions] = {}
    for mechanism in enabled:
        if mechanism not in SUPPORTED:
            raise ConfigurationError(
                f"sasl.enabled.mechanisms: {mechanism} is not supported; known are {', '.join(SUPPORTED)}"
            )
        if mechanism != OAUTHBEARER and options.get(_HANDLER, mechanism=mechanism) is not None:
            logger.warning("%s of %s has no effect: Java classes are not loaded", _HANDLER, mechanism)
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


def login_module_of(options: ListenerOptions, mechanism: str) -> LoginModule | None:
    """Return the login of a mechanism, from the option or the JAAS file; None without one."""
    text = options.get("sasl.jaas.config", mechanism=mechanism)
    if text is not None:
        return parse_jaas(text, source=f"sasl.jaas.config of {mechanism}")
    sections = (f"{options.listener}.{SERVER_SECTION}", SERVER_SECTION)
    return login_module(options.get(OPTION), sections, mechanism)


def oauth_options(options: ListenerOptions) -> OAuthSettings:
    """Return the options of OAUTHBEARER."""
    module = login_module_of(options, OAUTHBEARER)

    def get(name: str) -> str | None:
        return options.get(name, mechanism=OAUTHBEARER)

    return OAuthSettings(get, options.name_of, {} if module is None else module.options)


def jwks_validator(options: ListenerOptions, world: World) -> JwksValidator | None:
    """Return the validation of signed tokens; None for a listener without JWKS, which accepts unsecured tokens."""
    oauth = oauth_options(options)
    endpoint = jwks_endpoint(oauth)
    if endpoint is None:
        handler = options.get(_HANDLER, mechanism=OAUTHBEARER) or _UNSECURED_HANDLER
        if not handler.endswith(_UNSECURED_HANDLER):
            # Unsecured tokens instead would admit every client.
            raise ConfigurationError(
                f"{_HANDLER}={handler}: {OAUTHBEARER} needs {JWKS_URL}; Java classes are not loaded"
            )
        return None
    refresh_ms = oauth.number("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, 1)
    return JwksValidator(world, endpoint, claim_rules(oauth), refresh_ms=refresh_ms)


def _starter(
    mechanism: str, options: ListenerOptions, world: World, lookups: CredentialLookups
) -> Callable[[], SaslServer]:
    if mechanism == PLAIN:
        module = login_module_of(options, mechanism)
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
        logger.warning("OAUTHBEARER accepts unsecured tokens, which any client can make: use it for tests only")
        return lambda: OAuthBearerServer(validate, lambda reason: logger.info("OAUTHBEARER: %s", reason))
    if mechanism == GSSAPI:
        from triokafka.security.sasl.gssapi import GssapiServer  # rarely needed

        login = KerberosLogin(kerberos_login_settings(options))
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


def kerberos_login_settings(options: ListenerOptions) -> KerberosSettings:
    """Return the keytab and the principal of the node. Raises `ConfigurationError`."""
    module = login_module_of(options, GSSAPI)
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
