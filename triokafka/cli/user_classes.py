"""Classes that the user names on the command line, and the properties that they receive."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click


def made(option: str, kind: Callable[[Mapping[str, str]], Any], properties: Mapping[str, str]) -> Any:
    """Call a user's class with the properties; a failure is a usage error."""
    try:
        found = kind(properties)
    except click.ClickException:
        raise
    except Exception as error:
        raise click.UsageError(f"{option}: creating {kind!r} failed: {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise click.UsageError(f"{option}: {kind!r} returned an object that is not callable.")
    return found


def imported(option: str, name: str) -> Any:
    """Import the object named by ``module:name``."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a module can raise anything
        raise click.UsageError(f"{option}: {name!r} cannot be imported: {error}.") from None
    return found


def check_properties(properties: Mapping[str, str], known: frozenset[str]) -> None:
    """Reject unknown properties, and suggest the nearest name."""
    import difflib

    for name in properties:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known)) or 'none'}."
            raise click.UsageError(f"--property: unknown property {name!r}; {hint}")


def truth(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse a boolean property; without a value, false."""
    text = properties.get(name, str(default)).strip().lower()
    if text not in ("true", "false", ""):
        raise click.UsageError(f"--property {name} takes true or false, not {text!r}.")
    return text == "true"


def text_of(properties: Mapping[str, str], name: str, default: str) -> bytes:
    r"""Parse a text property, with the escapes ``\t``, ``\n``, ``\r``, ``\0`` and ``\\``."""
    text = properties.get(name, default)
    parts = text.split("\\\\")
    for escape, character in (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r"), ("\\0", "\0")):
        parts = [part.replace(escape, character) for part in parts]
    return "\\".join(parts).encode()
