"""``triokafka mirror status``."""

from __future__ import annotations

import click

from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.mirror.sides import client_options, reached, side_options, timeout_option
from triokafka.cli.output import examples, output_options, print_json


@click.command("status", epilog=examples("triokafka mirror status --source west:9092 --target east:9092 --json"))
@side_options("target")
@side_options("source")
@timeout_option
@output_options
def status(
    source: str | None,
    source_config: str | None,
    source_alias: str,
    target: str | None,
    target_config: str | None,
    target_alias: str,
    timeout_ms: float | None,
    output: str,
) -> int:
    """Print how far each partition is mirrored, and its lag, from the progress that the target has stored."""
    import trio

    from triokafka.mirror.lag import compare_with_source, read_positions

    async def main() -> int:
        of_source = client_options("source", source, source_config)
        of_target = client_options("target", target, target_config)
        side = reached("target", of_target, timeout_ms)
        stored = await side.watch(lambda: read_positions(of_target, source_alias))
        side = reached("source", of_source, timeout_ms)
        found = await side.watch(lambda: compare_with_source(of_source, source_alias, stored))
        if output == "json":
            print_json([one._asdict() for one in found])
        elif found:
            print_table(
                [
                    Column("TOPIC", may_be_cut=True),
                    Column("PARTITION"),
                    Column("MIRRORED"),
                    Column("END"),
                    Column("LAG"),
                ],
                [tuple(one) for one in found],
            )
        if not found:
            click.echo(
                f"Note: the target has no progress of a mirror of the cluster {source_alias}. Check --source-alias, and"
                " that a mirror has run.",
                err=True,
            )
        return 0

    return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)
