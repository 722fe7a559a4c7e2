"""``triokafka groups list``: list groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.connection import admin_command
from triokafka.cli.groups.group_selection import listings
from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.output import examples, output_options, print_json

if TYPE_CHECKING:
    from triokafka import AdminClient

_STATES: Final = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling", "NotReady",
)  # fmt: skip
_TYPES: Final = ("Consumer", "Classic", "Share", "Streams")


@click.command(
    "list",
    epilog=examples(
        "triokafka groups list",
        "triokafka groups list --state --type",
        "triokafka groups list --state stable,empty --type --json",
        "triokafka groups list --protocol connect",
    ),
)
@admin_command
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[STATE,…]", help="Show states; or only groups in these."
)
@click.option(
    "--type",
    "--group-type",
    "kind",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,…]",
    help="Show types; or only groups of these.",
)
@click.option("--all-protocols", is_flag=True, help="Include groups that are not consumer groups, and show protocols.")
@click.option("--protocol", metavar="NAME", help="Only groups of this protocol, such as connect, and show protocols.")
@click.option("--consumer", is_flag=True, help="Only consumer groups; the default without the two options before.")
@click.option("--share", "only", flag_value="Share", help="Only share groups.")
@click.option("--streams", "only", flag_value="Streams", help="Only streams groups.")
@output_options
async def list_groups(
    admin: AdminClient,
    state: str | None,
    kind: str | None,
    all_protocols: bool,
    protocol: str | None,
    consumer: bool,
    only: str | None,
    output: str,
) -> int:
    """Print the ids of all consumer groups, including groups with committed offsets and no members.

    The command asks every broker for the groups it coordinates. If a broker fails, it reports the broker, prints the
    groups of the others and exits with status 1.
    """
    states = _wanted("--state", state, _STATES)
    types = _wanted("--type", kind, _TYPES)
    if consumer and (all_protocols or protocol is not None or only is not None):
        raise click.UsageError("--consumer excludes --all-protocols, --protocol, --share and --streams.")
    if only is not None:
        if types:
            raise click.UsageError(f"--{only.lower()} and --type exclude each other.")
        types, kind = [only], only
    all_protocols = all_protocols or protocol is not None or only is not None
    found, status = await listings(admin, states, types)
    shown = [one for one in found if (all_protocols or one.is_consumer_group) and protocol in (None, one.protocol_type)]
    if output == "json":
        print_json(
            [
                {
                    "group": one.group_id,
                    "protocol": one.protocol_type,
                    "type": one.group_type or None,
                    "state": one.state or None,
                }
                for one in shown
            ]
        )
    elif state is None and kind is None and not all_protocols:
        for one in shown:
            click.echo(one.group_id)
    else:
        columns, rows = [Column("GROUP")], [[one.group_id] for one in shown]
        for wanted, title, values in (
            (all_protocols, "PROTOCOL", [one.protocol_type for one in shown]),
            (kind is not None, "TYPE", [one.group_type.capitalize() for one in shown]),
            (state is not None, "STATE", [one.state for one in shown]),
        ):
            if wanted:
                columns.append(Column(title))
                for row, value in zip(rows, values, strict=True):
                    row.append(value or "-")
        print_table(columns, rows)
    return status


def _wanted(option: str, text: str | None, known: tuple[str, ...]) -> list[str]:
    """Parse names separated by commas into the brokers' spelling."""
    names = {name.lower(): name for name in known}
    found = []
    for part in (text or "").split(","):
        word = part.strip().lower()
        if not word:
            continue
        if word not in names:
            raise click.UsageError(f"{option}: {part.strip()!r} is not one of {', '.join(known)}.")
        found.append(names[word])
    return found
