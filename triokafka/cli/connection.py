"""What every command that talks to a broker shares: where the brokers are, how long to wait, options of the client.

The brokers are those of ``--bootstrap-server``; else of a properties file or ``-X``, of ``--profile``, of
TRIOKAFKA_BOOTSTRAP_SERVERS, of TRIOKAFKA_PROFILE, of the default profile; else localhost:9092.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from triokafka.cli import profiles
from triokafka.cli.completing import PROFILE_NAME, profile_names
from triokafka.cli.reaching import hooked
from triokafka.cli.values import Number, configured, text_of_file

if TYPE_CHECKING:
    from triokafka import AdminClient

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_MS: Final = 5_000
"""How long a command waits for brokers, unless ``--timeout`` says otherwise."""
_PROFILE: Final = "triokafka.profile"
_TIMEOUT: Final = "triokafka.timeout_ms"
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "none": None, "null": None}


def bootstrap_option(
    *, timeout_names: tuple[str, ...] = ("--timeout", "--broker-timeout"), without: str = ""
) -> Callable[[F], F]:
    """Add ``--bootstrap-server``, ``--profile`` and ``--timeout``.

    The command gets ``bootstrap``; `client_options` has the rest. A command in which ``--timeout`` has the meaning of
    Kafka's tool takes ``--broker-timeout`` alone. ``without`` is the help of a command that does something else without
    brokers: only its own command line names them, else ``bootstrap`` is None.
    """
    servers_help = f"Brokers to ask first.  [env: {profiles.SERVERS_VARIABLE}; default: {profiles.DEFAULT_SERVERS}]"

    def decorate(function: F) -> F:
        for option in (
            click.option(
                *timeout_names, expose_value=False, is_eager=True, type=Number(min=1), callback=_read_timeout,
                metavar="MS", help=f"How long to wait for an answer of a broker.  [default: {TIMEOUT_MS}]",
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


# Declared last, so that click reads it before --bootstrap-server where neither is given.
profile_option: Final = click.option(
    "--profile", expose_value=False, is_eager=True, callback=_read_profile, metavar="NAME",
    shell_complete=profile_names,
    help=f"Brokers and options of that name in {profiles.SHOWN_PATH}.  [env: {profiles.PROFILE_VARIABLE}]",
)  # fmt: skip
"""``--profile``: brokers and options by name."""


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
    """Return the profile that applies; an empty one when none does."""
    profile = ctx.meta.get(_PROFILE)
    return profile if isinstance(profile, profiles.Profile) else profiles.Profile("", {})


def timeout_ms(ctx: click.Context) -> float:
    """Return how long to wait for an answer of a broker."""
    return float(ctx.meta.get(_TIMEOUT, TIMEOUT_MS))


def client_options(
    bootstrap: str, *sources: Mapping[str, Any], timeout: str = "default_api_timeout_ms"
) -> dict[str, Any]:
    """Return the options of a client: the profile's, over them those of each source, over them the command's own.

    ``timeout`` is the option of the client that ``--timeout`` sets.
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
    return options


class AdminConnection(NamedTuple):
    """Where the brokers are, and the options of the admin client."""

    bootstrap: str
    settings: Mapping[str, Any]

    def run(self, work: Callable[[AdminClient], Awaitable[int | None]]) -> int:
        """Run ``work`` with an admin client, which is closed in any case; return its exit status (None is 0).

        Raises:
            KafkaTimeoutError: no broker answered within ``--timeout``.
        """
        import trio

        import triokafka

        options = client_options(self.bootstrap, self.settings)
        limit = options["default_api_timeout_ms"]
        reaching = hooked(options, limit if isinstance(limit, int | float) else TIMEOUT_MS)

        async def main() -> int:
            async with configured(triokafka.AdminClient, **options) as admin:
                return await reaching.watch(lambda: work(admin)) or 0

        # Elsewhere Ctrl-C may leave a task that never began, which Python reports.
        return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)


def admin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--command-config``, ``-X`` and `bootstrap_option`. The command gets ``connection``."""

    def read(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
        file = ctx.params.pop("command_config", None)
        return {} if ctx.resilient_parsing else {**read_properties(file), **dict(setting("-X", text) for text in texts)}

    @functools.wraps(function)
    def command(*, bootstrap: str, settings: Mapping[str, Any], **options: Any) -> Any:
        return function(connection=AdminConnection(bootstrap, settings), **options)

    for option in (
        click.option("-X", "settings", multiple=True, callback=read, metavar="NAME=VALUE",
                     help="An option of the admin client."),
        click.option("--command-config", metavar="FILE", is_eager=True,
                     help="A properties file with options of the admin client."),
    ):  # fmt: skip
        command = option(command)
    return bootstrap_option()(command)


def pair(option: str, text: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE; the value may contain further equals signs."""
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
