"""Connection profiles: the file ``profiles.toml`` in the user's configuration directory.

Each table is a profile: ``bootstrap_servers`` and further options that all clients take. ``default`` names the profile
that applies if nothing else names the brokers.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click

SHOWN_PATH: Final = "~/.config/triokafka/profiles.toml"
"""Default path of the file without XDG_CONFIG_HOME, for help texts."""
SERVERS_VARIABLE: Final = "TRIOKAFKA_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE: Final = "TRIOKAFKA_PROFILE"
DEFAULT_SERVERS: Final = "localhost:9092"
_SERVERS: Final = "bootstrap_servers"


class Profile(NamedTuple):
    """The brokers of a profile, and its further client options."""

    bootstrap_servers: str
    options: Mapping[str, Any]


def path() -> str:
    """Return the path of the file: below XDG_CONFIG_HOME, by default ~/.config."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "triokafka", "profiles.toml")


def names() -> list[str]:
    """Return the names of all profiles. Raises `click.UsageError` for an unreadable file."""
    return sorted(name for name, value in _read().items() if isinstance(value, dict))


def find(name: str, source: str) -> Profile:
    """Return a profile by its name; ``source`` is the option or variable with the name, for messages.

    Raises:
        UsageError: the file is unreadable, or the profile is missing or malformed.
    """
    document = _read()
    table = document.get(name)
    if not isinstance(table, dict):
        known = sorted(key for key, value in document.items() if isinstance(value, dict))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known profiles: {', '.join(known) or 'none'}."
        raise click.UsageError(f"{source}: profile {name!r} is not in {path()}. {hint}")
    return _profile(name, table)


def find_default() -> Profile | None:
    """Return the profile that the file's ``default`` names; None without a file or a default."""
    name = _read().get("default")
    if name is None:
        return None
    if not isinstance(name, str):
        raise click.UsageError(f'{path()}: default takes the name of a profile, such as default = "local".')
    return find(name, "default")


def _read() -> Mapping[str, Any]:
    try:
        with open(path(), "rb") as file:
            document = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):  # users without a home have /dev/null
        return {}
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        problem = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f"{path()} cannot be read: {problem}.") from None
    for name, value in document.items():
        if name != "default" and not isinstance(value, dict):
            raise click.UsageError(f"{path()}: {name} is outside a profile. Put it below a line such as [local].")
    return document


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    from triokafka.client.keywords import ClientKeywords

    known = ClientKeywords.__annotations__
    options: dict[str, Any] = {}
    for dotted, value in _leaves(table):
        option = dotted.replace(".", "_").replace("-", "_")
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "A profile takes only options of all clients."
            raise click.UsageError(f"{path()}: [{name}]: unknown option {dotted!r}. {hint}")
        options[option] = value
    servers = options.pop(_SERVERS, None)
    if isinstance(servers, list) and servers and all(isinstance(server, str) for server in servers):
        servers = ",".join(servers)
    if not isinstance(servers, str) or not servers.strip():
        raise click.UsageError(f'{path()}: [{name}] has no brokers. Add {_SERVERS} = "localhost:9092".')
    return Profile(servers, options)


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every option; TOML parses dotted names, such as ``bootstrap.servers``, into nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def choose_brokers(servers: str | None, profile: Profile | None) -> tuple[str, Profile | None]:
    """Return the effective brokers and profile, given those of the command line."""
    if servers is not None:
        return servers, profile
    if profile is None:
        if servers := os.environ.get(SERVERS_VARIABLE, "").strip():
            return servers, None
        name = os.environ.get(PROFILE_VARIABLE, "").strip()
        profile = find(name, PROFILE_VARIABLE) if name else find_default()
    return (DEFAULT_SERVERS, None) if profile is None else (profile.bootstrap_servers, profile)
