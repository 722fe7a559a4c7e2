"""``triokafka perf consume``: how fast records are read."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.client_properties import read_properties, setting
from triokafka.cli.completion_values import group_names, topic_names
from triokafka.cli.connection import bootstrap_option, configuration_options, given_profile, timeout_ms
from triokafka.cli.counting import counted
from triokafka.cli.load.brokers import IN_MEMORY, ready_process
from triokafka.cli.load.documents import json_text
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import SIZE, FiniteNumber, Integer, configured
from triokafka.cli.perf.metrics_table import print_metrics
from triokafka.cli.progress import progress, say, shows_progress
from triokafka.cli.unreachable_brokers import hooked

if TYPE_CHECKING:
    from triokafka.cli.load.read_run import ReadSummary, Window

_OWN_TOPIC: Final = "perf"
_MEBIBYTE: Final = 1024 * 1024
_FETCH: Final = 1_048_576
_DATE_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f"
_HEADER: Final = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec",
    "rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip
_DETAILED_HEADER: Final = ("time", "threadId", *_HEADER[2:])


@click.command(
    "consume",
    epilog=examples(
        "triokafka perf consume",
        "triokafka perf consume --bootstrap-server localhost:9092 --topic load --num-records 5000000",
        "triokafka perf consume --bootstrap-server localhost:9092 --topic load --csv",
        "triokafka perf consume --api arrow --json",
    ),
)
@click.option(
    "--topic",
    shell_complete=topic_names,
    help=f"Topic to read.  [default: {_OWN_TOPIC}; must be given with --bootstrap-server]",
)
@click.option("--include", metavar="REGEX", help="Read all topics whose whole name matches this regular expression.")
@bootstrap_option(timeout_names=("--broker-timeout",), without="A broker.  [default: start and fill one]")
@click.option(
    "--num-records",
    "--messages",
    "records",
    type=Integer(min=1),
    default=1_000_000,
    show_default=True,
    help="Number of records to read.",
)
@click.option(
    "--record-size", "size", type=SIZE, metavar="BYTES",
    help="Size of a value in a started broker.  [default: 100]",
)  # fmt: skip
@click.option(
    "--group",
    metavar="ID",
    shell_complete=group_names,
    help="Consumer group.  [default: perf-consumer-… with a random number]",
)
@click.option("--from-latest", is_flag=True, help="Start at the end of the log instead of the oldest record.")
@click.option("--timeout", "idle_ms", type=FiniteNumber(min=1), default=10_000, show_default=True, metavar="MS",
              help="End after this long without a record.")  # fmt: skip
@click.option("--fetch-size", type=Integer(min=1), metavar="BYTES", default=_FETCH, show_default=True,
              help="Maximum bytes per partition in a fetch.")  # fmt: skip
@click.option("--socket-buffer-size", type=Integer(min=1), metavar="BYTES", help="Receive buffer of the connections.")
@click.option(
    "--api", type=click.Choice(["poll", "arrow"]), default="poll", show_default=True, help="Consumer call to measure."
)
@click.option("--reporting-interval", "interval_ms", type=FiniteNumber(min=1), default=5_000, show_default=True,
              metavar="MS", help="Interval of progress reports.")  # fmt: skip
@click.option("--show-detailed-stats", "detailed", is_flag=True,
              help="Print one line of comma-separated values per interval, and no summary.")  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print the summary in the columns of Kafka's tool.")
@click.option("--hide-header", is_flag=True, help="Omit the names of the columns.")
@click.option("--date-format", default=_DATE_FORMAT, metavar="FORMAT", help="strftime format of times in columns.")
@configuration_options("consumer", "--command-property")
@click.option("--print-metrics", "with_metrics", is_flag=True, help="Also print the consumer's metrics at the end.")
@click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")
def consume(
    topic: str | None,
    include: str | None,
    bootstrap: str | None,
    records: int,
    size: int | None,
    group: str | None,
    from_latest: bool,
    idle_ms: float,
    fetch_size: int,
    socket_buffer_size: int | None,
    api: Any,
    interval_ms: float,
    detailed: bool,
    as_csv: bool,
    hide_header: bool,
    date_format: str,
    config_file: str | None,
    more: tuple[str, ...],
    with_metrics: bool,
    wants_json: bool,
) -> int:
    """Read records as a member of a group, and report speed, processor time and memory.

    It starts at the oldest record after the first assignment; the measured time excludes joining the group and the idle
    wait at the end. Without --bootstrap-server it starts an in-memory broker and fills it first. It commits no offsets.
    Ctrl-C ends the run with the summary so far.
    """
    import trio

    from triokafka.cli.load.read_run import Reading, ReadRun

    if bootstrap is not None and (topic is None) is (include is None):
        raise click.UsageError("--bootstrap-server needs --topic NAME or --include REGEX.")
    if bootstrap is None and include is not None:
        raise click.UsageError("--include needs --bootstrap-server.")
    try:
        re.compile(include or "")
    except re.error as error:
        raise click.UsageError(f"--include: {include!r} is not a regular expression: {error}.") from None
    if bootstrap is not None and size is not None:
        raise click.UsageError("--record-size and --bootstrap-server exclude each other.")
    if bootstrap is None and from_latest:
        raise click.UsageError(
            "--from-latest needs --bootstrap-server: no other program writes to a broker started by this command."
        )
    if sum((detailed, as_csv, wants_json)) > 1:
        raise click.UsageError("--show-detailed-stats, --csv and --json exclude each other.")
    if api == "arrow" and find_spec("pyarrow") is None:
        raise click.UsageError("--api arrow needs pyarrow: pip install 'triokafka[arrow]'.")
    options = _options(bootstrap, group, fetch_size, socket_buffer_size, config_file, more)
    reading = Reading(topic or _OWN_TOPIC, records, api, from_latest, idle_ms, interval_ms, include)

    def report(window: Window) -> None:
        if detailed:
            click.echo(_window_line(window, date_format))
        else:
            say(_progress(window, records))

    with _broker(bootstrap, reading.topic, records, size or 100) as address:
        if detailed and not hide_header:
            click.echo(", ".join(_DETAILED_HEADER))
        shown = shows_progress(beside_output=detailed) and not wants_json
        with progress("reading", records, shown=shown) as advance:
            options["bootstrap_servers"] = address
            reaching = hooked(options, options["default_api_timeout_ms"])
            run = ReadRun(reading, options, report, advance)
            summary = trio.run(reaching.watch, run.perform)
    if wants_json:
        click.echo(json_text(summary._asdict()))
    elif as_csv:
        if not hide_header:
            click.echo(", ".join(_HEADER))
        click.echo(_summary_line(summary, date_format))
    elif not detailed:
        _print(summary)
    if with_metrics:
        print_metrics(run.metrics, err=wants_json)
    if not summary.complete and not summary.interrupted:
        click.echo(
            f"triokafka: only {summary.records:,} of {counted(records, 'record')} arrived: none for {idle_ms:.0f} ms.",
            err=True,
        )
        return 1
    return 128 + signal.SIGINT if summary.interrupted else 0


def _options(
    bootstrap: str | None,
    group: str | None,
    fetch_size: int,
    buffer: int | None,
    config_file: str | None,
    more: tuple[str, ...],
) -> dict[str, Any]:
    """Return validated consumer options: the command's own override -X, which overrides the file."""
    from triokafka.client.config import ConsumerOptions
    from triokafka.world.system import RealWorld

    ctx = click.get_current_context()
    options: dict[str, Any] = {
        **given_profile(ctx).options,
        "default_api_timeout_ms": timeout_ms(ctx),
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "client_id": "perf-consumer-client",
        "max_partition_fetch_bytes": fetch_size,
        **read_properties(config_file),
        **dict(setting("-X", text) for text in more),
    }
    options.pop("bootstrap_servers", None)
    if buffer is not None:
        options["receive_buffer_bytes"] = buffer
    if group is not None:
        options["group_id"] = group
    options.setdefault("group_id", f"perf-consumer-{RealWorld().random.randrange(100_000)}")
    configured(
        ConsumerOptions.parse, {"bootstrap_servers": "localhost:9092" if bootstrap is None else bootstrap, **options}
    )
    return options


@contextmanager
def _broker(bootstrap: str | None, topic: str, records: int, size: int) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    click.echo("No --bootstrap-server: starting and filling a local broker process.", err=True)
    with ready_process(*IN_MEMORY) as (_, own):
        # In its own process, so that its processor time is not counted.
        fill = ["perf", "produce", "--bootstrap-server", own, "--topic", topic, "--api", "send-many"]
        command = [sys.executable, "-m", "triokafka", *fill, "--num-records", str(records), "--record-size", str(size)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"Filling the broker failed: {done.stderr.strip()}")
        yield own


def _progress(window: Window, records: int) -> str:
    line = f"{window.all_records:,} of {counted(records, 'record')} read"
    if not window.records:
        return f"{line}; none for {window.seconds:.0f} s"
    speed, size = window.records / window.seconds, window.size / window.seconds / 1e6
    return f"{line}; {speed:,.0f} records/s, {size:,.1f} MB/s"


def _window_line(window: Window, date_format: str) -> str:
    rates = (f"{window.size / _MEBIBYTE / window.seconds:.4f}", f"{window.records / window.seconds:.4f}")
    values = (
        _time(window.ended_at_ms, date_format),
        "0",  # Kafka's tool had several threads once
        f"{window.all_size / _MEBIBYTE:.4f}",
        rates[0],
        str(window.all_records),
        rates[1],
        f"{window.join_seconds * 1000:.0f}",
        f"{window.seconds * 1000:.0f}",
        *rates,
    )
    return ", ".join(values)


def _summary_line(summary: ReadSummary, date_format: str) -> str:
    size, seconds = summary.bytes / _MEBIBYTE, summary.seconds or float("nan")
    rates = (f"{size / seconds:.4f}", f"{summary.records / seconds:.4f}")
    values = (
        _time(summary.started_at_ms, date_format),
        _time(summary.ended_at_ms, date_format),
        f"{size:.4f}",
        rates[0],
        str(summary.records),
        rates[1],
        f"{summary.join_seconds * 1000:.0f}",
        f"{summary.seconds * 1000:.0f}",
        *rates,
    )
    return ", ".join(values)


def _time(ms: int, date_format: str) -> str:
    text = datetime.fromtimestamp(ms / 1000).strftime(date_format)
    # Kafka's tool prints milliseconds; the times have no finer resolution.
    return text[:-3] if date_format.endswith("%f") else text


def _print(summary: ReadSummary) -> None:
    if summary.interrupted:
        click.echo(f"Interrupted after {counted(summary.records, 'record')}.")
    click.echo(
        f"{counted(summary.records, 'record')} read in {summary.seconds:.2f} s:"
        f" {summary.records_per_second:,.0f} records/s, {summary.megabytes_per_second:,.1f} MB/s;"
        f" joining the group took {summary.join_seconds:.2f} s"
    )
    processor = f"processor {summary.cpu_seconds_per_million:.2f} s a million records, " if summary.records else ""
    click.echo(f"{processor}peak memory {summary.peak_mib:.0f} MiB")
