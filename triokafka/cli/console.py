"""``triokafka console``: a web page for a cluster."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.broker_options import WrongUse, address_of, property_of
from triokafka.cli.connection import AdminConnection, admin_options, client_options
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import configured

if TYPE_CHECKING:
    from triokafka.console.serving import ConsoleAddress
    from triokafka.world import World


@click.command(
    "console",
    epilog=examples(
        "triokafka console --bootstrap-server localhost:9092",
        "triokafka console --listen 127.0.0.1:8080 --allow-changes --metrics 127.0.0.1:9308",
        "triokafka console --login --listen 127.0.0.1:8443 --schema-registry http://localhost:8081",
    ),
)
@admin_options
@click.option("--listen", default="127.0.0.1:8089", show_default=True, metavar="HOST:PORT", help="Address of the page.")
@click.option("--allow-changes", is_flag=True, help="Let the page create, change and delete; otherwise it only reads.")
@click.option("--login", is_flag=True, help="Ask for a user of the cluster (SASL); the page may do what the user may.")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST[:PORT]",
    help="Name under which browsers reach the page. Needed unless it is the address of --listen.",
)  # fmt: skip
@click.option("--schema-registry", "registry", metavar="URL", help="Decode Avro, Protobuf and JSON Schema with it.")
@click.option(
    "--metrics", multiple=True, metavar="[NAME=]HOST:PORT",
    help="Chart the metrics that a broker exports here: triokafka broker --metrics, or a JMX exporter. Repeatable.",
)  # fmt: skip
@click.option(
    "--control", metavar="HOST:PORT",
    help="For tests: show the fault switches of triokafka broker --control at this address.",
)  # fmt: skip
@click.option("--control-token-file", metavar="FILE", help="Its token; or set TRIOKAFKA_CONTROL_TOKEN.")
@click.option("--certfile", metavar="FILE", help="Serve https with this certificate chain, a PEM file.")
@click.option("--keyfile", metavar="FILE", help="The certificate's private key.")
@click.option(
    "--set", "limits", multiple=True, metavar="NAME=VALUE",
    help="Set one limit, such as search.max.records=1000000; the documentation lists them.",
)  # fmt: skip
def command(
    connection: AdminConnection,
    listen: str,
    allow_changes: bool,
    login: bool,
    hosts: tuple[str, ...],
    registry: str | None,
    metrics: tuple[str, ...],
    control: str | None,
    control_token_file: str | None,
    certfile: str | None,
    keyfile: str | None,
    limits: tuple[str, ...],
) -> int:
    """Serve a web page with topics and messages, groups with lag and rebalances, brokers, metrics, access.

    The page prints its address when it is ready, and ends with Ctrl-C or SIGTERM. On another address than loopback it
    needs --login, because every visitor would have the permissions of its client.
    """
    from triokafka.cli.broker_console import LOOPBACK, import_console

    try:
        host, port = _page_address("--listen", listen)
        _needed(
            login or host in LOOPBACK,
            f"--listen {listen} can be reached by others: give --login, or listen on 127.0.0.1.",
        )
        _needed(control is not None or control_token_file is None, "--control-token-file needs --control HOST:PORT.")
        import trio

        from triokafka import AdminClient
        from triokafka.cli.control_token import control_token

        import_console()
        from triokafka.console.fault_switches import ControlledFaults
        from triokafka.console.http_get import HttpEndpoint
        from triokafka.console.limits import ConsoleLimits
        from triokafka.console.scraped_metrics import from_endpoint
        from triokafka.console.serving import ConsoleAddress
        from triokafka.world.system import RealWorld

        world = RealWorld()
        world.raise_file_limit()
        given: dict[str, Any] = {"registry": registry, "allow_changes": allow_changes, "needs_login": login}
        sources = {}
        for one in metrics:
            name, _, address = one.rpartition("=")
            sources[name or address] = from_endpoint(HttpEndpoint(world, *address_of("--metrics", address)))
        given["metrics"] = sources
        if control is not None:
            token = control_token(control_token_file, world)
            given["faults"] = ControlledFaults(HttpEndpoint(world, *address_of("--control", control), token))
        try:
            given["limits"] = ConsoleLimits.of(dict(property_of(one) for one in limits))
        except ValueError as error:
            raise WrongUse(f"--set: {error}.") from None
    except WrongUse as error:
        raise click.UsageError(str(error)) from None
    options = client_options(connection.bootstrap, connection.settings)
    options.pop("default_api_timeout_ms", None)
    if not login:  # otherwise the client has no user yet
        configured(AdminClient, **options)
    trio.run(_serve, ConsoleAddress(host, port, certfile, keyfile), {"client": options, **given}, set(hosts), world)
    return 0


def _needed(holds: bool, otherwise: str) -> None:
    """Raise `WrongUse` unless a condition holds."""
    if not holds:
        raise WrongUse(otherwise)


def _page_address(option: str, text: str) -> tuple[str, int]:
    host, port = address_of(option, text)
    host = host.strip("[]")
    _needed(bool(host), f"{option} takes HOST:PORT, not {text!r}.")
    return host, port


async def _serve(address: ConsoleAddress, given: dict[str, Any], hosts: set[str], world: World) -> None:
    """Serve a console until a signal, and print "ready URL". Raises `ConfigurationError`."""
    import trio

    from triokafka.cli.broker_console import start_console
    from triokafka.console import ConsoleOptions

    options = ConsoleOptions(hosts=hosts, secure_cookie=address.certfile is not None, **given)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def signalled() -> None:
            async for _ in signals:
                return

        async with trio.open_nursery() as nursery:
            url = await start_console(nursery, "--listen", address, options, hosts, world, signalled)
            click.echo(f"ready {url}")
