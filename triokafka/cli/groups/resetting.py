"""``triokafka groups reset-offsets``: set the offsets from which groups continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.groups.group_selection import ChosenGroups, complain, group_options, note
from triokafka.cli.groups.reset_arguments import (
    Plan,
    Scope,
    chosen_way,
    parse_datetime,
    parse_duration,
    parse_plan,
    parse_scope,
    plan_text,
    within_limits,
)
from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import text_of_file
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient

_INACTIVE: Final = ("Empty", "Dead")


class _NotResetError(Exception):
    """A group cannot be reset; nothing was changed."""


class _Way(NamedTuple):
    """The target: one of the flags, with its value; times are milliseconds since 1970."""

    name: str
    value: int = 0
    plan: Plan | None = None


@click.command(
    "reset-offsets",
    epilog=examples(
        "triokafka groups reset-offsets billing --topic orders --to-earliest",
        "triokafka groups reset-offsets billing --topic orders:0,2 --shift-by -100 --execute",
        "triokafka groups reset-offsets billing --all-topics --by-duration PT6H --execute",
        "triokafka groups reset-offsets billing --all-topics --to-current --export > billing.csv",
        "triokafka groups reset-offsets billing --from-file billing.csv --execute",
        "triokafka groups reset-offsets billing --topic orders:0,2 --to-datetime 2026-11-21T10:00:00.000",
    ),
)
@group_options
@admin_command
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:P,P…]", shell_complete=topic_names,
    help="A topic, or some of its partitions.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="All partitions with committed offsets of the group.")
@click.option("--to-earliest", is_flag=True, help="Reset to the log start offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the log end offset.")
@click.option("--to-current", is_flag=True, help="Reset to the committed offset, or to the log end offset without one.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="Reset to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Shift the committed offset by N records; -N goes back.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to the first record younger than this.")
@click.option("--to-datetime", metavar="TIME", help="Reset to the first record since YYYY-MM-DDThh:mm:ss.sss (UTC).")
@click.option("--from-file", metavar="FILE", help="Reset to the offsets in a file that --export wrote.")
@click.option("--dry-run", is_flag=True, help="Only print the new offsets (default).")
@click.option("--execute", is_flag=True, help="Change the offsets.")
@click.option("--export", is_flag=True, help="Print CSV for --from-file.")
@output_options
async def reset_offsets(
    admin: AdminClient,
    chosen: ChosenGroups,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    output: str,
    **ways: Any,
) -> int:
    """Reset the committed offsets of GROUPS, which must have no active members.

    Without --execute it changes nothing. An offset outside the log becomes the log start or end offset, with a note on
    standard error. A missing group is created, and its first members start from these offsets.
    """
    name = chosen_way(ways)
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    if export and output == "json":
        raise click.UsageError("--export prints CSV and excludes --json.")
    if name == "from_file" and (topics or all_topics):
        raise click.UsageError("--from-file names the partitions and excludes --topic and --all-topics.")
    if name != "from_file" and bool(topics) is all_topics:
        raise click.UsageError("No partitions: give --topic or --all-topics.")
    scopes = [parse_scope(text) for text in topics]
    way = _way(name, ways[name], chosen)
    names, status = await chosen.resolve(admin)
    reset = _Reset(admin, way, scopes if topics else None)
    plan, failed = await reset.plan_all(names)
    if execute:
        failed += await _commit(admin, plan)
    _print(plan, output, export=export, with_groups=len(chosen.names or ()) != 1)
    if not execute and not dry_run and any(plan.values()):
        note("nothing was changed. Add --execute to change the offsets.")
    return 1 if failed else status


def _way(name: str, value: Any, chosen: ChosenGroups) -> _Way:
    from triokafka.world.system import RealWorld

    match name:
        case "to_offset" | "shift_by":
            return _Way(name, value)
        case "to_datetime":
            return _Way("to_time", max(0, parse_datetime(value)))  # brokers give negative timestamps a special meaning
        case "by_duration":
            return _Way("to_time", max(0, RealWorld().wall_ms() - parse_duration(value)))
        case "from_file":
            return _Way(name, plan=parse_plan(text_of_file(value, "--from-file"), value, chosen.names))
        case _:
            return _Way(name)


async def _commit(admin: AdminClient, plan: Plan) -> int:
    """Commit the offsets by group; report a failed group and remove it from the plan. Return the number of failures."""
    from triokafka.errors import KafkaError

    failed = 0
    for name in list(plan):
        try:
            if plan[name]:
                await admin.alter_group_offsets(name, plan[name])
        except (KafkaError, ExceptionGroup) as error:
            for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
                complain(one)
            del plan[name]
            failed += 1
    return failed


def _print(plan: Plan, output: str, *, export: bool, with_groups: bool) -> None:
    rows = [(name, *partition, offset) for name in plan for partition, offset in sorted(plan[name].items())]
    if export:
        click.echo(plan_text(plan, with_groups=with_groups), nl=False)
    elif output == "json":
        keys = ("group", "topic", "partition", "new_offset")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table([Column(title) for title in ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")], rows)


class _Reset:
    """Computes the new offsets. ``scopes`` is None for all partitions with committed offsets of the group."""

    def __init__(self, admin: AdminClient, way: _Way, scopes: list[Scope] | None) -> None:
        self._admin = admin
        self._way = way
        self._scopes = scopes

    async def plan_all(self, names: Iterable[str]) -> tuple[Plan, int]:
        """Return the new offsets, and the number of groups that cannot be reset; these are reported and omitted."""
        from triokafka.errors import GroupIdNotFoundError, KafkaError

        asked = list(names)
        described = await self._admin.describe_groups(asked)
        partitions = await self._partitions_in_scope() if self._scopes is not None else None
        plan: Plan = {}
        failed = 0
        for name in asked:
            try:
                error = described.errors.get(name)
                if error is not None and not isinstance(error, GroupIdNotFoundError):
                    raise error
                if error is None and described[name].state not in _INACTIVE:
                    raise _NotResetError(
                        f"group {name!r} is {described[name].state}. Stop its members before resetting offsets."
                    )
                plan[name] = await self._plan_one(name, partitions)
            except (KafkaError, _NotResetError) as problem:
                complain(problem)
                failed += 1
        return plan, failed

    async def _partitions_in_scope(self) -> list[TopicPartition]:
        whole = [scope.topic for scope in self._scopes or () if scope.partitions is None]
        described = await self._admin.describe_topics(whole)
        found: dict[TopicPartition, None] = {}
        for topic, partitions in self._scopes or ():
            numbers = [p.partition for p in described[topic].partitions] if partitions is None else partitions
            found |= dict.fromkeys(TopicPartition(topic, number) for number in numbers)
        return list(found)

    async def _plan_one(self, name: str, partitions: list[TopicPartition] | None) -> dict[TopicPartition, int]:
        way = self._way
        if way.plan is not None:
            if name not in way.plan:
                raise _NotResetError(f"the file has no offsets of group {name!r}.")
            return await self._limited(way.plan[name])
        needs_committed = partitions is None or way.name in ("to_current", "shift_by")
        committed = await self._admin.list_group_offsets(name) if needs_committed else {}
        if partitions is None and not committed:
            note(f"group {name!r} has no committed offsets: nothing is reset. --topic sets the first ones.")
        scope = sorted(committed) if partitions is None else partitions
        match way.name:
            case "to_offset":
                return await self._limited(dict.fromkeys(scope, way.value))
            case "shift_by":
                missing = [str(tp) for tp in scope if tp not in committed]
                if missing:
                    raise _NotResetError(f"group {name!r} has no committed offset to shift in {', '.join(missing)}.")
                return await self._limited({tp: committed[tp].offset + way.value for tp in scope})
            case "to_current":
                without = [tp for tp in scope if tp not in committed]
                ends = await self._look_up(without, "latest")
                return {tp: ends[tp] if tp in ends else committed[tp].offset for tp in scope}
            case "to_time":
                return await self._at_time(scope)
            case _:
                return await self._look_up(scope, way.name.removeprefix("to_"))

    async def _at_time(self, scope: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._look_up(scope, self._way.value)
        late = [tp for tp in scope if found[tp] < 0]
        if late:
            found |= await self._look_up(late, "latest")
            note(f"no record is that recent in {', '.join(map(str, late))}: using the log end offset.")
        return found

    async def _limited(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        starts, ends = await self._look_up(wanted, "earliest"), await self._look_up(wanted, "latest")
        offsets, sentences = within_limits(wanted, starts, ends)
        for sentence in sentences:
            note(sentence)
        return offsets

    async def _look_up(self, partitions: Iterable[TopicPartition], spec: str | int) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(dict.fromkeys(partitions, spec))
        return {partition: found[partition].offset for partition in found}
