"""``triokafka mirror status``."""

from __future__ import annotations

import click

from triokafka.cli.groups.table import Column, print_table
from triokafka.cli.mirror.sides import client_options, side_options
from triokafka.cli.output import examples, output_options, print_json


@click.command("status", epilog=examples("triokafka mirror status --source west:9092 --target east:9092 --json"))
@side_options("target")
@side_options("source")
@output_options
def status(
    source: str | None,
    source_config: str | None,
    source_alias: str,
    target: str | None,
    target_config: str | None,
    target_alias: str,
    output: str,
) -> int:
    """Print how far each partition is mirrored, and its lag, from the progress that the target has stored."""
    import trio

    from triokafka.mirror.progress import read_progress

    async def main() -> int:
        found = await read_progress(
            client_options("source", source, source_config),
            client_options("target", target, target_config),
            source_alias,
        )
        if output == "json":
            print_json([one._asdict() for one in found])
        else:
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
        return 0

    return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)
