"""Response times of the console for a large cluster: ``python -m benchmarks.console``.

A broker process has many topics and one topic with many messages; the console runs in another process. Each request is
made several times as a browser makes it; the table has the median and the maximum in ms, and the processor time that
console and broker took for one request, which other programs on the machine do not change. The very first request is
shown separately.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

import triokafka
from benchmarks.processes import cpu_seconds

_TIMES: Final = 7
_MESSAGE: Final = b'{"id": %d, "table": 4, "items": ["two coffees", "a cake"], "total": 12.5}'


@contextmanager
def started(*words: str) -> Iterator[tuple[str, int]]:
    """Run a command of triokafka; yield the address in its first line, and its process id."""
    with subprocess.Popen([sys.executable, "-m", "triokafka", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.terminate()


async def fill(address: str, topics: int, messages: int) -> None:
    """Create the topics, and write the messages into the first one."""
    names = [f"topic-{number:05}" for number in range(topics)]
    async with triokafka.AdminClient(bootstrap_servers=address, default_api_timeout_ms=300_000) as admin:
        for at in range(0, topics, 500):
            await admin.create_topics([triokafka.NewTopic(name, 1) for name in names[at : at + 500]])
    async with triokafka.Producer(bootstrap_servers=address, batch_size=1 << 18) as producer:
        for at in range(0, messages, 10_000):
            values = [_MESSAGE % number for number in range(at, min(at + 10_000, messages))]
            await producer.send_many(names[0], values)
        await producer.flush()


def taken(url: str) -> tuple[float, int]:
    """Return the milliseconds of a request and the bytes of its response."""
    begin = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        data = answer.read()
    return (time.perf_counter() - begin) * 1_000, len(data)


def main() -> None:
    """Print the table, and JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, too")
    given = parser.parse_args()
    middle, last = given.topics // 200, given.topics // 100 - 1
    rows = []
    with started("broker", "--in-memory", "--listen", "127.0.0.1:0") as (address, broker):
        trio.run(fill, address, given.topics, given.messages)
        with started("console", "-b", address, "--listen", "127.0.0.1:0") as (url, console):
            first, _ = taken(f"{url}api/topics")
            print(f"{given.topics:,} topics, {given.messages:,} messages; the first list took {first:.0f} ms")
            print(f"{'':24}{'median':>10}{'most':>10}{'processor':>11}")
            for name, path in (
                ("list of topics", "topics"),
                ("page in the middle", f"topics?page={middle}"),
                ("last page", f"topics?page={last}"),
                ("topics by name", "topics?text=0099"),
                ("only with problems", "topics?problems=1"),
                ("overview", "overview"),
                ("one topic", "topics/topic-00000"),
                ("newest 50 messages", "topics/topic-00000/messages"),
                ("offset in the middle", f"topics/topic-00000/messages?start={given.messages // 2}"),
                ("content, oldest first", "topics/topic-00000/messages?start=oldest&text=99999"),
                ("metrics", "metrics"),
            ):
                before = cpu_seconds(console) + cpu_seconds(broker)
                found = [taken(f"{url}api/{path}") for _ in range(_TIMES)]
                processor = (cpu_seconds(console) + cpu_seconds(broker) - before) * 1_000 / _TIMES
                times = [one for one, _ in found]
                rows.append(
                    {
                        "request": name,
                        "median_ms": statistics.median(times),
                        "most_ms": max(times),
                        "processor_ms": processor,
                        "bytes": found[0][1],
                    }
                )
                print(
                    f"{name:24}{statistics.median(times):10.1f}{max(times):10.1f}{processor:11.1f} ms"
                    f"{found[0][1]:12,} bytes",
                    flush=True,
                )
    if given.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
