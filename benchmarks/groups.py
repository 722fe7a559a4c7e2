"""The group coordinator beside noida-db and, if its jars are present, Apache Kafka.

Members and committers are raw connections in their own process (`benchmarks.groups_load`). The brokers take turns,
round after round, each time with a fresh directory, and the medians are compared. Processor time and memory are the
broker's alone; memory excludes mapped files. Another client sends small requests all the time; its longest wait shows
how long the broker served nobody else.

``group.initial.rebalance.delay.ms`` is `DELAY_MS` in the brokers that have it, and part of the seconds in which a
classic group forms.

``python -m benchmarks.groups --quick``, or ``--broker triokafka --only offsets``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import triokafka
from benchmarks import groups_load
from benchmarks.broker import create_topic
from benchmarks.broker_kinds import KINDS, Instance
from benchmarks.clients.brokers import KafkaBroker
from benchmarks.clients.comparison import turns
from benchmarks.groups_load import Job
from benchmarks.groups_tables import (
    Findings,
    GroupRow,
    LoadingRow,
    ManyRow,
    OffsetRow,
    draw,
    show,
    verdicts,
)
from benchmarks.processes import private_mib
from benchmarks.report import RESULTS, as_document, save
from triokafka.cli.load.brokers import MeasurementError

__all__ = ["Plan", "as_document", "draw", "main", "plan_of", "run", "show"]

PARTS: Final = ("classic", "consumer", "many", "offsets", "loading")
BROKERS: Final = ("triokafka", "noida-db", "Apache Kafka")
OURS: Final = BROKERS[0]
WITHOUT_CONSUMER_PROTOCOL: Final = ("noida-db",)

DELAY_MS: Final = 500
_SESSION_MS: Final = 600_000  # members of the first groups send nothing until the last group has formed
_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "group.consumer.max.session.timeout.ms": str(_SESSION_MS),
    "group.consumer.session.timeout.ms": str(_SESSION_MS),
}
_MICRO: Final = 1_000_000
_SETTLE_SECONDS: Final = 1.0


class Many(NamedTuple):
    """``groups`` groups of ``each`` members."""

    groups: int
    each: int


class Loading(NamedTuple):
    """``groups`` groups commit every partition ``repeats`` times."""

    groups: int
    times: int


class Plan(NamedTuple):
    """The measurements and their sizes."""

    brokers: tuple[str, ...] = BROKERS
    partitions: int = 1_000
    members: tuple[int, ...] = (10, 100, 300, 1_000)
    many: tuple[Many, ...] = (Many(1_000, 3), Many(100, 100))
    beats: int = 30_000
    """Heartbeats of one measurement."""
    batches: tuple[int, ...] = (1, 10, 100, 1_000)
    offsets: int = 200_000
    """Offsets committed in one measurement, unless that takes more than a few thousand requests."""
    loading: tuple[Loading, ...] = (Loading(1_000, 1), Loading(10, 100))
    rounds: int = 2
    only: tuple[str, ...] = PARTS


QUICK: Final = Plan(
    members=(10, 100),
    many=(Many(40, 3),),
    beats=4_000,
    offsets=10_000,
    loading=(Loading(20, 1),),
    rounds=1,
)
"""A plan of about a minute."""


_Figures: TypeAlias = tuple[type, tuple[Any, ...], tuple[float, ...]]
"""The kind of a row, its subject, and the measured values."""


class Run:
    """One run of the benchmark; collects failures."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self.failures: list[str] = []
        self._found: dict[tuple[Any, ...], list[tuple[float, ...]]] = {}
        self._brokers = []
        for name in plan.brokers:
            why = KINDS[name].missing()
            if why:
                print(f"{name} is not measured: {why}", file=sys.stderr)
            else:
                self._brokers.append(name)

    def measure(self) -> Findings:
        """Measure everything that the plan requests, with all brokers in turn."""
        parts: dict[str, Callable[[str, KafkaBroker], Iterator[_Figures]]] = {
            "classic": self._one_group,
            "consumer": self._one_consumer_group,
            "many": self._many,
            "offsets": self._offsets,
        }
        chosen = [part for part in parts if part in self._plan.only]
        for round_number in range(self._plan.rounds):
            for name in turns(self._brokers, round_number):
                if chosen:
                    with self._trying(name), self._fresh(name) as broker:
                        for part in chosen:
                            with self._trying(f"{part}: {name}"):
                                self._keep(name, parts[part](name, broker))
                if "loading" in self._plan.only:
                    with self._trying(f"loading: {name}"):
                        self._keep(name, self._loading(name))
        rows = [key[0](*key[1:], *map(statistics.median, zip(*all_, strict=True))) for key, all_ in self._found.items()]
        groups = sorted((row for row in rows if isinstance(row, GroupRow)), key=lambda row: row[:2])
        many = sorted((row for row in rows if isinstance(row, ManyRow)), key=lambda row: row[:3])
        offsets = sorted((row for row in rows if isinstance(row, OffsetRow)), key=lambda row: row[:2])
        loading = sorted((row for row in rows if isinstance(row, LoadingRow)), key=lambda row: row[:2])
        return Findings(groups, many, offsets, loading, verdicts(groups, offsets, loading, OURS), self.failures)

    def _keep(self, name: str, figures: Iterator[_Figures]) -> None:
        for row_type, key, measured in figures:
            self._found.setdefault((row_type, *key, name), []).append(measured)

    # ---------------------------------------------------------------- the parts, for one broker

    def _one_group(self, name: str, broker: KafkaBroker, kind: str = "classic") -> Iterator[_Figures]:
        for members, kib, *steps in groups_load.run(kind, self._job(broker, sizes=list(self._plan.members))):
            yield GroupRow, (kind, members), (kib, *(figure for step in steps for figure in step))

    def _one_consumer_group(self, name: str, broker: KafkaBroker) -> Iterator[_Figures]:
        if name not in WITHOUT_CONSUMER_PROTOCOL:
            yield from self._one_group(name, broker, "consumer")

    def _many(self, name: str, broker: KafkaBroker) -> Iterator[_Figures]:
        for groups, each in self._plan.many:
            for protocol, load in (("classic", "many"), ("consumer", "many_consumers")):
                if protocol == "consumer" and name in WITHOUT_CONSUMER_PROTOCOL:
                    continue
                repeats = max(1, self._plan.beats // groups // each)
                job = self._job(broker, group=f"of-{each}", sizes=[each], groups=groups, repeats=repeats)
                ((_, _, kib, formed, beaten),) = groups_load.run(load, job)
                seconds, cpu, _, worst_ms = formed
                beats, beat_seconds, beat_cpu, _, beat_worst_ms = beaten
                figures = (beats / beat_seconds, beat_cpu / beats * _MICRO, beat_worst_ms)
                yield ManyRow, (protocol, groups, each), (kib, seconds, cpu, worst_ms, *figures)

    def _offsets(self, _name: str, broker: KafkaBroker) -> Iterator[_Figures]:
        job = self._job(broker, sizes=list(self._plan.batches), repeats=self._plan.offsets)
        for what, size, count, seconds, cpu, _, worst_ms in groups_load.run("commits", job):
            yield OffsetRow, (what, size), (count / seconds, cpu / count * _MICRO, worst_ms)

    def _loading(self, name: str) -> Iterator[_Figures]:
        for groups, times in self._plan.loading:
            with self._instance(name) as instance:
                broker = instance.start().broker
                create_topic(broker.bootstrap, groups_load.TOPIC, self._plan.partitions)
                one = self._job(broker, group="first", groups=1)
                groups_load.run("fill", one)
                broker, empty_seconds, empty_cpu, _, empty_mib = self._restarted(instance, one)
                job = self._job(broker, groups=groups, repeats=times)
                ((records, _, cpu, _, _),) = groups_load.run("fill", job)
                _, seconds, full_cpu, worst_ms, mib = self._restarted(instance, job)
            keys = groups * self._plan.partitions
            load_micros, bytes_each = (full_cpu - empty_cpu) / records * _MICRO, (mib - empty_mib) * 2**20 / keys
            figures = (cpu / records * _MICRO, empty_seconds, seconds, load_micros, worst_ms, bytes_each)
            yield LoadingRow, (keys, records), figures

    def _restarted(self, instance: Instance, job: Job) -> tuple[KafkaBroker, float, float, float, float]:
        """Stop and start a broker.

        Returns its seconds and processor seconds until it serves the groups' positions, the wait of other clients, and
        its MiB.
        """
        instance.stop()
        since = time.monotonic()
        broker = instance.start().broker
        ((seconds, cpu, worst_ms),) = groups_load.run("serving", job._replace(pid=broker.pid, since=since))
        time.sleep(_SETTLE_SECONDS)
        return broker, seconds, cpu, worst_ms, private_mib(broker.pid)

    # ---------------------------------------------------------------- what the parts share

    def _job(self, broker: KafkaBroker, **what: Any) -> Job:
        return Job(broker.bootstrap, broker.pid, self._plan.partitions, **what)

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        if sys.stderr.isatty():
            print(f"  {what:90}", end="\r", file=sys.stderr, flush=True)
        try:
            yield
        except MeasurementError as error:
            self.failures.append(f"{what}: {error}")
        except triokafka.KafkaError as error:
            self.failures.append(f"{what}: {error!r}")

    @contextmanager
    def _instance(self, name: str) -> Iterator[Instance]:
        with tempfile.TemporaryDirectory(dir=self._directory, ignore_cleanup_errors=True) as directory:
            instance = Instance(KINDS[name], Path(directory), _SETTINGS)
            try:
                yield instance
            finally:
                instance.kill()

    @contextmanager
    def _fresh(self, name: str) -> Iterator[KafkaBroker]:
        with self._instance(name) as instance:
            broker = instance.start().broker
            create_topic(broker.bootstrap, groups_load.TOPIC, self._plan.partitions)
            yield broker


# -------------------------------------------------------------------- the command


def run(plan: Plan | None = None) -> Findings:
    """Measure. Without a plan, measure everything."""
    with tempfile.TemporaryDirectory(prefix="bench-groups-", ignore_cleanup_errors=True) as directory:
        return Run(plan or Plan(), Path(directory)).measure()


def plan_of(arguments: Sequence[str] | None = None) -> Plan:
    """Return the plan that the command line requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.groups", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be given more than once")
    parser.add_argument("--broker", action="append", choices=list(KINDS), help="may be given more than once")
    parser.add_argument("--members", action="append", type=int, help="of one group; may be given more than once")
    parser.add_argument("--batch", action="append", type=int, help="offsets in a commit; may be given more than once")
    parser.add_argument("--partitions", type=int, help="of the topic")
    parser.add_argument("--rounds", type=int)
    asked = parser.parse_args(arguments)
    plan = QUICK if asked.quick else Plan()
    return plan._replace(
        only=tuple(asked.only or plan.only),
        brokers=tuple(asked.broker or plan.brokers),
        members=tuple(asked.members or plan.members),
        batches=tuple(asked.batch or plan.batches),
        partitions=asked.partitions or plan.partitions,
        rounds=asked.rounds or plan.rounds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON and a picture. Return 1 if a measurement failed."""
    found = run(plan_of(arguments))
    show(found)
    save("groups", as_document(found), draw(found))
    print(f"\nJSON and picture are in {RESULTS}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
