"""``triokafka topics create``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.client_properties import pairs
from triokafka.cli.connection import admin_command
from triokafka.cli.counting import counted
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import COUNT, Integer
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.replica_assignment import parse_assignment

if TYPE_CHECKING:
    from triokafka import AdminClient

_LARGE_MESSAGE: Final = 1_048_588


@click.command(
    "create",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics create orders --partitions 12 --config retention.ms=3600000",
        "triokafka topics create orders --if-not-exists",
    ),
)
@click.argument("topic")
@admin_command
@click.option("--partitions", type=COUNT, help="Number of partitions.  [default: the broker's]")
@click.option(
    "--replication-factor",
    type=Integer(min=1, max=2**15 - 1),
    help="Number of replicas.  [default: the broker's]",
)
@click.option(
    "--replica-assignment",
    metavar="B:B,B:B,…",
    help="The brokers of each partition, the preferred leader first: 0:1,1:2 for two partitions.",
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A configuration of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@click.option("--dry-run", is_flag=True, help="Validate on the broker without creating anything.")
async def create(
    admin: AdminClient,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create TOPIC."""
    from triokafka.client.admin import NewTopic
    from triokafka.errors import TopicAlreadyExistsError

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment and --partitions or --replication-factor exclude each other.")
    assignments = None if replica_assignment is None else dict(enumerate(parse_assignment(replica_assignment)))
    values = pairs("--config", configs)
    _warn(topic, values)
    new = NewTopic(topic, partitions or -1, replication_factor or -1, configs=values, assignments=assignments)
    try:
        made = (await admin.create_topics([new], validate_only=dry_run))[topic]
    except TopicAlreadyExistsError:
        if not if_not_exists:
            raise
        click.echo(f"Topic {topic} already exists.")
        return
    if dry_run:
        click.echo(f"Topic {topic} could be created with {counted(made.num_partitions, 'partition')}.")
    else:
        click.echo(f"Created topic {topic}.")


def _warn(topic: str, configs: Mapping[str, str]) -> None:
    if "." in topic or "_" in topic:
        click.echo("Note: metric names do not distinguish '.' and '_'; use only one of them in topic names.", err=True)
    size = configs.get("max.message.bytes", "")
    if size.isdigit() and int(size) > _LARGE_MESSAGE:
        click.echo(f"Note: max.message.bytes={size} may exceed the limits of producers and consumers.", err=True)
