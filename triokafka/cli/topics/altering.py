"""``triokafka topics alter``: add partitions to topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.counting import counted
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import COUNT
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.replica_assignment import parse_assignment
from triokafka.cli.topics.topic_selection import listings, nothing
from triokafka.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "alter",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics alter orders --partitions 24",
    ),
)
@click.argument("topics", metavar="TOPICS", shell_complete=topic_names)
@admin_command
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
async def alter(
    admin: AdminClient,
    topics: str,
    partitions: int,
    replica_assignment: str | None,
    if_exists: bool,
    dry_run: bool,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Add partitions to topics. Their number can only increase."""
    from triokafka.client.admin import NewPartitions

    if configs or deleted:
        raise click.UsageError("To change a topic's configuration, run: triokafka configs alter --topic NAME.")
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and len(assignment) != partitions:
        raise click.UsageError(f"--replica-assignment must name the brokers of all {partitions} partitions.")
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
    await admin.create_partitions(wanted, validate_only=dry_run)
    if found:
        click.echo("Note: with more partitions, a key may map to another partition than before.", err=True)
    for name in found:
        verb = "could have" if dry_run else "has"
        click.echo(f"Topic {name} {verb} {counted(partitions, 'partition')}.")
