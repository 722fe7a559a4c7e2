"""Compressed produce: the broker beside Apache Kafka, by codec and record size.

A librdkafka producer in its own process sends the same records to each broker, with acks=all and batches as large as
they get within 5 ms. Both brokers run during the whole benchmark and take turns, round after round; the table has
medians. Apache Kafka runs with the options of its own start script, so with its full compiler, and each case is warmed
up before it is measured.

Compare the brokers' processor time. The rate is that of broker and producer together on this machine; with costly
codecs the producer alone decides it.

``python -m benchmarks.broker_codecs --quick``, or ``--codec lz4 --size 1024 --rounds 5``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

import triokafka
from benchmarks import plots
from benchmarks.broker_kinds import KINDS, Instance
from benchmarks.broker_load import STRETCH, Load
from benchmarks.broker_load import run as run_load
from benchmarks.clients.brokers import KafkaBroker
from benchmarks.clients.comparison import turns
from benchmarks.processes import cpu_seconds
from benchmarks.report import RESULTS, as_document, save
from triokafka.cli.load.brokers import MeasurementError

__all__ = ["Plan", "as_document", "draw", "main", "plan_of", "run", "show"]

CODECS: Final = ("none", "lz4", "zstd", "snappy", "gzip")

_OURS: Final = "triokafka"
_KAFKA: Final = "Apache Kafka"
_MILLION: Final = 1_000_000
_TIMEOUT_MS: Final = 60_000
_SHARES: Final = {"gzip": 0.2}
"""The share of the records for a codec with which the producer takes ten times as long as a broker."""


class Plan(NamedTuple):
    """The measurements and their sizes."""

    codecs: tuple[str, ...] = CODECS
    sizes: tuple[int, ...] = (100, 1024, 10_240)
    rounds: int = 3
    megabytes: int = 400
    """Bytes of values in one measurement."""
    most_records: int = _MILLION
    warm_up: int = _MILLION
    """Records that warm up each case, unless they exceed ``warm_up_megabytes``."""
    warm_up_megabytes: int = 1_500
    partitions: int = 1

    def records(self, codec: str, size: int) -> int:
        """Return the number of records of one measurement."""
        return self._whole(codec, min(self.most_records, self.megabytes * _MILLION // size))

    def warm_up_records(self, codec: str, size: int) -> int:
        """Return the number of records before the first measurement of a case."""
        return self._whole(codec, min(self.warm_up, self.warm_up_megabytes * _MILLION // size))

    def _whole(self, codec: str, records: int) -> int:
        unit = STRETCH * self.partitions
        return max(1, int(records * _SHARES.get(codec, 1.0)) // unit) * unit


QUICK: Final = Plan(sizes=(1024,), rounds=2, megabytes=200, warm_up_megabytes=300)
"""A plan of about two minutes."""


class CodecRow(NamedTuple):
    """Medians of both brokers for one codec and size; ratios above 1 are in favour of this broker."""

    codec: str
    size: int
    ours_per_second: float
    kafka_per_second: float
    ours_cpu_seconds: float
    """The broker's processor time for a million records."""
    kafka_cpu_seconds: float

    @property
    def rate_ratio(self) -> float:
        """This broker's rate over Apache Kafka's."""
        return self.ours_per_second / self.kafka_per_second

    @property
    def cpu_ratio(self) -> float:
        """Apache Kafka's processor time over this broker's."""
        return self.kafka_cpu_seconds / self.ours_cpu_seconds


class Findings(NamedTuple):
    """The results of a run."""

    codecs: list[CodecRow]
    failures: list[str]


class _Measured(NamedTuple):
    per_second: float
    cpu_seconds: float


class _Run:
    """The running brokers and their failures."""

    def __init__(self, plan: Plan, brokers: dict[str, KafkaBroker]) -> None:
        self._plan = plan
        self._brokers = brokers
        self._topics = 0
        self.failures: list[str] = []

    def row(self, codec: str, size: int) -> CodecRow | None:
        """Measure one case with both brokers in turn. Return None if one of them failed."""
        names = list(self._brokers)
        found: dict[str, list[_Measured]] = {name: [] for name in names}
        try:
            for name in names:
                self._measure(name, codec, size, self._plan.warm_up_records(codec, size))
            for round_number in range(self._plan.rounds):
                for name in turns(names, round_number):
                    found[name].append(self._measure(name, codec, size, self._plan.records(codec, size)))
        except (MeasurementError, triokafka.KafkaError) as error:
            self.failures.append(f"{codec}, {size} B: {error!r}")
            return None
        ours, kafka = (_Measured(*map(statistics.median, zip(*found[name], strict=True))) for name in (_OURS, _KAFKA))
        row = CodecRow(codec, size, ours.per_second, kafka.per_second, ours.cpu_seconds, kafka.cpu_seconds)
        print(_line(row), file=sys.stderr, flush=True)  # a run is long
        return row

    def _measure(self, name: str, codec: str, size: int, records: int) -> _Measured:
        if sys.stderr.isatty():
            print(f"  {codec}, {size} B: {name:40}", end="\r", file=sys.stderr, flush=True)
        broker = self._brokers[name]
        self._topics += 1
        topic = f"codecs-{self._topics}"
        trio.run(_create_topic, broker.bootstrap, topic, self._plan.partitions)
        try:
            load = Load(broker.bootstrap, topic, records, size, self._plan.partitions, 1, codec)
            before = cpu_seconds(broker.pid)
            moved = run_load("produce", load)
            spent = cpu_seconds(broker.pid) - before
            stored = sum(broker.received(topic, number) for number in range(self._plan.partitions))
            if stored != moved.records:
                raise MeasurementError(f"{name}: {moved.records} records were acknowledged, but {stored} are there")
        finally:
            trio.run(_delete_topic, broker.bootstrap, topic)
        return _Measured(moved.per_second, spent / moved.records * _MILLION)


async def _create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap, request_timeout_ms=_TIMEOUT_MS) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, partitions, 1)], timeout_ms=_TIMEOUT_MS)


async def _delete_topic(bootstrap: str, topic: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap, request_timeout_ms=_TIMEOUT_MS) as admin:
        await admin.delete_topics([topic], timeout_ms=_TIMEOUT_MS)


@contextmanager
def _running(names: Sequence[str]) -> Iterator[dict[str, KafkaBroker]]:
    with ExitStack() as stack:
        brokers = {}
        for name in names:
            directory = tempfile.TemporaryDirectory(prefix="bench-codecs-", ignore_cleanup_errors=True)
            instance = Instance(KINDS[name], Path(stack.enter_context(directory)))
            stack.callback(instance.kill)
            brokers[name] = instance.start().broker
        yield brokers


def run(plan: Plan | None = None) -> Findings:
    """Measure. Without a plan, measure every codec and size."""
    plan = plan or Plan()
    for name in (_OURS, _KAFKA):
        why = KINDS[name].missing()
        if why:
            return Findings([], [f"{name} is not measured: {why}"])
    with _running((_OURS, _KAFKA)) as brokers:
        measuring = _Run(plan, brokers)
        rows = [measuring.row(codec, size) for codec in plan.codecs for size in plan.sizes]
        return Findings([row for row in rows if row is not None], measuring.failures)


def show(found: Findings) -> None:
    """Print the table. Ratios above 1 are in favour of this broker."""
    print(
        "\nProduce, by codec and size of a value: records a second, and the broker's CPU seconds for a million records"
    )
    head = f"{'triokafka':>10} {'Kafka':>10} {'ratio':>6}"
    print(f"  {'codec':7} {'bytes':>6}  {head}  {head}")
    for row in found.codecs:
        print(_line(row))
    for failure in found.failures:
        print(f"  FAILED  {failure}")


def _line(row: CodecRow) -> str:
    return (
        f"  {row.codec:7} {row.size:6,}  {row.ours_per_second:10,.0f} {row.kafka_per_second:10,.0f}"
        f" {row.rate_ratio:6.2f}  {row.ours_cpu_seconds:10.2f} {row.kafka_cpu_seconds:10.2f} {row.cpu_ratio:6.2f}"
    )


def draw(found: Findings) -> Any:
    """Plot the ratios of processor time and rate for each case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2 + 0.4 * len(found.codecs)))
    axis = figure.subplots()
    rows = list(reversed(found.codecs))
    places = range(len(rows))
    for shift, field, name, alpha in ((0.2, "cpu_ratio", "processor time", 1.0), (-0.2, "rate_ratio", "rate", 0.5)):
        values = [getattr(row, field) for row in rows]
        axis.barh([place + shift for place in places], values, height=0.4, color=plots.OURS, alpha=alpha)
        for place, value in zip(places, values, strict=True):
            axis.annotate(
                f"{plots.shown(value)} {name}",
                (value, place + shift),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    axis.set_yticks(places, [f"{row.codec}, {row.size:,} B" for row in rows])
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xlabel("Apache Kafka's over ours (longer is better; 1 is equal)")
    axis.margins(x=0.2)
    plots.head(figure, "Compressed produce: the broker's processor time and the rate, beside Apache Kafka")
    plots.quiet(axis)
    return figure


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Return the plan that the command line requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.broker_codecs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one size, less of everything")
    parser.add_argument("--codec", action="append", choices=CODECS, help="may be given more than once")
    parser.add_argument("--size", action="append", type=int, help="bytes of a value; may be given more than once")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--megabytes", type=int, help="of one measurement")
    parser.add_argument("--warm-up", type=int, metavar="MEGABYTES", help="of each case, before it is measured")
    asked = parser.parse_args(arguments)
    plan = QUICK if asked.quick else Plan()
    return plan._replace(
        codecs=tuple(asked.codec or plan.codecs),
        sizes=tuple(asked.size or plan.sizes),
        rounds=asked.rounds or plan.rounds,
        megabytes=asked.megabytes or plan.megabytes,
        warm_up_megabytes=asked.warm_up or plan.warm_up_megabytes,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON and a picture. Return 1 if a measurement failed."""
    found = run(plan_of(arguments))
    show(found)
    save("broker_codecs", as_document(found), draw(found))
    print(f"\nJSON and picture are in {RESULTS}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
