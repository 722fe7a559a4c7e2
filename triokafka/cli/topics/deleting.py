"""``triokafka topics delete``: topics go, with all their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.completing import topic_names
from triokafka.cli.connection import admin_options, with_admin
from triokafka.cli.output import confirm, examples
from triokafka.cli.topics.chosen import listings, nothing, parse_id

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "delete",
    epilog=examples(
        "triokafka topics delete orders",
        'triokafka topics delete "test-.*" --dry-run',
    ),
)
@click.argument("topics", required=False, metavar="[TOPICS]", shell_complete=topic_names)
@admin_options
@click.option("--topic-id", metavar="ID", help="The topic with this id, instead of TOPICS.")
@click.option("--if-exists", is_flag=True, help="Succeed when nothing matches.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, also when TOPICS is a pattern.")
def delete(
    topics: str | None,
    bootstrap: str,
    settings: Mapping[str, Any],
    topic_id: str | None,
    if_exists: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete topics and all their records. A pattern that is no topic's name needs --yes, or an answer."""
    if (topics is None) == (topic_id is None):
        raise click.UsageError("Say which: TOPICS or --topic-id.")
    wanted_id = None if topic_id is None else parse_id(topic_id)

    async def work(admin: AdminClient) -> None:
        found = await listings(admin, topics)
        if wanted_id is not None:
            found = [listing for listing in found if listing.topic_id == wanted_id]
        names = [listing.name for listing in found]
        if not names:
            if not if_exists:
                raise nothing(topics or topic_id or "")
            return
        if dry_run:
            for name in names:
                click.echo(f"Would delete topic {name}.")
            return
        if not yes and topics is not None and not set(topics.split(",")) <= {*names, ""}:
            click.echo(f"{topics} matches: {', '.join(names)}", err=True)
            confirm("Delete them with all their records?")
        await admin.delete_topics([listing.topic_id if wanted_id is not None else listing.name for listing in found])
        for name in names:
            click.echo(f"Deleted topic {name}.")

    return with_admin(bootstrap, settings, work)
