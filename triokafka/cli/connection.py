"""Options that every command with a broker connection shares: bootstrap servers, timeout, client options.

The bootstrap servers come from the first of: ``--bootstrap-server``, a properties file or ``-X``, ``--profile``,
TRIOKAFKA_BOOTSTRAP_SERVERS, TRIOKAFKA_PROFILE, the default profile, localhost:9092.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from triokafka.cli import profiles
from triokafka.cli.client_properties import read_properties, setting
from triokafka.cli.completion_values import PROFILE_NAME, profile_names
from triokafka.cli.parameter_types import FiniteNumber, configured
from triokafka.cli.unreachable_brokers import hooked, keep

if TYPE_CHECKING:
    from triokafka import AdminClient

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_MS: Final = 5_000
"""Default of ``--timeout``: how long a command waits for brokers."""
_PROFILE: Final = "triokafka.profile"
_TIMEOUT: Final = "triokafka.timeout_ms"


def bootstrap_option(
    *, timeout_names: tuple[str, ...] = ("--timeout", "--broker-timeout"), without: str = ""
) -> Callable[[F], F]:
    """Add ``--bootstrap-server``, ``--profile`` and ``--timeout``.

    The command receives ``bootstrap``; `client_options` has the rest. A command whose ``--timeout`` has the meaning of
    Kafka's tool takes only ``--broker-timeout``. ``without`` is the help text of a command that also runs without
    brokers: it takes brokers only from its command line, and ``bootstrap`` is None without them.
    """
    servers_help = f"Bootstrap brokers.  [env: {profiles.SERVERS_VARIABLE}; default: {profiles.DEFAULT_SERVERS}]"

    def decorate(function: F) -> F:
        for option in (
            click.option(
                *timeout_names, expose_value=False, is_eager=True, type=FiniteNumber(min=1), callback=_read_timeout,
                metavar="MS", help=f"How long to wait for a broker's response.  [default: {TIMEOUT_MS}]",
            ),
            click.option(
                "-b", "--bootstrap-server", "bootstrap", is_eager=True,
                callback=_read_named_brokers if without else _read_bootstrap,
                metavar="HOST:PORT[,HOST:PORT…]",
                help=without or servers_help,
            ),
            profile_option,
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


def _read_profile(ctx: click.Context, parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        if ctx.resilient_parsing:
            ctx.meta[PROFILE_NAME] = name
        else:
            ctx.meta[_PROFILE] = profiles.find(name, "--profile")


# Declared last: click then processes it before --bootstrap-server when neither is given.
profile_option: Final = click.option(
    "--profile", expose_value=False, is_eager=True, callback=_read_profile, metavar="NAME",
    shell_complete=profile_names,
    help=f"Profile in {profiles.SHOWN_PATH} with brokers and options.  [env: {profiles.PROFILE_VARIABLE}]",
)  # fmt: skip
"""Add ``--profile``: brokers and options by name."""


def _read_timeout(ctx: click.Context, parameter: click.Parameter, timeout_ms: float | None) -> None:
    if timeout_ms is not None:
        ctx.meta[_TIMEOUT] = timeout_ms


def _read_bootstrap(ctx: click.Context, parameter: click.Parameter, servers: str | None) -> str | None:
    if ctx.resilient_parsing:
        return servers
    servers, profile = profiles.choose_brokers(servers, ctx.meta.get(_PROFILE))
    if profile is not None:
        ctx.meta[_PROFILE] = profile
    return servers


def _read_named_brokers(ctx: click.Context, parameter: click.Parameter, servers: str | None) -> str | None:
    return servers if servers is not None else given_profile(ctx).bootstrap_servers or None


def given_profile(ctx: click.Context) -> profiles.Profile:
    """Return the effective profile; an empty one if there is none."""
    profile = ctx.meta.get(_PROFILE)
    return profile if isinstance(profile, profiles.Profile) else profiles.Profile("", {})


def timeout_ms(ctx: click.Context) -> float:
    """Return how long to wait for a broker's response."""
    return float(ctx.meta.get(_TIMEOUT, TIMEOUT_MS))


def client_options(
    bootstrap: str, *sources: Mapping[str, Any], timeout: str = "default_api_timeout_ms"
) -> dict[str, Any]:
    """Return the client options: the command's own override those of each source, which override the profile's.

    ``timeout`` is the client option that ``--timeout`` sets.
    """
    ctx = click.get_current_context()
    options: dict[str, Any] = {timeout: TIMEOUT_MS, **given_profile(ctx).options}
    for source in sources:
        options.update(source)
    options.setdefault("bootstrap_servers", bootstrap)
    if ctx.get_parameter_source("bootstrap") is click.core.ParameterSource.COMMANDLINE:
        options["bootstrap_servers"] = bootstrap
    if _TIMEOUT in ctx.meta:
        options[timeout] = ctx.meta[_TIMEOUT]
    from triokafka.security.java_names import python_options

    return python_options(options)


class AdminConnection(NamedTuple):
    """The bootstrap servers, the options of the admin client, and the controllers to connect to instead of brokers."""

    bootstrap: str
    settings: Mapping[str, Any]
    controllers: str | None = None

    def run(self, work: Callable[[AdminClient], Awaitable[int | None]]) -> int:
        """Run ``work`` with an admin client, close the client, and return the exit status of ``work`` (None is 0).

        Raises:
            KafkaTimeoutError: no broker answered within ``--timeout``.
        """
        import trio

        import triokafka

        options = client_options(self.bootstrap, self.settings)
        named = "--bootstrap-server"
        if self.controllers is not None:
            options["bootstrap_controllers"] = self.controllers
        if "bootstrap_controllers" in options:
            source = click.get_current_context().get_parameter_source("bootstrap")
            if source is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError("Name brokers or controllers, not both.")
            named = "--bootstrap-controller"
            del options["bootstrap_servers"]  # of a profile, or the default
        limit = options["default_api_timeout_ms"]
        reaching = hooked(options, limit if isinstance(limit, int | float) else TIMEOUT_MS, names=named)
        keep(reaching)

        async def main() -> int:
            async with configured(triokafka.AdminClient, **options) as admin:
                return await reaching.watch(lambda: work(admin)) or 0

        # Otherwise Ctrl-C may leave a task that never started, and Python prints a warning about it.
        return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)


def admin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--command-config``, ``-X`` and `bootstrap_option`. The command receives ``connection``."""

    def read(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        file = ctx.params.pop("command_config", None)
        return {} if ctx.resilient_parsing else {**read_properties(file), **dict(setting("-X", text) for text in texts)}

    @functools.wraps(function)
    def command(*, bootstrap: str, settings: Mapping[str, Any], controllers: str | None = None, **options: Any) -> Any:
        return function(connection=AdminConnection(bootstrap, settings, controllers), **options)

    for option in (
        click.option("-X", "settings", multiple=True, callback=read, metavar="NAME=VALUE",
                     help="Set an option of the admin client."),
        click.option("--command-config", metavar="FILE", is_eager=True,
                     help="Properties file with options of the admin client."),
    ):  # fmt: skip
        command = option(command)
    return bootstrap_option()(command)


def admin_command(function: Callable[..., Awaitable[int | None]]) -> Callable[..., Any]:
    """Add the options of `admin_options`, and run the coroutine function with an admin client, its argument ``admin``.

    Its result is the exit status, as for `AdminConnection.run`. A command that asks the user before it connects takes
    `admin_options`.
    """

    @functools.wraps(function)
    def command(connection: AdminConnection, **options: Any) -> int:
        return connection.run(lambda admin: function(admin=admin, **options))

    return admin_options(command)


def configuration_options(client: str, *aliases: str) -> Callable[[F], F]:
    """Add ``--CLIENT-config`` and ``-X``, with further names of ``-X``: the options of one kind of client.

    The command receives ``config_file`` and ``more``.
    """

    def decorate(function: F) -> F:
        function = click.option(
            "-X", *aliases, "more", multiple=True, metavar="NAME=VALUE", help=f"Set any other option of the {client}."
        )(function)
        return click.option(
            f"--{client}-config", f"--{client}.config", "--command-config", "config_file", metavar="FILE",
            help=f"Properties file with options of the {client}.",
        )(function)  # fmt: skip

    return decorate


controller_option: Final = click.option(
    "--bootstrap-controller", "controllers", metavar="HOST:PORT[,HOST:PORT…]",
    help="Controllers to connect to instead of brokers.",
)  # fmt: skip
"""Add ``--bootstrap-controller`` to a command of the admin client that needs no broker (KIP-919)."""
