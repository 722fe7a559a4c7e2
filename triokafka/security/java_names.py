"""Java's names of the options of TLS and of logins, for properties files, the command line and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from triokafka.security.secret import Secret

_RENAMED: Final[Mapping[str, str]] = {
    "ssl_truststore_location": "ssl_cafile",
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_keystore_key": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "java_security_auth_login_config": "sasl_jaas_file",
}
_HOST_NAMES: Final = "ssl_endpoint_identification_algorithm"
_CIPHERS: Final = "ssl_cipher_suites"
_NUMBERS_AND_FLAGS: Final = ("_ms", "_seconds", "_factor", "_jitter", "_urlencode", "_include")
"""Endings of the options of SASL that are not texts."""
_CONTENT_DECIDES: Final = ("ssl_keystore_type", "ssl_truststore_type")
SECRET_OPTIONS: Final = frozenset(
    {
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_password",
        "ssl_keystore_password",
        "ssl_truststore_password",
        "sasl_password",
        "sasl_plain_password",
        "sasl_jaas_config",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_oauthbearer_assertion_private_key_passphrase",
    }
)
"""Options of clients whose values are secret."""


def with_hidden_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's options with texts of `SECRET_OPTIONS` as `Secret`, so that a representation hides them."""
    return {
        name: Secret(value) if name in SECRET_OPTIONS and type(value) is str else value
        for name, value in options.items()
    }


def is_javas(name: str) -> bool:
    """Whether ``name``, in snake_case, is an option in Java with another name here: of TLS, or the login file."""
    return name in _RENAMED or name in (_HOST_NAMES, _CIPHERS) or name in _CONTENT_DECIDES


def is_text(name: str) -> bool:
    """Whether the value of this option is always a text, also if it looks like a number: a password, say."""
    return (
        name in SECRET_OPTIONS
        or (is_javas(name) and name != _HOST_NAMES)
        or (name.startswith("sasl_") and not name.endswith(_NUMBERS_AND_FLAGS))
    )


def python_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with this package's names for Java's; all others are unchanged. Names are in snake_case.

    The type of a store is left out, because its content shows it.
    """
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name == _HOST_NAMES:
            options["ssl_check_hostname"] = str(value or "").strip().lower() == "https"
        elif name == _CIPHERS:
            options["ssl_ciphers"] = str(value).replace(",", ":")
        elif name not in _CONTENT_DECIDES:
            new = _RENAMED.get(name, name)
            is_secret = new in SECRET_OPTIONS and type(value) is str
            options[new] = Secret(value) if is_secret else value
    return options
