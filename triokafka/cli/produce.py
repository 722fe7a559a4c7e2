"""``triokafka produce``: lines from standard input become records."""

from __future__ import annotations

import sys

import click


@click.command("produce")
@click.argument("topic")
@click.option(
    "--bootstrap-server",
    "bootstrap",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker.",
)
@click.option("--key-separator", metavar="TEXT", help="What stands before it in a line is the key.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
def command(topic: str, bootstrap: str, key_separator: str | None, compression: str) -> None:
    """Send each line of standard input to TOPIC, and say at the end how many were acknowledged."""
    import trio

    import triokafka

    async def main() -> int:
        acknowledged = 0

        def note(metadata: object, error: Exception | None) -> None:
            nonlocal acknowledged
            acknowledged += error is None

        async with triokafka.Producer(
            bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20, max_block_ms=15_000
        ) as producer:
            while line := await trio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True):
                key, value = None, line.rstrip(b"\r\n")
                if key_separator is not None and key_separator.encode() in value:
                    key, _, value = value.partition(key_separator.encode())
                await producer.send(topic, value, key=key, on_delivery=note)
            await producer.flush()
        return acknowledged

    click.echo(f"{trio.run(main)} records acknowledged", err=True)
