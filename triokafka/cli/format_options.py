"""The options of ``triokafka consume`` and ``triokafka produce`` for formats and the schema registry."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from triokafka.cli.parameter_types import text_of_file
from triokafka.cli.record_codecs import FORMAT_HELP, RegistryOptions

F = TypeVar("F", bound=Callable[..., Any])

REGISTRY_VARIABLE: Final = "TRIOKAFKA_SCHEMA_REGISTRY"
PASSWORD_VARIABLE: Final = "TRIOKAFKA_SCHEMA_REGISTRY_PASSWORD"
_NAMES: Final = ("key_subject", "value_subject", "key_schema", "value_schema", "message")


def format_options(*, writes: bool) -> Callable[[F], F]:
    """Add ``--format``, ``--key-format``, ``--value-format`` and the schema registry's options.

    The command receives ``text_format``, ``key_format``, ``value_format`` and the arguments of `registry_options`.
    """
    verb = "Read" if writes else "Print"
    options = [
        click.option(
            "-f", "--format", "text_format", metavar="TEXT",
            help=rf"{verb} each record as kcat's format says: %t topic, %p partition, %o offset, %k key, %s value, "
            r"%T timestamp, %h headers, %K %S lengths (-1: null), \n \t \xNN.",
        ),
        click.option("--key-format", metavar="FORMAT", help=f"Format of keys: {FORMAT_HELP}"),
        click.option("--value-format", metavar="FORMAT", help=f"Format of values: {FORMAT_HELP}"),
        click.option(
            "--schema-registry", envvar=REGISTRY_VARIABLE, metavar="URL",
            help=f"Schema registry of keys and values.  [env: {REGISTRY_VARIABLE}]",
        ),
        click.option(
            "--schema-registry-user", "registry_user", metavar="NAME",
            help=f"User of the schema registry; its password is in {PASSWORD_VARIABLE}.",
        ),
    ]  # fmt: skip
    if writes:
        options += [
            click.option("--key-schema", metavar="FILE", help="Register this schema for keys, instead of the newest."),
            click.option("--value-schema", metavar="FILE", help="Register this schema for values."),
            click.option("--key-subject", metavar="NAME", help="Subject of keys.  [default: TOPIC-key]"),
            click.option("--value-subject", metavar="NAME", help="Subject of values.  [default: TOPIC-value]"),
            click.option(
                "--protobuf-message", "message", metavar="NAME",
                help="Full name of the values' message.  [default: the first of the schema]",
            ),
        ]  # fmt: skip

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def registry_options(options: dict[str, Any]) -> RegistryOptions:
    """Take the schema registry's options out of a command's options, and read the schema files."""
    named = {name: options.pop(name, None) for name in _NAMES}
    for name in ("key_schema", "value_schema"):
        if named[name] is not None:
            named[name] = text_of_file(named[name], f"--{name.replace('_', '-')}")
    return RegistryOptions(
        options.pop("schema_registry"), options.pop("registry_user"), os.environ.get(PASSWORD_VARIABLE), **named
    )
