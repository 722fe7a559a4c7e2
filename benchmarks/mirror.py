"""Copying a topic from one cluster to another, beside MirrorMaker 2: records and megabytes per processor second.

Source and target are brokers of this package, the same for both. Each tool copies the whole topic into a new target in
every round, and they take turns. Processor time is that of the copying process, start included; the JVM's is also given
without its start (a run with an empty topic). Needs Maven and a JDK.

``python -m benchmarks mirror``, or ``python -m benchmarks.mirror --records 10000000 --bytes 1000 --data-dir DIR``.
Without ``--data-dir`` the logs of both brokers are in memory, the topic twice.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio

import triokafka
from benchmarks.processes import cpu_seconds
from tests.interop.mirror_maker import mirror_maker
from tests.support.broker_process import BrokerProcess
from triokafka.structs import TopicPartition

_PARTITIONS: Final = 6
_TIMEOUT: Final = 900.0
_LOOK: Final = 0.2
_KINDS: Final = ("triokafka", "triokafka, exactly once", "MirrorMaker 2")


class Row(NamedTuple):
    """One tool's medians. The ratio is records per processor second over MirrorMaker's."""

    tool: str
    seconds: float
    cpu_seconds: float
    start_cpu_seconds: float
    records_per_cpu_second: float
    megabytes_per_cpu_second: float
    ratio: float


class _Run(NamedTuple):
    seconds: float
    cpu: float


def run(
    records: int = 2_000_000, record_bytes: int = 500, rounds: int = 3, data_directory: Path | None = None
) -> list[Row]:
    """Measure all tools, taking turns. The logs of both brokers are under ``data_directory``, or in memory."""
    home = None if data_directory is None else data_directory / "source"
    source = BrokerProcess(home, settings={"num.partitions": str(_PARTITIONS)}, discards_log=True)
    try:
        west = source.start()
        trio.run(_fill, west, records, record_bytes)
        starts = {kind: _copy(kind, west, 0, data_directory).cpu for kind in _KINDS}
        runs: dict[str, list[_Run]] = {kind: [] for kind in _KINDS}
        for number in range(rounds):
            for kind in _KINDS:
                runs[kind].append(_copy(kind, west, records, data_directory))
                print(f"    round {number + 1}, {kind}: {runs[kind][-1].cpu:.1f} s of CPU", file=sys.stderr, flush=True)
    finally:
        source.close()
    rates = {}
    for kind, found in runs.items():
        cpu = statistics.median(one.cpu for one in found)
        rates[kind] = (statistics.median(one.seconds for one in found), cpu, starts[kind], records / cpu)
    theirs = rates["MirrorMaker 2"]
    return [
        Row(
            kind,
            seconds,
            cpu,
            start,
            rate,
            rate * record_bytes / 1e6,
            # Without the start-up of either, which matters in short runs.
            (records / max(0.001, cpu - start)) / (records / max(0.001, theirs[1] - theirs[2])),
        )
        for kind, (seconds, cpu, start, rate) in rates.items()
    ]


async def _fill(bootstrap: str, records: int, record_bytes: int) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(name, _PARTITIONS) for name in ("full", "empty")])
    value = bytes(record_bytes)
    async with triokafka.Producer(bootstrap_servers=bootstrap, batch_size=1 << 18) as producer:
        for first in range(0, records, 10_000):
            count = min(10_000, records - first)
            await producer.send_many("full", [value] * count, partition=first // 10_000 % _PARTITIONS)


def _copy(kind: str, west: str, records: int, data_directory: Path | None) -> _Run:
    """Copy the topic into a new target; return wall clock and processor time of the copying process."""
    topic = "full" if records else "empty"
    home = None if data_directory is None else Path(tempfile.mkdtemp(prefix="target-", dir=data_directory))
    target = BrokerProcess(home, discards_log=True)
    began = time.monotonic()
    try:
        east = target.start()
        began = time.monotonic()
        if kind == "MirrorMaker 2":
            with (
                tempfile.TemporaryDirectory() as directory,
                mirror_maker(Path(directory), west, east, topics=topic, topics_exclude="none") as java,
            ):
                cpu = trio.run(_until_copied, java.pid, east, topic, records)
        else:
            command = [sys.executable, "-m", "triokafka", "mirror", "run", "--source", west, "--target", east]
            command += ["--source-alias", "west", "--target-alias", "east", "--topics", topic]
            command += ["--exactly-once"] if "exactly" in kind else []
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                cpu = trio.run(_until_copied, process.pid, east, topic, records)
            finally:
                process.terminate()
                process.wait(60)
        return _Run(time.monotonic() - began, cpu)
    finally:
        target.close()
        if home is not None:
            shutil.rmtree(home)


async def _until_copied(pid: int, east: str, topic: str, records: int) -> float:
    """Wait until the target has all records, or the empty topic; return the processor time so far."""
    partitions = [TopicPartition(f"west.{topic}", number) for number in range(_PARTITIONS)]
    with trio.fail_after(_TIMEOUT):
        async with triokafka.AdminClient(bootstrap_servers=east) as admin:
            while True:
                found = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
                # Transaction markers take offsets, too: at most one commit interval of records remains.
                if not found.errors and sum(found[one].offset for one in partitions) >= records:
                    return cpu_seconds(pid)
                await trio.sleep(_LOOK)


def show(found: Sequence[Row]) -> None:
    """Print the table."""
    print(f"{'tool':28}{'seconds':>9}{'CPU s':>8}{'start':>8}{'records/CPU s':>16}{'MB/CPU s':>10}{'ratio':>8}")
    for row in found:
        print(
            f"{row.tool:28}{row.seconds:9.1f}{row.cpu_seconds:8.1f}{row.start_cpu_seconds:8.1f}"
            f"{row.records_per_cpu_second:16,.0f}{row.megabytes_per_cpu_second:10.0f}{row.ratio:8.2f}"
        )


def main() -> int:
    """Run the table with other sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, help="an existing directory for the logs of both brokers")
    given = parser.parse_args()
    show(run(given.records, given.bytes, given.rounds, given.data_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main())
