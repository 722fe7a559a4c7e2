"""Client options as text: properties files such as that of ``--command-config``, and NAME=VALUE of ``-X``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from triokafka.cli.parameter_types import configured, text_of_file

_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "none": None, "null": None}


def pair(option: str, text: str) -> tuple[str, str]:
    """Split NAME=VALUE; the value may contain further equals signs."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}.")
    return name.strip(), value


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse several NAME=VALUE; the last one of a name wins."""
    return dict(pair(option, text) for text in texts)


def setting(option: str, text: str) -> tuple[str, Any]:
    """Parse a client option NAME=VALUE: Kafka's dotted name or ours, and the value as a Python object."""
    name, value = pair(option, text)
    snake = name.replace(".", "_").replace("-", "_")
    return snake, value_of(snake, value.strip())


def value_of(name: str, text: str) -> Any:
    """Convert the text of an option, named in snake_case; passwords and the like stay texts."""
    from triokafka.security.java_names import is_text

    return text if is_text(name) else parsed(text)


def parsed(text: str) -> Any:
    """Convert the text of a finite number, a boolean or null; return any other text unchanged."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return text


def read_properties(path: str | None) -> dict[str, Any]:
    """Read client options from a properties file; empty without a file."""
    if path is None:
        return {}
    texts = {name.replace(".", "_"): value.strip() for name, value in read_properties_text(path).items()}
    return {name: value_of(name, value) for name, value in texts.items()}


def read_properties_text(path: str) -> dict[str, str]:
    """Read names and values from a properties file."""
    from triokafka.broker_stub.config.properties import parse_properties
    from triokafka.security.config_providers import resolved

    def read(text: str) -> dict[str, str]:
        return resolved(parse_properties(text, source=path), parse_properties)

    return configured(read, text_of_file(path))


def pairs_or_empty(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse several NAME=VALUE; a name alone has an empty value."""
    return pairs(option, [text if "=" in text else f"{text}=" for text in texts])
