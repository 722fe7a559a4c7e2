"""``triokafka perf``: how fast records are sent, by this client alone or in comparison with others, and read."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import click

from triokafka.cli.app import describe
from triokafka.cli.completing import topic_names
from triokafka.cli.connection import bootstrap_option, given_profile, setting, timeout_ms
from triokafka.cli.counting import counted
from triokafka.cli.measuring.documents import json_text
from triokafka.cli.output import CommandGroup, examples
from triokafka.cli.perf_consume import consume
from triokafka.cli.progress import Advance, progress, say, shows_progress
from triokafka.cli.reaching import hooked
from triokafka.cli.values import SIZE, Number, Whole, configured

if TYPE_CHECKING:
    from triokafka.cli.measuring.brokers import Broker
    from triokafka.cli.measuring.comparison import Compared
    from triokafka.cli.measuring.load import Summary

_APIS: Final = ("send", "send-many", "bound")
_OWN_TOPIC: Final = "perf"
_CLOSE_MS: Final = 5_000


class _Settings(NamedTuple):
    """What was asked for, apart from where to."""

    topic: str
    records: int
    size: int
    rate: float | None
    payload_file: str | None
    compression: str
    acks: str
    linger_ms: float
    batch_size: int
    api: str
    partition: int | None
    more: dict[str, Any]
    as_json: bool


@click.group("perf", cls=CommandGroup)
def command() -> None:
    """Measure how fast records are sent and read."""


command.add_command(consume)


@command.command(
    "produce",
    epilog=examples(
        "triokafka perf produce",
        "triokafka perf produce --bootstrap-server localhost:9092 --topic load --compression lz4",
        "triokafka perf produce --throughput 5000 --linger-ms 0",
        "triokafka perf produce --compare",
    ),
)
@click.option(
    "--topic",
    shell_complete=topic_names,
    help=f"Where to.  [default: {_OWN_TOPIC}; must be given with --bootstrap-server]",
)
@bootstrap_option(without="A broker; without it one is started.")
@click.option(
    "--against",
    type=click.Choice(["sink", "memory"]),
    help="What to start without --bootstrap-server: a broker that only acknowledges, or one that keeps the records in "
    "memory.  [default: sink]",
)
@click.option("--num-records", "records", type=Whole(min=1), default=1_000_000, show_default=True, help="To send.")
@click.option("--record-size", "size", type=SIZE, metavar="BYTES", help="Of a value.  [default: 100]")
@click.option("--payload-file", metavar="FILE", help="Send its lines in turns instead of made-up values.")
@click.option(
    "--throughput", "rate", type=Number(min=-1), metavar="RATE", help="Records a second; without, or -1: all it can."
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--linger-ms", type=Number(min=0), default=5, show_default=True, help="What a batch waits for.")
@click.option(
    "--batch-size",
    type=Whole(min=0),
    metavar="BYTES",
    default=131_072,
    show_default=True,
    help="When it is full.",
)
@click.option("--partition", type=Whole(min=0), help="Where to; with --api bound and --compare 0 without it.")
@click.option("--api", type=click.Choice(_APIS), default="send", show_default=True, help="How the program sends.")
@click.option("-X", "properties", multiple=True, metavar="NAME=VALUE", help="Any other option of the producer.")
@click.option("--compare", is_flag=True, help="Measure the other installed Kafka clients too, taking turns.")
@click.option("--rounds", type=Whole(min=1), default=3, show_default=True, help="With --compare.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def produce(
    topic: str | None,
    bootstrap: str | None,
    against: str | None,
    records: int,
    size: int | None,
    payload_file: str | None,
    rate: float | None,
    compression: str,
    acks: str,
    linger_ms: float,
    batch_size: int,
    partition: int | None,
    api: str,
    properties: tuple[str, ...],
    compare: bool,
    rounds: int,
    as_json: bool,
) -> int:
    """Send records, and say how fast that was, how long acknowledgements took, and what it cost.

    Without --bootstrap-server it starts a broker that checks and acknowledges what it gets but keeps nothing: what is
    measured is the client. With --throughput, latency counts from when a record was meant to be sent. Ctrl-C ends the
    run with the summary so far.
    """
    if bootstrap is not None and against is not None:
        raise click.UsageError("--against is for runs without --bootstrap-server.")
    if bootstrap is not None and topic is None:
        raise click.UsageError("With --bootstrap-server, say where to send: --topic NAME.")
    if payload_file is not None and size is not None:
        raise click.UsageError("--record-size and --payload-file exclude each other.")
    if rate is not None and rate != -1 and not 0 < rate <= 1_000_000:
        raise click.UsageError("--throughput is a number of records a second from above 0 to 1,000,000, or -1.")
    if compare and properties:
        raise click.UsageError("--compare gives all clients the same settings; -X is for this one.")
    settings = _Settings(
        topic=topic or _OWN_TOPIC,
        records=records,
        size=size or 100,
        rate=None if rate == -1 else rate,
        payload_file=payload_file,
        compression=compression,
        acks=acks,
        linger_ms=linger_ms,
        batch_size=batch_size,
        api=api,
        partition=partition,
        more=dict(setting("-X", text) for text in properties),
        as_json=as_json,
    )
    options = _options("localhost:9092" if bootstrap is None else bootstrap, settings)
    values = _values(settings)
    with _broker(bootstrap, against or "sink") as broker:
        if compare:
            return _compare(broker, settings, rounds)
        return _measure({**options, "bootstrap_servers": broker.bootstrap}, values, settings)


def _options(bootstrap: str, settings: _Settings) -> dict[str, Any]:
    """The producer's options, checked. Raises `click.UsageError`."""
    from triokafka.client.config import ProducerOptions

    options = {
        "bootstrap_servers": bootstrap,
        "acks": settings.acks if settings.acks == "all" else int(settings.acks),
        "compression_type": settings.compression,
        "linger_ms": settings.linger_ms,
        "batch_size": settings.batch_size,
    }
    twice = [name for name in settings.more if name in options]
    if twice:
        raise click.UsageError(f"-X {twice[0]} is an option of this command: see --help.")
    ctx = click.get_current_context()
    defaults = {**given_profile(ctx).options, "max_block_ms": timeout_ms(ctx), "close_timeout_ms": _CLOSE_MS}
    checked = {**defaults, **options, **settings.more}
    configured(ProducerOptions.parse, checked)
    return checked


def _values(settings: _Settings) -> Sequence[bytes]:
    from triokafka.cli.measuring.values import file_values, json_values

    if settings.payload_file is None:
        return json_values(settings.size)
    try:
        return file_values(settings.payload_file)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--payload-file: {describe(error)}.") from None


@contextmanager
def _broker(bootstrap: str | None, against: str) -> Iterator[Broker]:
    from triokafka.cli.measuring.brokers import KafkaBroker, in_memory_broker, sink_broker

    if bootstrap is not None:
        yield KafkaBroker(0, bootstrap)
        return
    with sink_broker() if against == "sink" else in_memory_broker() as broker:
        does = "only acknowledges" if against == "sink" else "keeps everything in memory"
        say(f"No --bootstrap-server: sending to a broker process of its own that {does}.")
        yield broker


# ---------------------------------------------------------------- this client alone


def _measure(options: dict[str, Any], values: Sequence[bytes], settings: _Settings) -> int:
    import trio

    from triokafka.cli.measuring.load import Api, Load, LoadRun

    assert settings.api in get_args(Api)
    load = Load(
        settings.topic,
        values,
        settings.records,
        settings.api,  # type: ignore[arg-type]
        settings.rate,
        settings.partition,
    )

    reaching = hooked(options, options["max_block_ms"])

    async def main(advance: Advance | None) -> Summary:
        return await reaching.watch(LoadRun(load, options, say, advance).perform)

    shown = shows_progress() and not settings.as_json
    with progress("sending", settings.records, shown=shown) as advance:
        summary = trio.run(main, advance if shown else None)
    if settings.as_json:
        click.echo(json_text({**summary._asdict(), "latency": summary.latency._asdict()}))
    else:
        _print(summary, settings)
    if summary.failed or (summary.first_error and not summary.interrupted):
        lost = f"{counted(summary.failed, 'record')} {'was' if summary.failed == 1 else 'were'}"
        click.echo(f"triokafka: {lost} not delivered: {summary.first_error}", err=True)
        return 1
    return 128 + signal.SIGINT if summary.interrupted else 0


def _print(summary: Summary, settings: _Settings) -> None:
    late = summary.latency
    if summary.interrupted:
        lost = summary.sent - summary.acknowledged
        click.echo(f"Interrupted after {counted(summary.sent, 'record')}, of which {lost:,} were not acknowledged.")
    click.echo(
        f"{counted(summary.acknowledged, 'record')} acknowledged in {summary.seconds:.2f} s:"
        f" {summary.records_per_second:,.0f} records/s, {summary.megabytes_per_second:,.1f} MB/s"
    )
    if late.measured:
        since = "the intended time" if settings.rate else "the call"
        quantiles = f"p50 {late.p50:.2f}, p95 {late.p95:.2f}, p99 {late.p99:.2f}, p99.9 {late.p999:.2f}"
        click.echo(
            f"latency from {since}, {counted(late.measured, 'record')} sampled: average {late.average:.2f} ms,"
            f" {quantiles}, worst {late.worst:.2f}"
        )
    processor = f"processor {summary.cpu_seconds_per_million:.2f} s a million records, " if summary.acknowledged else ""
    click.echo(f"{processor}peak memory {summary.peak_mib:.0f} MiB")


# ---------------------------------------------------------------- compared with others


def _compare(broker: Broker, settings: _Settings, rounds: int) -> int:
    from triokafka.cli.measuring.clients import PRODUCERS
    from triokafka.cli.measuring.comparison import COMPARED, compare
    from triokafka.cli.measuring.job import Job

    clients = []
    for name in COMPARED[settings.api]:
        if PRODUCERS[name].installed:
            clients.append(name)
        else:
            say(f"{name}: not installed (pip install {PRODUCERS[name].package})")
    job = Job(
        broker.bootstrap,
        settings.topic,
        settings.records,
        settings.size,
        settings.compression,
        batch_bytes=settings.batch_size,
        linger_ms=settings.linger_ms,
        acks=settings.acks,
        rate=settings.rate or 0,
        partition=settings.partition or 0,
        payload_file=settings.payload_file or "",
    )
    _make_sure_of_topic(job)
    found = compare(clients, job, broker, rounds=rounds, say=say)
    if settings.as_json:
        rows = [{**row._asdict(), "medians": row.medians._asdict()} for row in found]
        click.echo(json_text({"job": job._asdict(), "rounds": rounds, "clients": rows}))
    else:
        _print_comparison(found, rounds)
    return 0


def _make_sure_of_topic(job: Any) -> None:
    """Let the broker create it if it does such things; a clear error otherwise, before any other client tries."""
    import trio

    import triokafka

    limit = timeout_ms(click.get_current_context())
    options: dict[str, Any] = {"bootstrap_servers": job.bootstrap, "max_block_ms": limit}
    reaching = hooked(options, limit)

    async def ask() -> None:
        async with triokafka.Producer(**options) as producer:
            await reaching.watch(lambda: producer.partitions_for(job.topic))

    trio.run(ask, restrict_keyboard_interrupt_to_checkpoints=True)


def _print_comparison(found: Sequence[Compared], rounds: int) -> None:
    from triokafka.cli.measuring.job import Latency

    first = found[0]
    click.echo(
        f"Medians of {counted(rounds, 'round')}, each client in a process of its own, all with the same settings:"
    )
    for row in found:
        if isinstance(row.medians, Latency):
            figures = (
                f"p50 {row.medians.p50_ms:8.2f} ms, p99 {row.medians.p99_ms:8.2f}, p99.9 {row.medians.p999_ms:8.2f},"
            )
        else:
            figures = (
                f"{row.medians.records_per_second:12,.0f} records/s, {row.medians.megabytes_per_second:8,.1f} MB/s,"
            )
        click.echo(
            f"  {row.client:24} {figures} processor {row.medians.cpu_seconds_per_million:8.2f} s/M,"
            f" memory {row.medians.peak_mib:5.0f} MiB"
        )
    for row in found[1:]:
        what = "the p99" if isinstance(row.medians, Latency) else "the speed"
        of = f"{first.client} and {row.client}"
        click.echo(f"{of}: {row.times_speed:.1f} times {what}, processor time {row.times_processor:.1f} times less")
