"""TLS and SASL of a node as the client of brokers and controllers, from its configuration."""

from __future__ import annotations

import logging
from typing import Final

from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.config.security_names import ListenerOptions
from triokafka.broker_stub.network.listener_mechanisms import kerberos_login_settings, login_module_of, oauth_options
from triokafka.broker_stub.network.listener_security import tls_settings
from triokafka.errors import ConfigurationError
from triokafka.security.client_security import ClientSecurity, SaslSettings
from triokafka.security.oauth.options import extensions as sasl_extensions
from triokafka.security.oauth.options import (
    retrieved_tokens,
)
from triokafka.security.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    SUPPORTED,
)
from triokafka.security.sasl.unsecured_login import UnsecuredTokens
from triokafka.security.secret import reveal
from triokafka.security.tls import TlsContexts
from triokafka.world import Storage

logger = logging.getLogger(__name__)

_CLAIM: Final = "unsecuredLoginStringClaim_"


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
        module = login_module_of(options, mechanism)
        given = {} if module is None else module.options
        if mechanism == OAUTHBEARER:
            claims = {name.removeprefix(_CLAIM): reveal(v) for name, v in given.items() if name.startswith(_CLAIM)}
            provider = retrieved_tokens(oauth_options(options)) or UnsecuredTokens(claims)
            sasl = SaslSettings(mechanism, token_provider=provider, extensions=sasl_extensions(given))
        elif mechanism == GSSAPI:
            sasl = SaslSettings(mechanism, kerberos=kerberos_login_settings(options))
        elif "username" not in given or "password" not in given:
            raise ConfigurationError(
                f"sasl.jaas.config of {mechanism} on the listener {listener} needs username and password, with which"
                " this node logs in to others"
            )
        else:
            sasl = SaslSettings(mechanism, given["username"], given["password"])
    return ClientSecurity(protocol, tls, sasl)
