"""``triokafka topics``: list, create, describe and delete topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from triokafka import AdminClient

_bootstrap = click.option(
    "--bootstrap-server",
    "bootstrap",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker.",
)


@click.group("topics")
def command() -> None:
    """List, create, describe and delete topics."""


@command.command("list")
@_bootstrap
def list_topics(bootstrap: str) -> None:
    """Print the names of all topics that are not internal."""

    async def work(admin: AdminClient) -> None:
        for listing in sorted(await admin.list_topics(), key=lambda one: one.name):
            if not listing.is_internal:
                click.echo(listing.name)

    _with_admin(bootstrap, work)


@command.command("create")
@click.argument("topic")
@_bootstrap
@click.option("--partitions", type=int, default=-1, help="How many; the broker's default when left out.")
@click.option(
    "--replication-factor", type=int, default=-1, help="How many replicas; the broker's default when left out."
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A configuration of the topic.")
def create(topic: str, bootstrap: str, partitions: int, replication_factor: int, configs: tuple[str, ...]) -> None:
    """Create TOPIC."""
    from triokafka.client.admin import NewTopic

    settings = {}
    for config in configs:
        name, separator, value = config.partition("=")
        if not separator:
            raise click.UsageError(f"--config takes NAME=VALUE, not {config!r}.")
        settings[name] = value

    async def work(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, partitions, replication_factor, configs=settings)])

    _with_admin(bootstrap, work)


@command.command("describe")
@click.argument("topic")
@_bootstrap
def describe(topic: str, bootstrap: str) -> None:
    """Print TOPIC's partitions, with leader, replicas and in-sync replicas."""

    async def work(admin: AdminClient) -> None:
        description = (await admin.describe_topics([topic]))[topic]
        click.echo(f"{topic} {description.topic_id} {len(description.partitions)} partitions")
        for partition in description.partitions:
            leader = partition.leader.node_id if partition.leader is not None else "none"
            click.echo(
                f"  {partition.partition}: leader {leader}, epoch {partition.leader_epoch}, "
                f"replicas {list(partition.replicas)}, in sync {list(partition.isr)}"
            )

    _with_admin(bootstrap, work)


@command.command("delete")
@click.argument("topic")
@_bootstrap
def delete(topic: str, bootstrap: str) -> None:
    """Delete TOPIC and all its records."""

    async def work(admin: AdminClient) -> None:
        await admin.delete_topics([topic])

    _with_admin(bootstrap, work)


def _with_admin(bootstrap: str, work: Callable[[AdminClient], Awaitable[None]]) -> None:
    import trio

    import triokafka

    async def main() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap, default_api_timeout_ms=15_000) as admin:
            await work(admin)

    trio.run(main)
