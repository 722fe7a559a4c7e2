"""What every command that talks to a broker shares: how it is told where, and with which options of the client."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from triokafka.cli.values import configured, text_of_file

if TYPE_CHECKING:
    from triokafka import AdminClient

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_MS: Final = 15_000
"""How long a command waits for brokers unless it is told otherwise."""
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "none": None, "null": None}


def bootstrap_option(function: F) -> F:
    """``--bootstrap-server``, given to the command as ``bootstrap``."""
    return click.option(
        "--bootstrap-server",
        "bootstrap",
        default="localhost:9092",
        show_default=True,
        metavar="HOST:PORT[,HOST:PORT…]",
        help="Brokers to ask first.",
    )(function)


def admin_options(function: F) -> F:
    """``--bootstrap-server``, ``--command-config`` and ``-X``: the command gets ``bootstrap`` and ``settings``."""

    def read(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        return {
            **read_properties(ctx.params.pop("command_config", None)),
            **dict(setting("-X", text) for text in texts),
        }

    function = click.option(
        "-X", "settings", multiple=True, callback=read, metavar="NAME=VALUE", help="An option of the admin client."
    )(function)
    function = click.option(
        "--command-config", metavar="FILE", is_eager=True, help="A properties file with options of the admin client."
    )(function)
    return bootstrap_option(function)


def pair(option: str, text: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE; the value may contain further equals signs (CL-03)."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}.")
    return name.strip(), value


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Several NAME=VALUE; of a name that is there twice, the last one."""
    return dict(pair(option, text) for text in texts)


def setting(option: str, text: str) -> tuple[str, Any]:
    """An option of a client as NAME=VALUE: Kafka's dotted name or ours, and the value as a Python object."""
    name, value = pair(option, text)
    return name.replace(".", "_").replace("-", "_"), parsed(value.strip())


def parsed(text: str) -> Any:
    """A finite number, a truth value or nothing, where the text is one; else the text."""
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
    """The options of a client in a properties file; none without a file."""
    if path is None:
        return {}
    return {name.replace(".", "_"): parsed(value.strip()) for name, value in read_properties_text(path).items()}


def read_properties_text(path: str) -> dict[str, str]:
    """Names and values in a properties file."""
    from triokafka.broker_stub.config.properties import parse_properties

    return configured(parse_properties, text_of_file(path), source=path)


def with_admin(
    bootstrap: str, settings: Mapping[str, Any], work: Callable[[AdminClient], Awaitable[int | None]]
) -> int:
    """Run ``work`` with an admin client, closed in any case; returns the exit status that it gives (None is 0)."""
    import trio

    import triokafka

    async def main() -> int:
        options = {"default_api_timeout_ms": TIMEOUT_MS, "bootstrap_servers": bootstrap, **settings}
        async with configured(triokafka.AdminClient, **options) as admin:
            return await work(admin) or 0

    # Elsewhere Ctrl-C may leave a task that was never begun, of which Python warns.
    return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)
