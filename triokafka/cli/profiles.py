"""Named brokers: the file ``profiles.toml`` in the user's configuration directory.

Each table is a profile: ``bootstrap_servers`` and further options that every client has. ``default`` names the profile
that applies when nothing else says where the brokers are.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click

SHOWN_PATH: Final = "~/.config/triokafka/profiles.toml"
"""Where the file is, unless XDG_CONFIG_HOME says otherwise. For help."""
SERVERS_VARIABLE: Final = "TRIOKAFKA_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE: Final = "TRIOKAFKA_PROFILE"
DEFAULT_SERVERS: Final = "localhost:9092"
_SERVERS: Final = "bootstrap_servers"


class Profile(NamedTuple):
    """The brokers of a profile, and its further options of the client."""

    bootstrap_servers: str
    options: Mapping[str, Any]


def path() -> str:
    """Return where the file is: below XDG_CONFIG_HOME, or ~/.config without it."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "triokafka", "profiles.toml")


def names() -> list[str]:
    """Return the names of all profiles. Raises `click.UsageError` for a file that cannot be read."""
    return sorted(name for name, value in _read().items() if isinstance(value, dict))


def find(name: str, source: str) -> Profile:
    """Return a profile by its name, which ``source`` gave.

    Raises:
        UsageError: the file cannot be read or has no such profile, or the profile is malformed.
    """
    document = _read()
    table = document.get(name)
    if not isinstance(table, dict):
        known = sorted(key for key, value in document.items() if isinstance(value, dict))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(known) or 'no profiles'}."
        raise click.UsageError(f"{source}: there is no profile {name!r} in {path()}. {hint}")
    return _profile(name, table)


def find_default() -> Profile | None:
    """Return the profile that the file names as ``default``; None without a file or such a name."""
    name = _read().get("default")
    if name is None:
        return None
    if not isinstance(name, str):
        raise click.UsageError(f'{path()}: default is the name of a profile, as in default = "local".')
    return find(name, "default")


def _read() -> Mapping[str, Any]:
    try:
        with open(path(), "rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # the latter: not TOML, or not UTF-8
        problem = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f"{path()} cannot be read: {problem}.") from None
    for name, value in document.items():
        if name != "default" and not isinstance(value, dict):
            raise click.UsageError(f"{path()}: {name} belongs to a profile; put it below a line such as [local].")
    return document


def _profile(name: str, table: Mapping[str, Any]) -> Profile:
    from triokafka.client.keywords import ClientKeywords

    known = ClientKeywords.__annotations__
    options: dict[str, Any] = {}
    for dotted, value in _leaves(table):
        option = dotted.replace(".", "_").replace("-", "_")
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "A profile has options that all clients take."
            raise click.UsageError(f"{path()}: [{name}]: there is no option {dotted!r}. {hint}")
        options[option] = value
    servers = options.pop(_SERVERS, None)
    if isinstance(servers, list) and servers and all(isinstance(server, str) for server in servers):
        servers = ",".join(servers)
    if not isinstance(servers, str) or not servers.strip():
        raise click.UsageError(f'{path()}: [{name}] needs its brokers, as in {_SERVERS} = "localhost:9092".')
    return Profile(servers, options)


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every option; TOML makes tables of names with dots, such as ``bootstrap.servers``."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def choose_brokers(servers: str | None, profile: Profile | None) -> tuple[str, Profile | None]:
    """Return the brokers and the profile that apply, given those of the command line."""
    if servers is not None:
        return servers, profile
    if profile is None:
        if servers := os.environ.get(SERVERS_VARIABLE, "").strip():
            return servers, None
        name = os.environ.get(PROFILE_VARIABLE, "").strip()
        profile = find(name, PROFILE_VARIABLE) if name else find_default()
    return (DEFAULT_SERVERS, None) if profile is None else (profile.bootstrap_servers, profile)
