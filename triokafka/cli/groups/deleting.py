"""``triokafka groups delete`` and ``delete-offsets``: delete groups, or some of their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triokafka.cli.app import describe
from triokafka.cli.completion_values import group_names, topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.counting import counted
from triokafka.cli.groups.group_selection import ChosenGroups, complain, group_options
from triokafka.cli.groups.lag import describe_all
from triokafka.cli.groups.reset_arguments import Scope, parse_scope
from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.output import confirm, examples, output_options, print_json
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient


@click.command(
    "delete",
    epilog=examples(
        "triokafka groups delete billing shipping",
        "triokafka groups delete --all-groups --dry-run",
    ),
)
@group_options
@admin_command
@click.option("--dry-run", is_flag=True, help="Print the groups that would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation, even with --all-groups.")
async def delete(admin: AdminClient, chosen: ChosenGroups, dry_run: bool, yes: bool) -> int:
    """Delete GROUPS without members, with all their committed offsets.

    A group that cannot be deleted does not stop the others; the exit status is then 1.
    """
    from triokafka.errors import KafkaError

    names, status = await chosen.resolve(admin)
    if dry_run:
        return max(status, await _could_delete(admin, names))
    if chosen.names is None and names and not yes:
        click.echo(f"{counted(len(names), 'group')}: {', '.join(names)}", err=True)
        confirm("Delete the groups without members, and their offsets?")
    for name in names:
        try:
            await admin.delete_groups([name])
        except KafkaError as error:
            complain(error)
            status = 1
        else:
            click.echo(f"Deleted group {name}.")
    return status


async def _could_delete(admin: AdminClient, names: list[str]) -> int:
    found = await describe_all(admin, names)
    for error in found.errors.values():
        complain(error)
    status = 1 if found.errors else 0
    for name, group in found.groups.items():
        if group.state == "Empty":
            click.echo(f"Would delete group {name}.")
        else:
            members = counted(len(group.members), "member")
            complain(f"group {name!r} is {group.state} and has {members}. Stop its members before deleting it.")
            status = 1
    return status


@click.command(
    "delete-offsets",
    epilog=examples(
        "triokafka groups delete-offsets billing --topic orders",
        "triokafka groups delete-offsets billing --topic orders:0,1 --topic payments",
    ),
)
@click.argument("group", required=False, shell_complete=group_names)
@click.option("--group", "also_group", metavar="GROUP", shell_complete=group_names, help="The group, as an option.")
@admin_command
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC[:P,P…]", shell_complete=topic_names,
    help="A topic, or some of its partitions.",
)  # fmt: skip
@output_options
async def delete_offsets(
    admin: AdminClient, group: str | None, also_group: str | None, topics: tuple[str, ...], output: str
) -> int:
    """Delete the committed offsets of GROUP in topics that none of its members subscribes to."""
    if (group is None) == (also_group is None):
        raise click.UsageError("Name one group, as an argument or with --group.")
    name = group or also_group or ""
    scopes = [parse_scope(text) for text in topics]
    found = await describe_all(admin, [name])
    for error in found.errors.values():
        raise error
    rows = await _forget(admin, name, scopes)
    if output == "json":
        print_json([dict(zip(("topic", "partition", "error"), row, strict=True)) for row in rows])
    else:
        print_table(
            [Column("TOPIC"), Column("PARTITION"), Column("STATUS")],
            [(topic, number, "Successful" if error is None else error) for topic, number, error in rows],
        )
    return 1 if any(error is not None for *_, error in rows) else 0


async def _forget(admin: AdminClient, group: str, scopes: list[Scope]) -> list[tuple[str, int | None, str | None]]:
    """Yield topic, partition (None for a topic that does not exist) and error."""
    from triokafka.errors import GroupIdNotFoundError, KafkaError

    described = await admin.describe_topics([scope.topic for scope in scopes if scope.partitions is None])
    rows: list[tuple[str, int | None, str | None]] = []
    partitions: dict[TopicPartition, None] = {}
    for topic, numbers in scopes:
        if numbers is None and topic in described.errors:
            rows.append((topic, None, describe(described.errors[topic])))
            continue
        every = [p.partition for p in described[topic].partitions] if numbers is None else numbers
        partitions |= dict.fromkeys(TopicPartition(topic, number) for number in every)
    for partition in sorted(partitions):
        try:
            # One by one: the error of a call for several topics does not tell which topic failed.
            await admin.delete_group_offsets(group, [partition])
        except KafkaError as error:
            # A group that has only offsets is deleted with the last of them; the other partitions had none.
            went = isinstance(error, GroupIdNotFoundError) and any(problem is None for *_, problem in rows)
            rows.append((*partition, None if went else describe(error)))
        else:
            rows.append((*partition, None))
    return rows
