"""``triokafka protocol``: print the fields of a protocol message, and its generated code."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from triokafka.cli.output import CommandGroup, examples

if TYPE_CHECKING:
    from triokafka.protocol.message import Field, Message, Struct


@click.group("protocol", cls=CommandGroup)
def command() -> None:
    """Print the fields and the code of a protocol message."""


@command.command(
    "show",
    epilog=examples(
        "triokafka protocol show FetchRequest",
        "triokafka protocol show FetchRequest --version 4 --code",
    ),
)
@click.argument("message")
@click.option("--version", "message_version", type=int, help="Version to show.  [default: the highest]")
@click.option("--code", is_flag=True, help="Also print the generated decoder and encoder.")
def show(message: str, message_version: int | None, code: bool) -> None:
    """Print the fields of MESSAGE (for example ProduceRequest) in one version."""
    from triokafka.protocol import compiler

    cls = _find(message)
    version = cls.versions.max if message_version is None else message_version
    if version not in cls.all_versions:
        raise click.UsageError(f"{message} has versions {cls.all_versions}, not {version}.")
    flexible = ", flexible" if version in cls.flexible else ""
    click.echo(f"{message} version {version} of {cls.all_versions}{flexible}")
    click.echo(f"{(cls.__doc__ or '').strip()}\n")
    _print_fields(cls, version, "  ")
    if code:
        click.echo(f"\n{compiler.source_of(cls, version)}")


def _find(name: str) -> type[Message]:
    from triokafka.protocol import api

    known: dict[str, int] = {}
    for key, api_name in api.API_NAMES.items():
        known[f"{api_name}Request"] = known[f"{api_name}Response"] = key
    key_of = known.get(name)
    if key_of is None:
        near = [f"{name}Request", f"{name}Response"]  # an API name matches its request and its response
        if near[0] not in known:
            near = difflib.get_close_matches(name, known, n=1)
        raise click.UsageError(f"Unknown message {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))
    return api.request_type(key_of) if name.endswith("Request") else api.response_type(key_of)


def _print_fields(struct: type[Struct], version: int, indent: str) -> None:
    for field in struct.__fields__:
        if version not in field.versions:
            continue
        click.echo(f"{indent}{field.name}: {_type_of(field, version)}")
        click.echo(f"{indent}    {field.doc}" + (f" Errors: {', '.join(field.errors)}." if field.errors else ""))
        if field.struct is not None:
            _print_fields(field.struct, version, indent + "    ")


def _type_of(field: Field, version: int) -> str:
    inner = field.type.element if field.is_array else field.type
    name = field.struct.__name__ if field.struct is not None else type(inner).__name__.removesuffix("Type")
    if name == "Number":
        name = {
            "b": "int8",
            "h": "int16",
            "H": "uint16",
            "l": "int32",
            "L": "uint32",
            "q": "int64",
            "d": "float64",
        }.get(inner.fmtstr[1:], "boolean")
    text = f"[{name}]" if field.is_array else name
    if version in field.nullable:
        text += " or null"
    if field.tag is not None:
        text += f", tag {field.tag}"
    return text
