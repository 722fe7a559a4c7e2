"""``triokafka nodes``: the brokers of a cluster, their registration, and the cluster's id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.connection import AdminConnection, admin_command, admin_options, controller_option
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import PARTITION

if TYPE_CHECKING:
    from triokafka import AdminClient

_TITLES: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


@click.group("nodes", cls=CommandGroup)
def command() -> None:
    """List the brokers of a cluster, remove one that will not return, and print the cluster's id."""


@command.command(
    "list",
    epilog=examples("triokafka nodes list", "triokafka nodes list --include-fenced-brokers --json"),
)
@controller_option
@admin_options
@click.option(
    "--include-fenced-brokers", "fenced", is_flag=True,
    help="Also list brokers that are registered and not in service (brokers of Kafka 4.0 or later know them).",
)  # fmt: skip
@output_options
def list_nodes(connection: AdminConnection, fenced: bool, output: str) -> int:
    """Print the address, the rack and the state of each broker; or the address of each controller."""
    kind = "broker" if connection.controllers is None else "controller"

    async def work(admin: AdminClient) -> None:
        found = await admin.describe_cluster(include_fenced_brokers=fenced)
        documents = []
        for node in sorted(found.nodes, key=lambda node: node.node_id):
            document = {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            if kind == "broker":  # a controller has no such state
                document["state"] = "fenced" if node.node_id in found.fenced else "unfenced"
            documents.append({**document, "endpoint_type": kind})
        if output == "json":
            print_json(documents)
            return
        titles = tuple(title for title in _TITLES if kind == "broker" or title != "STATE")
        rows = [["null" if value is None else str(value) for value in document.values()] for document in documents]
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        for row in (titles, *rows):
            click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    return connection.run(work)


@command.command("unregister", epilog=examples("triokafka nodes unregister --id 4"))
@click.option("--id", "number", required=True, type=PARTITION, metavar="ID", help="The broker's id.")
@controller_option
@admin_command
async def unregister(admin: AdminClient, number: int) -> None:
    """Remove the registration of a broker that will not return.

    Move its replicas to other brokers first (triokafka reassign). A broker that still runs registers again when it
    starts the next time.
    """
    await admin.unregister_broker(number)
    click.echo(f"Broker {number} is no longer registered.")


@command.command("cluster-id", epilog=examples("triokafka nodes cluster-id"))
@controller_option
@admin_command
@output_options
async def cluster_id(admin: AdminClient, output: str) -> None:
    """Print the cluster's id."""
    found = (await admin.describe_cluster()).cluster_id
    if output == "json":
        print_json({"cluster_id": found})
    else:
        click.echo(f"Cluster ID: {found}")
