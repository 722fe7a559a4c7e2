"""``triokafka topics list``: list topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.topics.topic_selection import listings
from triokafka.structs import format_uuid

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "list",
    cls=TopicCommand,
    epilog=examples(
        "triokafka topics list",
        'triokafka topics list "orders.*,payments" --json',
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]", shell_complete=topic_names)
@admin_command
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
@output_options
async def list_topics(admin: AdminClient, topics: str | None, exclude_internal: bool, output: str) -> None:
    """Print the names of all topics, or of those that match TOPICS."""
    found = await listings(admin, topics, exclude_internal=exclude_internal)
    if output == "json":
        rows = [{"name": t.name, "id": format_uuid(t.topic_id), "internal": t.is_internal} for t in found]
        print_json(rows)
    else:
        for listing in found:
            click.echo(listing.name)
