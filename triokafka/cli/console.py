"""``triokafka console``: a web page for a cluster."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import click

from triokafka.cli.connection import AdminConnection, admin_options, client_options
from triokafka.cli.output import examples

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(
    "console",
    epilog=examples(
        "triokafka console --bootstrap-server localhost:9092",
        "triokafka console --listen 127.0.0.1:8080 --allow-changes",
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
@click.option("--certfile", metavar="FILE", help="Serve https with this certificate chain, a PEM file.")
@click.option("--keyfile", metavar="FILE", help="The certificate's private key.")
def command(
    connection: AdminConnection,
    listen: str,
    allow_changes: bool,
    login: bool,
    hosts: tuple[str, ...],
    registry: str | None,
    certfile: str | None,
    keyfile: str | None,
) -> int:
    """Serve a web page with topics and messages, groups with lag and rebalances, brokers, transactions, access.

    The page prints its address when it is ready, and ends with Ctrl-C or SIGTERM. On another address than loopback it
    needs --login, because everybody who reaches it would have the rights of its client.
    """
    host, separator, port = listen.rpartition(":")
    host = host.strip("[]")
    if not separator or not port.isdigit() or not host:
        raise click.UsageError(f"--listen takes HOST:PORT, not {listen!r}.")
    if host not in _LOOPBACK and not login:
        raise click.UsageError(f"--listen {listen} can be reached by others: give --login, or listen on 127.0.0.1.")
    try:
        import hypercorn.trio  # noqa: F401
        import quart_trio  # noqa: F401
    except ImportError as error:
        raise click.UsageError(f"The console needs {error.name}: pip install 'triokafka[console]'.") from None
    import trio

    options = client_options(connection.bootstrap, connection.settings)
    options.pop("default_api_timeout_ms", None)
    given = {"registry": registry, "allow_changes": allow_changes, "needs_login": login}
    trio.run(_serve, host, int(port), hosts, options, given, (certfile, keyfile))
    return 0


async def _serve(
    host: str,
    port: int,
    hosts: tuple[str, ...],
    client: dict[str, Any],
    given: dict[str, Any],
    tls: tuple[str | None, str | None],
) -> None:
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    from triokafka.console import ConsoleOptions, console_app
    from triokafka.world.system import RealWorld

    config = Config()
    shown = f"[{host}]" if ":" in host else host
    config.bind = [f"{shown}:{port}"]
    config.certfile, config.keyfile = tls
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 1.0
    names = {shown, "localhost", "127.0.0.1", "[::1]"} if host in _LOOPBACK else {shown}
    accepted = {*names, *hosts}
    stopped = trio.Event()

    async def stop_on_signal() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                stopped.set()
                return

    async with trio.open_nursery() as clients:
        options = ConsoleOptions(client=client, hosts=accepted, secure_cookie=tls[0] is not None, **given)
        app = console_app(options, RealWorld(), clients)
        clients.start_soon(stop_on_signal)
        async with trio.open_nursery() as serving:
            (address,) = await serving.start(partial(serve, app, config, shutdown_trigger=stopped.wait))
            bound = address.rstrip("/").rpartition(":")[2]
            accepted |= {f"{name}:{bound}" for name in names}
            click.echo(f"ready {'https' if tls[0] else 'http'}://{shown}:{bound}/")
        clients.cancel_scope.cancel()
