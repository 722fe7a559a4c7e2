"""``triokafka topics delete``: delete topics and all their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.output import confirm, examples
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.topic_selection import ChosenTopics

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "delete",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics delete orders",
        'triokafka topics delete "test-.*" --dry-run',
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]", shell_complete=topic_names)
@admin_command
@click.option("--topic-id", metavar="ID", help="Topic id, instead of TOPICS.")
@click.option("--if-exists", is_flag=True, help="Succeed if nothing matches.")
@click.option("--dry-run", is_flag=True, help="Print the topics that would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation, even for a pattern.")
async def delete(
    admin: AdminClient, topics: str | None, topic_id: str | None, if_exists: bool, dry_run: bool, yes: bool
) -> None:
    """Delete topics and all their records. A pattern needs --yes or a confirmation."""
    if (topics is None) == (topic_id is None):
        raise click.UsageError("No topics: give TOPICS or --topic-id.")
    chosen = ChosenTopics.of(topics, topic_id)
    found = await chosen.resolve(admin, if_exists=if_exists)
    names = [listing.name for listing in found]
    if not names:
        return
    if dry_run:
        for name in names:
            click.echo(f"Would delete topic {name}.")
        return
    if not yes and topics is not None and not set(topics.split(",")) <= {*names, ""}:
        click.echo(f"{topics} matches: {', '.join(names)}", err=True)
        confirm("Delete them with all their records?")
    await admin.delete_topics([listing.topic_id if chosen.wanted_id is not None else listing.name for listing in found])
    for name in names:
        click.echo(f"Deleted topic {name}.")
