"""Kafka's tool for topics, which uses the Java client, as a client that logs in."""

from __future__ import annotations

from tests.interop import jvm
from tests.interop.test_security import TOPICS, properties
from tests.support.login_clients import Address


def list_topics(address: Address, mechanism: str, name: str, **login: str) -> None:
    """List topics, with a file of properties called ``name``. Raises `PermissionError` if the broker refuses the login.

    ``login`` are Java's options, with ``_`` for ``.``.
    """
    config = properties(
        address.authority.with_name(f"{mechanism}-{address.protocol}-{name}.properties"),
        security_protocol=address.protocol,
        sasl_mechanism=mechanism,
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(address.authority),
        **login,
    )
    try:
        jvm.run_java(TOPICS, "--bootstrap-server", address.bootstrap_servers, "--command-config", config, "--list")
    except AssertionError as error:
        if "SaslAuthenticationException" in str(error):
            raise PermissionError(str(error)) from None
        raise
