"""The JAAS file of a process: what the system property ``java.security.auth.login.config`` is for Java.

An option names it, or the environment variable ``TRIOKAFKA_JAAS_FILE``. A section is for clients (``KafkaClient``), for
all listeners of a broker (``KafkaServer``), or for one (``internal.KafkaServer``). Texts of ``sasl.jaas.config`` win.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.security.jaas import LoginModule, parse_jaas_file
from triokafka.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from triokafka.world.os_storage import OsStorage

OPTION: Final = "java.security.auth.login.config"
VARIABLE: Final = "TRIOKAFKA_JAAS_FILE"
CLIENT_SECTION: Final = "KafkaClient"
SERVER_SECTION: Final = "KafkaServer"

LOGIN_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "Krb5LoginModule": ("GSSAPI",),
}
"""The mechanisms that each login module of Kafka is for, by its name without the package."""


def named_file(option: str | None) -> str | None:
    """Return the path of the JAAS file: the option's, or the environment's; None without both."""
    return option or os.environ.get(VARIABLE, "").strip() or None


def login_module(
    option: str | None, sections: Collection[str], mechanism: str, *, option_name: str = OPTION
) -> LoginModule | None:
    """Return the login module for ``mechanism`` of the first section that the JAAS file has; None without a file.

    The file belongs to the process, as the environment does, and not to any world.

    Args:
        option: the path that the option ``option_name`` names.
        sections: the names of sections, the preferred one first.

    Raises:
        ConfigurationError: the file cannot be read or is malformed, or the option names it and it has no such section.
    """
    path = named_file(option)
    if path is None:
        return None
    source = f"{option_name if option else VARIABLE}: the JAAS file {path}"
    try:
        text = OsStorage().read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{source} cannot be read: {why}") from None
    found = parse_jaas_file(text, source=source)
    for section in sections:
        if section in found:
            return next((one for one in found[section] if mechanism in LOGIN_MODULES.get(one.name, ())), None)
    if option:
        raise ConfigurationError(f"{source} has no section {' or '.join(sections)}")
    return None
