"""Options for the two clusters of a flow: addresses, properties files, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from triokafka.cli.client_properties import read_properties
from triokafka.cli.connection import TIMEOUT_MS
from triokafka.cli.parameter_types import FiniteNumber
from triokafka.cli.unreachable_brokers import Reaching, hooked
from triokafka.security.java_names import python_options

F = TypeVar("F", bound=Callable[..., Any])


def side_options(name: str) -> Callable[[F], F]:
    """Add ``--NAME``, ``--NAME-config`` and ``--NAME-alias``; the command receives them by these names."""

    def add(function: F) -> F:
        for option in (
            click.option(
                f"--{name}-alias",
                default=name,
                show_default=True,
                metavar="NAME",
                help=f"Name of the {name} cluster, used in names of topics.",
            ),
            click.option(f"--{name}-config", metavar="FILE", help=f"Properties file for clients of the {name}."),
            click.option(f"--{name}", metavar="HOST:PORT[,HOST:PORT…]", help=f"Bootstrap brokers of the {name}."),
        ):
            function = option(function)
        return function

    return add


def client_options(name: str, servers: str | None, file: str | None) -> dict[str, Any]:
    """Return the options of clients of one cluster."""
    options = python_options(read_properties(file))
    if servers is not None:
        options["bootstrap_servers"] = servers
    if "bootstrap_servers" not in options:
        raise click.UsageError(f"Give the brokers of the {name}: --{name} HOST:PORT, or --{name}-config FILE.")
    return options


def from_kafka_names(given: Mapping[str, str]) -> dict[str, Any]:
    """Convert client options with Kafka's names and text values."""
    from triokafka.cli.client_properties import setting

    return python_options(dict(setting("", f"{name}={value}") for name, value in given.items()))


def reached(name: str, options: dict[str, Any], timeout_ms: float | None) -> Reaching:
    """Add the time limit and the hooks of a command that asks a cluster and ends."""
    if timeout_ms is not None or "default_api_timeout_ms" not in options:
        options["default_api_timeout_ms"] = TIMEOUT_MS if timeout_ms is None else timeout_ms
    return hooked(options, options["default_api_timeout_ms"], names=f"--{name}", limits="--timeout")


timeout_option: Final = click.option(
    "--timeout", "timeout_ms", type=FiniteNumber(min=1), metavar="MS",
    help=f"How long to wait for a broker's response.  [default: {TIMEOUT_MS}]",
)  # fmt: skip
"""Add ``--timeout``; the command receives ``timeout_ms``."""
