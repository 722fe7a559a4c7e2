"""TLS and SASL from a client's options, and the checks of options that depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from triokafka.errors import ConfigurationError
from triokafka.security.client_security import ClientSecurity, SaslSettings
from triokafka.security.jaas import CLIENT_SECTION, LOGIN_MODULES, LoginModule, login_module, parse_jaas
from triokafka.security.kerberos.login import KerberosSettings, gssapi_library
from triokafka.security.kerberos.login import settings_of as kerberos_settings
from triokafka.security.oauth.options import (
    ALLOWED_FILES,
    ALLOWED_URLS,
    OAuthSettings,
    retrieved_tokens,
)
from triokafka.security.oauth.options import extensions as sasl_extensions
from triokafka.security.oauth.retrieved_tokens import RetrievedTokens
from triokafka.security.sasl.mechanism import GSSAPI, OAUTHBEARER
from triokafka.security.sasl.oauthbearer import check_extensions
from triokafka.security.sasl.unsecured_login import UnsecuredTokens
from triokafka.security.secret import reveal
from triokafka.security.tls import TlsContexts, TlsSettings

_UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_"


Options: TypeAlias = Mapping[str, Any]
"""The options of security by name, all of them, as `ClientOptions` has them."""


def client_security(options: Options) -> ClientSecurity:
    """Return the security of connections. Raises `ConfigurationError`, which names the missing option."""
    protocol = options["security_protocol"]
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        tls = TlsContexts(options["ssl_context"] or _tls_settings(options))
    if protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        sasl = _sasl_settings(options)
    return ClientSecurity(protocol, tls, sasl)


def _tls_settings(options: Options) -> TlsSettings:
    if options["ssl_keyfile"] is not None and options["ssl_certfile"] is None:
        raise ConfigurationError("ssl_keyfile needs ssl_certfile, the certificate of that key")
    return TlsSettings(
        trust=options["ssl_cafile"],
        trust_password=options["ssl_truststore_password"],
        chain=options["ssl_certfile"],
        key=options["ssl_keyfile"],
        password=options["ssl_password"] or options["ssl_keystore_password"],
        store_password=options["ssl_keystore_password"],
        revoked=options["ssl_crlfile"],
        ciphers=options["ssl_ciphers"],
        check_hostname=options["ssl_check_hostname"],
    )


def _sasl_settings(options: Options) -> SaslSettings:
    mechanism = options["sasl_mechanism"]
    if mechanism is None:
        raise ConfigurationError(
            f"security_protocol={options['security_protocol']!r} needs sasl_mechanism:"
            " 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN', 'OAUTHBEARER' or 'GSSAPI'"
        )
    user = _either(options, "sasl_username", "sasl_plain_username")
    password = _either(options, "sasl_password", "sasl_plain_password")
    provider = options["sasl_oauth_token_provider"]
    extensions: dict[str, str] = {}
    module = _login_module(
        options, mechanism, has_credentials=any(one is not None for one in (user, password, provider))
    )
    if module is not None:
        user = module.options.get("username", user)
        password = module.options.get("password", password)
        if reveal(module.options.get("tokenauth", "")).lower() == "true":
            extensions["tokenauth"] = "true"
        claims = {
            name.removeprefix(_UNSECURED_CLAIM): reveal(value)
            for name, value in module.options.items()
            if name.startswith(_UNSECURED_CLAIM)
        }
        if claims and provider is None:
            provider = UnsecuredTokens(claims)
        if mechanism == OAUTHBEARER:
            extensions |= _extensions(module.options)
    if mechanism == GSSAPI:
        gssapi_library()  # a missing package is better found now
        more = {"service": options["sasl_kerberos_service_name"], "host": options["sasl_kerberos_domain_name"]}
        kerberos = KerberosSettings(**more) if module is None else kerberos_settings(module.options, **more)
        return SaslSettings(mechanism, kerberos=kerberos)
    if mechanism == OAUTHBEARER:
        if provider is None:
            provider = retrieved_tokens(_oauth_options(options, {} if module is None else module.options))
        if provider is None:
            raise ConfigurationError(
                "sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"
            )
        if isinstance(provider, RetrievedTokens):
            return SaslSettings(mechanism, token_provider=provider, extensions=extensions)
        if not callable(provider) and not callable(getattr(provider, "token", None)):
            raise ConfigurationError("sasl_oauth_token_provider must be a function, or an object with a method token()")
    elif user is None or password is None:
        missing = "sasl_username" if user is None else "sasl_password"
        raise ConfigurationError(f"sasl_mechanism={mechanism!r} needs {missing}")
    return SaslSettings(mechanism, user, password, provider, extensions)


def _login_module(options: Options, mechanism: str, *, has_credentials: bool) -> LoginModule | None:
    """Return the login module of the text or the JAAS file; credentials take precedence over the JAAS file of the
    environment."""
    if options["sasl_jaas_config"] is not None:
        given = parse_jaas(options["sasl_jaas_config"], source="sasl_jaas_config")
        if mechanism not in LOGIN_MODULES.get(given.name, ()):
            raise ConfigurationError(f"sasl_jaas_config: the login module {given.name} does not fit {mechanism}")
        return given
    path = options["sasl_jaas_file"]
    if path is None and has_credentials:
        return None
    module = login_module(path, (CLIENT_SECTION,), mechanism, option_name="sasl_jaas_file")
    if module is None and path is not None:
        raise ConfigurationError(f"sasl_jaas_file: {path} has no login module for {mechanism} in {CLIENT_SECTION}")
    return module


_ALLOW_LIST: Final = {ALLOWED_URLS: "sasl_oauthbearer_allowed_urls", ALLOWED_FILES: "sasl_oauthbearer_allowed_files"}
_HANDLER: Final = "sasl_login_callback_handler_class"


def _oauth_options(options: Options, jaas: Mapping[str, str]) -> OAuthSettings:
    handler = options[_HANDLER]
    if handler is not None and not handler.endswith("OAuthBearerLoginCallbackHandler"):
        raise ConfigurationError(f"{_HANDLER}={handler}: Java classes cannot be loaded; set sasl_oauth_token_provider")

    def named(name: str) -> str:
        return _ALLOW_LIST.get(name) or name.replace(".", "_")

    return OAuthSettings(lambda name: options.get(named(name)), named, jaas)


def _extensions(jaas: Mapping[str, str]) -> dict[str, str]:
    found = sasl_extensions(jaas)
    try:
        check_extensions(found)
    except ValueError as error:
        raise ConfigurationError(f"sasl_jaas_config: {error}") from None
    return found


def _either(options: Options, name: str, other: str) -> Any:
    first, second = options[name], options[other]
    if first is not None and second is not None and first != second:
        raise ConfigurationError(f"{name} and {other} are two names of one option: set only one")
    return first if first is not None else second
