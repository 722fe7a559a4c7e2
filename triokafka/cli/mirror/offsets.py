"""``triokafka mirror offsets``."""

from __future__ import annotations

import click

from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.mirror.sides import client_options, reached, side_options, timeout_option
from triokafka.cli.output import examples, output_options, print_json


@click.command(
    "offsets",
    epilog=examples(
        "triokafka mirror offsets --target east:9092 --source-alias west",
        "triokafka mirror offsets --target east:9092 --source-alias west --group billing --apply",
    ),
)
@side_options("target")
@click.option("--source-alias", default="source", show_default=True, metavar="NAME", help="Name of the source cluster.")
@click.option("--group", "groups", multiple=True, help="Only this group. Repeat it for several groups.")
@click.option("--apply", is_flag=True, help="Commit the positions in the target; the groups must have no members.")
@timeout_option
@output_options
def offsets(
    target: str | None,
    target_config: str | None,
    target_alias: str,
    source_alias: str,
    groups: tuple[str, ...],
    apply: bool,
    timeout_ms: float | None,
    output: str,
) -> int:
    """Print the positions of groups that a mirror, or MirrorMaker 2, has translated; --apply commits them.

    Use it after the source has failed: the groups then continue in the target.
    """
    import trio

    from triokafka.mirror.failover import apply_checkpoints, read_checkpoints

    async def main() -> int:
        options = client_options("target", target, target_config)
        side = reached("target", options, timeout_ms)
        known = await side.watch(lambda: read_checkpoints(options, source_alias))
        found = [one for one in known if not groups or one.group in groups]
        if output == "json":
            print_json([one._asdict() for one in found])
        elif found:
            print_table(
                [
                    Column("GROUP", may_be_cut=True),
                    Column("TOPIC", may_be_cut=True),
                    Column("PARTITION"),
                    Column("SOURCE-OFFSET"),
                    Column("TARGET-OFFSET"),
                ],
                [tuple(one)[:5] for one in found],
            )
        if not known and not groups:
            click.echo(
                f"Note: the target has no positions of groups of the cluster {source_alias}. Check --source-alias, and"
                " that a mirror has run.",
                err=True,
            )
        missing = set(groups) - {one.group for one in found}
        for group in sorted(missing):
            click.echo(f"triokafka: group {group}: no position was translated", err=True)
        failed = await apply_checkpoints(options, found) if apply else {}
        for group, reason in failed.items():
            click.echo(f"triokafka: group {group}: {reason}", err=True)
        return 1 if failed or missing else 0

    return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)
