"""``triokafka groups describe``, ``members`` and ``offsets``: lag, members, state and committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.groups.group_selection import ChosenGroups, complain, group_options, note
from triokafka.cli.groups.lag import Found, GroupPosition, describe_all, named, positions_of, remarks
from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.output import examples, output_options, print_json
from triokafka.structs import by_topic

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import GroupDescription, MemberDescription
    from triokafka.structs import TopicPartition

_SHARE_FOR_LEADERS: Final = 3
_UNKNOWN: Final = "unknown"


@click.command(
    "describe",
    epilog=examples(
        "triokafka groups describe billing",
        "triokafka groups describe billing shipping --members --verbose",
        "triokafka groups describe --all-groups --state --json",
    ),
)
@group_options
@admin_command
@click.option("--offsets", "shows_offsets", is_flag=True, help="Show offsets and lag (default).")
@click.option("--members", "shows_members", is_flag=True, help="Their members.")
@click.option("--state", "shows_state", is_flag=True, help="Show state, coordinator and assignment strategy.")
@click.option("--verbose", is_flag=True, help="Add leader epochs; with --members, assignments; with --state, epochs.")
@output_options
async def describe(
    admin: AdminClient,
    chosen: ChosenGroups,
    shows_offsets: bool,
    shows_members: bool,
    shows_state: bool,
    verbose: bool,
    output: str,
) -> int:
    """Print committed offsets, log end offsets, lag and members of GROUPS by partition.

    A hyphen means no value, such as no committed offset; "unknown" means that the log end offset could not be fetched,
    for example because the partition has no leader.
    """
    if shows_offsets + shows_members + shows_state > 1:
        raise click.UsageError("--offsets, --members and --state exclude each other.")
    if shows_members:
        return await _members(admin, chosen, verbose, output)
    if shows_state:
        return await _states(admin, chosen, verbose, output)
    return await _positions(admin, chosen, verbose, output)


@click.command(
    "members", epilog=examples("triokafka groups members billing", "triokafka groups members billing --verbose")
)
@group_options
@admin_command
@click.option("--verbose", is_flag=True, help="Current and target assignment of each member, with epochs.")
@output_options
async def members(admin: AdminClient, chosen: ChosenGroups, verbose: bool, output: str) -> int:
    """Print the members of GROUPS: the same as describe --members."""
    return await _members(admin, chosen, verbose, output)


@click.command(
    "offsets",
    epilog=examples(
        "triokafka groups offsets billing",
        "triokafka groups offsets billing --topic orders --json",
    ),
)
@group_options
@admin_command
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", shell_complete=topic_names, help="Only offsets of this topic."
)
@output_options
async def offsets(admin: AdminClient, chosen: ChosenGroups, topics: tuple[str, ...], output: str) -> int:
    """Print the committed offsets of GROUPS without fetching log end offsets."""
    names, status = await chosen.resolve(admin)
    found = await describe_all(admin, names)
    committed = await admin.list_offsets_of_groups(found.groups)
    for error in (*found.errors.values(), *committed.errors.values()):
        complain(error)
        status = 1
    rows = [
        (name, *partition, position.offset, None if position.leader_epoch < 0 else position.leader_epoch,
         position.metadata)
        for name in found.groups
        if name not in committed.errors
        for partition, position in sorted(committed[name].items())
        if not topics or partition.topic in topics
    ]  # fmt: skip
    if output == "json":
        keys = ("group", "topic", "partition", "offset", "leader_epoch", "metadata")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        titles = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "METADATA")
        print_table([Column(title, title == "METADATA") for title in titles], rows)
    elif found.groups:
        note("no committed offsets.")
    return status


async def _described(admin: AdminClient, chosen: ChosenGroups) -> tuple[Found, int]:
    """Return the described groups and the exit status so far; print an error for each of the others."""
    names, status = await chosen.resolve(admin)
    found = await describe_all(admin, names)
    for error in found.errors.values():
        complain(error)
        status = 1
    return found, status


# Offsets and lag


async def _positions(admin: AdminClient, chosen: ChosenGroups, verbose: bool, output: str) -> int:
    names, status = await chosen.resolve(admin)
    found = await describe_all(admin, names)
    patience = admin.options.default_api_timeout_ms / _SHARE_FOR_LEADERS
    by_group, failed, endless = await positions_of(admin, found.groups, patience)
    for error in (*found.errors.values(), *failed.values()):
        complain(error)
        status = 1
    _warn_of_unknown_ends(endless)
    shown = {name: found.groups[name] for name in by_group}
    if output == "json":
        print_json([{**_summary(group), "partitions": _rows_json(by_group[name])} for name, group in shown.items()])
        return status
    _remark(shown.values())
    without = [name for name in shown if not by_group[name]]
    if without:
        note(f"{named('group', without)}: no assigned partitions and no committed offsets.")
    for number, name in enumerate(name for name in shown if by_group[name]):
        if number:
            click.echo()
        print_table(_position_columns(verbose), [_position_row(name, row, verbose) for row in by_group[name]])
    return status


def _position_columns(verbose: bool) -> list[Column]:
    epoch = [Column("LEADER-EPOCH")] if verbose else []
    titles = [Column(title) for title in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    who = [Column(title, may_be_cut=True) for title in ("CONSUMER-ID", "HOST", "CLIENT-ID")]
    return [Column("GROUP"), Column("TOPIC"), Column("PARTITION"), *epoch, *titles, *who]


def _position_row(name: str, row: GroupPosition, verbose: bool) -> Sequence[object]:
    who = (None, None, None) if row.member is None else (row.member.member_id, row.member.client_host,
                                                         row.member.client_id)  # fmt: skip
    end = _UNKNOWN if row.log_end_offset is None else row.log_end_offset
    lag = _UNKNOWN if row.committed is not None and row.lag is None else row.lag
    offset = None if row.committed is None else row.committed.offset
    return (name, *row.partition, *([_epoch(row)] if verbose else []), offset, end, lag, *who)


def _rows_json(rows: Iterable[GroupPosition]) -> list[dict[str, Any]]:
    return [
        {
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "current_offset": None if row.committed is None else row.committed.offset,
            "leader_epoch": _epoch(row),
            "log_end_offset": row.log_end_offset,
            "lag": row.lag,
            "consumer_id": None if row.member is None else row.member.member_id,
            "host": None if row.member is None else row.member.client_host,
            "client_id": None if row.member is None else row.member.client_id,
        }
        for row in rows
    ]


def _epoch(row: GroupPosition) -> int | None:
    return None if row.committed is None or row.committed.leader_epoch < 0 else row.committed.leader_epoch


def _warn_of_unknown_ends(errors: Mapping[TopicPartition, Exception]) -> None:
    by_reason: dict[str, list[str]] = {}
    for partition, error in errors.items():
        by_reason.setdefault(type(error).__name__, []).append(str(partition))
    for reason, partitions in by_reason.items():
        note(f"{named('partition', partitions)}: log end offset unknown: {reason}.")


# Members


async def _members(admin: AdminClient, chosen: ChosenGroups, verbose: bool, output: str) -> int:
    found, status = await _described(admin, chosen)
    if output == "json":
        print_json(
            [
                {**_summary(group), "members": [_member_json(member) for member in _in_order(group)]}
                for group in found.groups.values()
            ]
        )
        return status
    _remark(found.groups.values())
    for number, group in enumerate(group for group in found.groups.values() if group.members):
        if number:
            click.echo()
        columns, rows = _member_table(group, verbose)
        print_table(columns, rows)
    return status


def _in_order(group: GroupDescription) -> list[MemberDescription]:
    return sorted(group.members, key=lambda member: member.member_id)


def _member_table(group: GroupDescription, verbose: bool) -> tuple[list[Column], list[list[object]]]:
    has_static = any(member.group_instance_id is not None for member in group.members)
    # Only a group with members that still use the classic protocol needs the column (KIP-1099).
    is_mixed = any(member.upgraded is False for member in group.members)
    columns = [Column("GROUP"), Column("CONSUMER-ID", may_be_cut=True)]
    columns += [Column("GROUP-INSTANCE-ID")] if has_static else []
    columns += [Column("HOST", may_be_cut=True), Column("CLIENT-ID", may_be_cut=True), Column("#PARTITIONS")]
    if verbose:
        columns += [Column("CURRENT-EPOCH"), Column("CURRENT-ASSIGNMENT", may_be_cut=True)]
        columns += [Column("TARGET-EPOCH"), Column("TARGET-ASSIGNMENT", may_be_cut=True)]
        columns += [Column("UPGRADED")] if is_mixed else []
    rows = []
    for member in _in_order(group):
        row: list[object] = [group.group_id, member.member_id]
        row += [member.group_instance_id] if has_static else []
        row += [member.client_host, member.client_id, len(member.assignment)]
        if verbose:
            row += [member.member_epoch, _assignment_text(member.assignment), group.target_assignment_epoch]
            row += [_assignment_text(member.target_assignment or ())]
            row += [None if member.upgraded is None else str(member.upgraded).lower()] if is_mixed else []
        rows.append(row)
    return columns, rows


def _assignment_text(partitions: Iterable[TopicPartition]) -> str | None:
    """``orders:0,1;payments:3``."""
    topics = by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or None


def _member_json(member: MemberDescription) -> dict[str, Any]:
    target = member.target_assignment
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "rack_id": member.rack_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "epoch": member.member_epoch,
        "assignment": by_topic(sorted(member.assignment)),
        "target_assignment": None if target is None else by_topic(sorted(target)),
        "upgraded": member.upgraded,
    }


# State


async def _states(admin: AdminClient, chosen: ChosenGroups, verbose: bool, output: str) -> int:
    found, status = await _described(admin, chosen)
    if output == "json":
        print_json([_summary(group) for group in found.groups.values()])
        return status
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    rows: list[list[object]] = []
    _remark(found.groups.values())
    for group in found.groups.values():
        where = group.coordinator
        row: list[object] = [group.group_id, f"{where.address} ({where.node_id})", group.assignor or None]
        row += [group.state]
        row += [group.group_epoch, group.target_assignment_epoch] if verbose else []
        rows.append([*row, len(group.members)])
    if rows:
        print_table([*(Column(title) for title in titles), Column("#MEMBERS")], rows)
    return status


def _summary(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "coordinator": {
            "id": group.coordinator.node_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "assignment_strategy": group.assignor or None,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.target_assignment_epoch,
        "member_count": len(group.members),
    }


def _remark(groups: Iterable[GroupDescription]) -> None:
    for sentence in remarks(groups):
        note(sentence)
