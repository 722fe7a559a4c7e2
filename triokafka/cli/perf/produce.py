"""``triokafka perf produce``: how fast this client sends records, alone or in comparison with other clients."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from triokafka.cli.app import describe
from triokafka.cli.client_properties import read_properties, setting
from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import bootstrap_option, configuration_options, given_profile, timeout_ms
from triokafka.cli.counting import counted
from triokafka.cli.load.brokers import IN_MEMORY, SINK, ready_process
from triokafka.cli.load.documents import json_text
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import SIZE, FiniteNumber, Integer, configured
from triokafka.cli.perf.metrics_table import print_metrics
from triokafka.cli.perf.produce_settings import Settings
from triokafka.cli.progress import progress, say, shows_progress
from triokafka.cli.unreachable_brokers import hooked

if TYPE_CHECKING:
    from triokafka.cli.load.load_run import LoadSummary

_APIS: Final = ("send", "send-many", "bound")
_OWN_TOPIC: Final = "perf"
_CLOSE_MS: Final = 5_000
_TRANSACTION_MS: Final = 3_000


@click.command(
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
    help=f"Topic to send to.  [default: {_OWN_TOPIC}; must be given with --bootstrap-server]",
)
@bootstrap_option(without="A broker.  [default: start one]")
@click.option(
    "--against",
    type=click.Choice(["sink", "memory"]),
    help="Broker to start without --bootstrap-server: sink only acknowledges, memory keeps the records in "
    "memory.  [default: sink]",
)
@click.option(
    "--num-records",
    "records",
    type=Integer(min=1),
    default=1_000_000,
    show_default=True,
    help="Number of records to send.",
)
@click.option("--record-size", "size", type=SIZE, metavar="BYTES", help="Size of a value.  [default: 100]")
@click.option(
    "--payload-file", metavar="FILE", help="Send the lines of a file in rotation instead of generated values."
)
@click.option("--payload-monotonic", "numbers", is_flag=True, help="Send the numbers 0, 1, 2 … as text.")
@click.option(
    "--payload-delimiter", metavar="TEXT", default=r"\n", show_default=r"\n",
    help=r"What ends a value in --payload-file, with the escapes \n, \r, \t and \0.",
)  # fmt: skip
@click.option(
    "--throughput",
    "rate",
    type=FiniteNumber(min=-1),
    metavar="RATE",
    help="Records per second; -1 (default): as fast as possible.",
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--linger-ms",
    type=FiniteNumber(min=0),
    default=5,
    show_default=True,
    help="How long a batch waits for more records.",
)
@click.option(
    "--batch-size",
    type=Integer(min=0),
    metavar="BYTES",
    default=131_072,
    show_default=True,
    help="Maximum size of a batch.",
)
@click.option(
    "--partition", type=Integer(min=0), help="Partition to send to.  [default with --api bound or --compare: 0]"
)
@click.option("--api", type=click.Choice(_APIS), default="send", show_default=True, help="Producer call to measure.")
@click.option("--reporting-interval", "interval_ms", type=FiniteNumber(min=1), default=5_000, show_default=True,
              metavar="MS", help="Interval of progress reports.")  # fmt: skip
@click.option("--transactional-id", metavar="ID", help="Send in transactions with this id.")
@click.option("--transaction-duration-ms", "transaction_ms", type=FiniteNumber(min=1), metavar="MS",
              help=f"Commit a transaction after this time.  [default in transactions: {_TRANSACTION_MS}]")  # fmt: skip
@configuration_options("producer", "--command-property")
@click.option(
    "--compare", is_flag=True, help="Also measure the other installed clients, in rotation; needs a checkout."
)
@click.option("--rounds", type=Integer(min=1), default=3, show_default=True, help="With --compare.")
@click.option("--print-metrics", "with_metrics", is_flag=True, help="Also print the producer's metrics at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def produce(
    topic: str | None,
    bootstrap: str | None,
    against: str | None,
    size: int | None,
    payload_file: str | None,
    numbers: bool,
    payload_delimiter: str,
    rate: float | None,
    transactional_id: str | None,
    transaction_ms: float | None,
    config_file: str | None,
    more: tuple[str, ...],
    compare: bool,
    rounds: int,
    with_metrics: bool,
    **run: Any,
) -> int:
    """Send records, and report speed, acknowledgement latency, processor time and memory.

    Without --bootstrap-server it starts a broker that checks and acknowledges records but stores none, so that it
    measures the client. With --throughput, latency counts from the record's scheduled time. Ctrl-C ends the run with
    the summary so far.
    """
    if bootstrap is not None and against is not None:
        raise click.UsageError("--against and --bootstrap-server exclude each other.")
    if bootstrap is not None and topic is None:
        raise click.UsageError("--bootstrap-server needs --topic NAME.")
    if sum((payload_file is not None, size is not None, numbers)) > 1:
        raise click.UsageError("--record-size, --payload-file and --payload-monotonic exclude each other.")
    if rate is not None and rate != -1 and not 0 < rate <= 1_000_000:
        raise click.UsageError("--throughput takes records per second, above 0 and at most 1,000,000, or -1.")
    set_options, file = dict(setting("-X", text) for text in more), read_properties(config_file)
    if transactional_id is None and transaction_ms is not None:
        from triokafka.world.system import RealWorld

        transactional_id = f"performance-producer-{RealWorld().random.getrandbits(64):016x}"
    if transactional_id is not None:
        set_options["transactional_id"] = transactional_id
    is_transactional = {**file, **set_options}.get("transactional_id") is not None
    if is_transactional and bootstrap is None and against != "memory":
        raise click.UsageError("Transactions need --bootstrap-server or --against memory: the sink has none.")
    alone = {
        "-X": more,
        "--command-config": config_file,
        "--payload-delimiter": payload_delimiter != r"\n",
        "--payload-monotonic": numbers,
        "--print-metrics": with_metrics,
        "--transactional-id": is_transactional,
    }
    if compare and any(alone.values()):
        option = next(name for name, value in alone.items() if value)
        raise click.UsageError(
            f"--compare and {option} exclude each other: --compare gives all clients the same settings."
        )
    settings = Settings(
        topic=topic or _OWN_TOPIC,
        size=size or 100,
        rate=None if rate == -1 else rate,
        payload_file=payload_file,
        more=set_options,
        file=file,
        payload_delimiter=payload_delimiter,
        numbers=numbers,
        with_metrics=with_metrics,
        transaction_ms=(transaction_ms or _TRANSACTION_MS) if is_transactional else None,
        **run,
    )
    options = _options("localhost:9092" if bootstrap is None else bootstrap, settings)
    values = _values(settings)
    against = against or "sink"
    if bootstrap is None:
        does = "only acknowledges" if against == "sink" else "keeps all records in memory"
        starts = f"No --bootstrap-server: starting a local broker process that {does}."
    if compare:
        compare_clients = _comparison_in_checkout()
        if bootstrap is None:
            say(starts)
        compare_clients(bootstrap, against, settings, rounds)
        return 0
    if bootstrap is not None:
        return _measure(options, values, settings)
    with ready_process(*(SINK if against == "sink" else IN_MEMORY)) as (_, own):
        say(starts)
        return _measure({**options, "bootstrap_servers": own}, values, settings)


def _options(bootstrap: str, settings: Settings) -> dict[str, Any]:
    """Return validated producer options. Raises `click.UsageError`."""
    from triokafka.client.config import ProducerOptions

    options = {
        "bootstrap_servers": bootstrap,
        "acks": settings.acks if settings.acks == "all" else int(settings.acks),
        "compression_type": settings.compression,
        "linger_ms": settings.linger_ms,
        "batch_size": settings.batch_size,
    }
    ctx = click.get_current_context()

    def is_given(name: str) -> bool:
        parameter = {"compression_type": "compression", "bootstrap_servers": "bootstrap"}.get(name, name)
        return ctx.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE

    twice = [name for name in settings.more if name == "bootstrap_servers" or (name in options and is_given(name))]
    if twice:
        raise click.UsageError(f"-X {twice[0]} duplicates an option of this command: see --help.")
    defaults = {**given_profile(ctx).options, "max_block_ms": timeout_ms(ctx), "close_timeout_ms": _CLOSE_MS}
    for name, value in {**settings.file, **settings.more}.items():
        if name in options and name != "bootstrap_servers" and not is_given(name):
            options[name] = value  # not the default of this command
    checked = {**defaults, **settings.file, **options, **settings.more}
    configured(ProducerOptions.parse, checked)
    return checked


def _values(settings: Settings) -> Sequence[bytes]:
    from triokafka.cli.load.payloads import Numbers, file_values, json_values
    from triokafka.cli.user_classes import text_of

    if settings.numbers:
        return Numbers(settings.records)
    if settings.payload_file is None:
        return json_values(settings.size)
    delimiter = text_of({"": settings.payload_delimiter}, "", "")
    if not delimiter:
        raise click.UsageError("--payload-delimiter: the text is empty.")
    try:
        return file_values(settings.payload_file, delimiter)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--payload-file: {describe(error)}.") from None


def _comparison_in_checkout() -> Callable[[str | None, str, Settings, int], None]:
    """Return `benchmarks.clients.compare_command.compare`. Raises `click.UsageError` without a checkout.

    The drivers of other clients are in the repository, not in the wheel.
    """
    checkout = Path(__file__).parents[3]
    if not (checkout / "benchmarks" / "clients" / "compare_command.py").is_file():
        raise click.UsageError(
            "--compare needs a checkout of triokafka's repository, which contains the drivers of the other clients:"
            " clone it, and run pip install -e . in it."
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    command = import_module("benchmarks.clients.compare_command")
    return command.compare  # type: ignore[no-any-return]


def _measure(options: dict[str, Any], values: Sequence[bytes], settings: Settings) -> int:
    import trio

    from triokafka.cli.load.load_run import Api, Load, LoadRun

    assert settings.api in get_args(Api)
    load = Load(
        settings.topic,
        values,
        settings.records,
        settings.api,  # type: ignore[arg-type]
        settings.rate,
        settings.partition,
        settings.interval_ms / 1000,
        None if settings.transaction_ms is None else settings.transaction_ms / 1000,
    )

    reaching = hooked(options, options["max_block_ms"])

    shown = shows_progress() and not settings.as_json
    with progress("sending", settings.records, shown=shown) as advance:
        run = LoadRun(load, options, say, advance if shown else None)
        summary = trio.run(reaching.watch, run.perform)
    if settings.as_json:
        click.echo(json_text({**summary._asdict(), "latency": summary.latency._asdict()}))
    else:
        _print(summary, settings)
    if settings.with_metrics:
        print_metrics(run.metrics, err=settings.as_json)
    if summary.failed or (summary.first_error and not summary.interrupted):
        lost = f"{counted(summary.failed, 'record')} {'was' if summary.failed == 1 else 'were'}"
        click.echo(f"triokafka: {lost} not delivered: {summary.first_error}", err=True)
        return 1
    return 128 + signal.SIGINT if summary.interrupted else 0


def _print(summary: LoadSummary, settings: Settings) -> None:
    late = summary.latency
    if summary.interrupted:
        lost = summary.sent - summary.acknowledged
        click.echo(f"Interrupted after {counted(summary.sent, 'record')}, of which {lost:,} were not acknowledged.")
    click.echo(
        f"{counted(summary.acknowledged, 'record')} acknowledged in {summary.seconds:.2f} s:"
        f" {summary.records_per_second:,.0f} records/s, {summary.megabytes_per_second:,.1f} MB/s"
    )
    if late.measured:
        since = "the scheduled time" if settings.rate else "the call"
        quantiles = f"p50 {late.p50:.2f}, p95 {late.p95:.2f}, p99 {late.p99:.2f}, p99.9 {late.p999:.2f}"
        click.echo(
            f"latency from {since}, {counted(late.measured, 'record')} sampled: average {late.average:.2f} ms,"
            f" {quantiles}, worst {late.worst:.2f}"
        )
    processor = f"processor {summary.cpu_seconds_per_million:.2f} s a million records, " if summary.acknowledged else ""
    click.echo(f"{processor}peak memory {summary.peak_mib:.0f} MiB")
