"""``triokafka consume``: a topic's records on standard output."""

from __future__ import annotations

import sys

import click


@click.command("consume")
@click.argument("topic")
@click.option(
    "--bootstrap-server",
    "bootstrap",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker.",
)
@click.option("--group", metavar="ID", help="Consume as a member of this group, and commit.")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record where no offset is committed.")
@click.option("--max-records", type=click.IntRange(min=1), help="End after this many.")
@click.option("--key-separator", metavar="TEXT", help="Print the key as well, and this between key and value.")
def command(
    topic: str,
    bootstrap: str,
    group: str | None,
    from_beginning: bool,
    max_records: int | None,
    key_separator: str | None,
) -> None:
    """Print the value of each record of TOPIC as a line, until Ctrl-C or --max-records."""
    import trio

    import triokafka

    async def main() -> None:
        left = max_records
        out = sys.stdout.buffer
        async with triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest" if from_beginning else "latest",
            default_api_timeout_ms=15_000,
        ) as consumer:
            while left is None or left > 0:
                for records in (await consumer.poll(timeout_ms=1_000, max_records=left)).values():
                    for record in records:
                        if key_separator is not None:
                            out.write((record.key or b"") + key_separator.encode())
                        out.write((record.value or b"") + b"\n")
                    left = None if left is None else left - len(records)
                out.flush()

    trio.run(main)
