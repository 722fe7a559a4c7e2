"""``triokafka client-metrics``: subscriptions for the metrics that clients push (KIP-714)."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.connection import admin_command
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.structs import format_uuid

if TYPE_CHECKING:
    from triokafka import AdminClient

_KEYS: Final = ("interval.ms", "metrics", "match")


@click.group("client-metrics", cls=CommandGroup)
def command() -> None:
    """List, show, change and delete subscriptions for the metrics that clients push to brokers."""


@command.command("list", epilog=examples("triokafka client-metrics list", "triokafka client-metrics list --json"))
@admin_command
@output_options
async def list_names(admin: AdminClient, output: str) -> None:
    """Print the names of all subscriptions, one a line."""
    names = await _names(admin)
    if output == "json":
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@command.command(
    "describe",
    epilog=examples("triokafka client-metrics describe", "triokafka client-metrics describe --name latency"),
)
@click.option("--name", metavar="NAME", help="Show this subscription only.")
@admin_command
@output_options
async def describe(admin: AdminClient, output: str, name: str | None) -> None:
    """Print subscriptions: interval, metrics and matching clients. Exit status 0 also if there are none."""
    from triokafka.client.admin import ConfigResource

    names = [one for one in await _names(admin) if name in (None, one)]
    if name is not None and not names and output != "json":
        click.echo(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    resources = {one: ConfigResource.client_metrics(one) for one in names}
    found = await admin.describe_configs(list(resources.values())) if names else {}
    values = {
        one: {key: entry.value for key, entry in sorted(found[resource].items())} for one, resource in resources.items()
    }
    if output == "json":
        print_json(values)
        return
    for one, entries in values.items():
        click.echo(f"Client metrics configs for {one} are:")
        for key, value in entries.items():
            click.echo(f"  {key}={value}")


@command.command(
    "alter",
    epilog=examples(
        "triokafka client-metrics alter --name latency --metrics org.apache.kafka.producer.request --interval 5000",
        "triokafka client-metrics alter --generate-name --metrics '*' --match client_id=billing-.*",
        "triokafka client-metrics alter --name latency --interval ''",
    ),
)
@click.option("--name", metavar="NAME", help="The subscription; it is made if it does not exist.")
@click.option("--generate-name", is_flag=True, help="Make a subscription with a new name.")
@click.option("--interval", metavar="MS", help="Time between two pushes in ms, 100 to 3600000; '' for the default.")
@click.option("--metrics", metavar="NAME,…", help="Prefixes of metrics, or * for all; '' for none.")
@click.option(
    "--match",
    metavar="KEY=REGEX",
    multiple=True,
    help="Clients that push: client_id, client_instance_id, client_software_name, client_software_version,"
    " client_source_address or client_source_port with a regular expression; several must all match; '' for all.",
)
@admin_command
async def alter(
    admin: AdminClient,
    name: str | None,
    generate_name: bool,
    interval: str | None,
    metrics: str | None,
    match: tuple[str, ...],
) -> None:
    """Make or change a subscription. An empty value restores the default."""
    from triokafka.client.admin import ConfigResource

    if (name is None) != generate_name:
        raise click.UsageError("Give --name, or --generate-name.")
    if interval and not re.fullmatch(r"\d+", interval):
        raise click.BadParameter(f"{interval} is not a number of milliseconds", param_hint="--interval")
    given: dict[str, Any] = {"interval.ms": interval, "metrics": metrics, "match": ",".join(match) if match else None}
    changes = {key: value or None for key, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Give at least one of --interval, --metrics and --match.")
    chosen = format_uuid(uuid.uuid4()) if name is None else name
    await admin.incremental_alter_configs({ConfigResource.client_metrics(chosen): changes})
    click.echo(f"Altered client metrics config for {chosen}.")


@command.command("delete", epilog=examples("triokafka client-metrics delete --name latency"))
@click.option("--name", metavar="NAME", required=True, help="The subscription.")
@admin_command
async def delete(admin: AdminClient, name: str) -> None:
    """Delete a subscription. Clients stop to push its metrics when they next ask."""
    from triokafka.client.admin import ConfigResource

    await admin.reset_configs({ConfigResource.client_metrics(name): _KEYS})
    click.echo(f"Deleted client metrics config for {name}.")


async def _names(admin: AdminClient) -> list[str]:
    from triokafka.client.admin import ConfigResourceType

    found = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
    return sorted(resource.name for resource in found)
