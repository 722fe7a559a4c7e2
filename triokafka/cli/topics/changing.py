"""``triokafka topics create`` and ``alter``: create topics, and add partitions to existing topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import AdminConnection, admin_options, pairs
from triokafka.cli.output import examples
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.chosen import listings, nothing
from triokafka.cli.values import COUNT, Integer
from triokafka.topic_names import GROUP_METADATA_TOPIC

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
@admin_options
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
def create(
    topic: str,
    connection: AdminConnection,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create TOPIC."""
    from triokafka.client.admin import NewTopic
    from triokafka.errors import TopicAlreadyExistsError

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment and --partitions or --replication-factor exclude each other.")
    assignments = None if replica_assignment is None else dict(enumerate(_assignment(replica_assignment)))
    values = pairs("--config", configs)
    _warn(topic, values)

    async def work(admin: AdminClient) -> None:
        new = NewTopic(topic, partitions or -1, replication_factor or -1, configs=values, assignments=assignments)
        try:
            made = (await admin.create_topics([new], validate_only=dry_run))[topic]
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            click.echo(f"Topic {topic} already exists.")
            return
        if dry_run:
            click.echo(f"Topic {topic} could be created with {_plural(made.num_partitions, 'partition')}.")
        else:
            click.echo(f"Created topic {topic}.")

    return connection.run(work)


@click.command(
    "alter",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics alter orders --partitions 24",
    ),
)
@click.argument("topics", metavar="TOPICS", shell_complete=topic_names)
@admin_options
@click.option("--partitions", type=COUNT, required=True, help="The new number of partitions.")
@click.option(
    "--replica-assignment",
    metavar="B:B,B:B,…",
    help="The brokers of all partitions; entries of existing partitions are ignored.",
)
@click.option("--if-exists", is_flag=True, help="Succeed if nothing matches.")
@click.option("--dry-run", is_flag=True, help="Validate on the broker without changing anything.")
@click.option("--config", "configs", multiple=True, hidden=True)
@click.option("--delete-config", "deleted", multiple=True, hidden=True)
def alter(
    topics: str,
    connection: AdminConnection,
    partitions: int,
    replica_assignment: str | None,
    if_exists: bool,
    dry_run: bool,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> int:
    """Add partitions to topics. Their number can only increase."""
    from triokafka.client.admin import NewPartitions

    if configs or deleted:
        raise click.UsageError("To change a topic's configuration, run: triokafka configs alter --topic NAME.")
    assignment = None if replica_assignment is None else _assignment(replica_assignment)
    if assignment is not None and len(assignment) != partitions:
        raise click.UsageError(f"--replica-assignment must name the brokers of all {partitions} partitions.")

    async def work(admin: AdminClient) -> None:
        found = [listing.name for listing in await listings(admin, topics)]
        if not found and not if_exists:
            raise nothing(topics)
        if GROUP_METADATA_TOPIC in found:
            raise click.UsageError(
                f"{GROUP_METADATA_TOPIC} cannot grow: its number of partitions determines the coordinators of groups."
            )
        described = await admin.describe_topics(found)
        wanted = {}
        for name in found:
            now = len(described[name].partitions)
            new = None if assignment is None else assignment[now:]
            wanted[name] = NewPartitions(partitions, assignments=new)
        if found:
            click.echo("Note: with more partitions, a key may map to another partition than before.", err=True)
        await admin.create_partitions(wanted, validate_only=dry_run)
        for name in found:
            verb = "could have" if dry_run else "has"
            click.echo(f"Topic {name} {verb} {_plural(partitions, 'partition')}.")

    return connection.run(work)


def _assignment(text: str) -> list[list[int]]:
    """Parse ``0:1,1:2``: partitions separated by commas, their brokers by colons."""
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment takes broker ids such as 0:1,1:2, not {text!r}.") from None
    if any(not 0 <= broker < 2**31 for brokers in found for broker in brokers):
        raise click.UsageError(f"--replica-assignment: broker ids range from 0 to {2**31 - 1:,}.")
    if any(len(set(brokers)) < len(brokers) for brokers in found):
        raise click.UsageError("--replica-assignment: a partition names the same broker twice.")
    if len({len(brokers) for brokers in found}) > 1:
        raise click.UsageError("--replica-assignment: all partitions must have the same number of replicas.")
    return found


def _warn(topic: str, configs: Mapping[str, str]) -> None:
    if "." in topic or "_" in topic:
        click.echo("Note: metric names do not distinguish '.' and '_'; use only one of them in topic names.", err=True)
    size = configs.get("max.message.bytes", "")
    if size.isdigit() and int(size) > _LARGE_MESSAGE:
        click.echo(f"Note: max.message.bytes={size} may exceed the limits of producers and consumers.", err=True)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
