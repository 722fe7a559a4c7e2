"""Values of properties files from elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}``, ``${directory:PATH:FILE}``.

As in Kafka (KIP-297, KIP-632, KIP-887), a file turns this on by naming its providers:
``config.providers=env`` with ``config.providers.env.class=…EnvVarConfigProvider``. Unlike Kafka, a variable without a
value is an error: otherwise its name would be sent as the password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.world.os_storage import OsStorage

_OPTION: Final = "config.providers"
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Provider = Callable[[str, str], str | None]
"""Takes the path and the key of a variable, and returns its value; None without one. Raises `ConfigurationError`."""


def resolved(
    properties: Mapping[str, str],
    parse: Callable[[str], Mapping[str, str]],
    *,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the properties with values for their variables, and without the options of providers.

    Args:
        parse: the parser of the files of ``FileConfigProvider``.

    Raises:
        ConfigurationError: a provider is unknown, or a variable has no value. The message names the option.
    """
    named = [one.strip() for one in properties.get(_OPTION, "").split(",") if one.strip()]
    if not named:
        return dict(properties)
    providers = {name: _provider(name, properties, parse, environment) for name in named}
    result = {}
    for option, text in properties.items():
        if option != _OPTION and not option.startswith(f"{_OPTION}."):
            result[option] = _VARIABLE.sub(partial(_value, option=option, providers=providers), text)
    return result


def _value(match: re.Match[str], option: str, providers: Mapping[str, Provider]) -> str:
    name, path, key = match.groups()
    provider = providers.get(name)
    if provider is None:
        return match[0]  # not a variable of these providers: Kafka leaves it, too
    try:
        value = provider(path or "", key)
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if value is None:
        raise ConfigurationError(f"{option}: the variable {match[0]} has no value")
    return value


def _provider(
    name: str,
    properties: Mapping[str, str],
    parse: Callable[[str], Mapping[str, str]],
    environment: Mapping[str, str],
) -> Provider:
    option = f"{_OPTION}.{name}.class"
    kind = properties.get(option, "").rpartition(".")[2]
    if kind == "EnvVarConfigProvider":
        pattern = re.compile(properties.get(f"{_OPTION}.{name}.param.allowlist.pattern", ".*"), re.DOTALL)
        return lambda path, key: environment.get(key) if not path and pattern.fullmatch(key) else None
    if kind not in ("FileConfigProvider", "DirectoryConfigProvider"):
        raise ConfigurationError(
            f"{option}={kind or 'missing'}: known are EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider"
        )
    allowed = [one.strip() for one in properties.get(f"{_OPTION}.{name}.param.allowed.paths", "").split(",")]
    allowed = [os.path.normpath(one) for one in allowed if one]

    def read(path: str) -> str:
        normal = os.path.normpath(path)
        if allowed and not any(normal == one or normal.startswith(one.rstrip("/") + "/") for one in allowed):
            raise ConfigurationError(f"the file {path} is not below {_OPTION}.{name}.param.allowed.paths")
        try:
            return OsStorage().read_file(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"the file {path} cannot be read: {why}") from None

    if kind == "FileConfigProvider":
        return lambda path, key: parse(read(path)).get(key)
    return lambda path, key: read(os.path.join(path, key)) if "/" not in key else None
