"""A long-running broker: its resources do not grow with the work done.

The unit is a round of work, not a time: records are produced and read by a group, segments roll, are compacted and
deleted, a topic is created and deleted, connections are opened and closed. After each round the broker returns to its
former numbers of files and tasks, and to about its former memory. A background task always checks for data to delete or
compact, so the minimum of many samples counts.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.request import urlopen

import pytest
import trio

import triokafka
from tests.support.abuse import resident_bytes
from tests.support.broker_process import BrokerProcess
from triokafka import NewTopic
from triokafka.structs import TopicPartition

_SETTINGS = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_SEGMENT = {"segment.bytes": str(1 << 20)}
_COMPACTED = {**_SEGMENT, "cleanup.policy": "compact,delete"}
_PARTITIONS = [TopicPartition(topic, number) for topic in ("plain", "compacted") for number in range(2)]
_RECORDS = 1_500
_ROUND_BYTES = len(_PARTITIONS) * _RECORDS * 1_000
"""What a round writes."""
_MOST_SECONDS = 30.0
"""How long a broker may take to come to rest after a round."""
_LOOKS = 50
"""How often one looks for the least that it holds, to begin with."""


class BrokerUnderLoad:
    """A broker process, and the rounds of its clients."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._address = broker.bootstrap
        self.rounds = 0

    async def prepare(self) -> None:
        """Create the topics."""
        async with triokafka.AdminClient(bootstrap_servers=self._address) as admin:
            await admin.create_topics([NewTopic("plain", 2, 1, _SEGMENT), NewTopic("compacted", 2, 1, _COMPACTED)])

    async def round(self) -> None:
        """Run one round of work with new clients."""
        self.rounds += 1
        values = [b"%08d" % number + bytes(1_000) for number in range(_RECORDS)]
        keys = [b"k%d" % (number % 50) for number in range(_RECORDS)]
        async with triokafka.Producer(bootstrap_servers=self._address, linger_ms=0) as producer:
            for tp in _PARTITIONS:
                await (await producer.send_many(tp.topic, values, keys=keys, partition=tp.partition))
            for _ in range(50):
                await (await producer.send("plain", b"one", partition=0))
        async with triokafka.Consumer(
            "plain", bootstrap_servers=self._address, group_id="soaked", auto_offset_reset="earliest"
        ) as consumer:
            read = 0
            while read < 2 * _RECORDS + 50:
                read += sum(map(len, (await consumer.poll(timeout_ms=1_000)).values()))
            await consumer.commit()
        async with triokafka.AdminClient(bootstrap_servers=self._address) as admin:
            await admin.create_topics([NewTopic(f"passing-{self.rounds}", 5, 1)])
            await admin.delete_topics([f"passing-{self.rounds}"])
            await admin.delete_records(dict.fromkeys(_PARTITIONS, -1))

    def resources(self) -> tuple[int, int]:
        """Return the numbers of open files and connections, and of tasks."""
        with urlopen(f"http://{self._broker.control}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        tasks = next(int(float(line.split()[1])) for line in lines if line.startswith("triokafka_tasks "))
        return len(os.listdir(f"/proc/{self._broker.pid}/fd")), tasks

    def least_resources(self) -> tuple[int, int]:
        """Return the fewest files and the fewest tasks of many samples."""
        files, tasks = zip(*(self.resources() for _ in range(_LOOKS)), strict=True)
        return min(files), min(tasks)

    async def wait_to_return_to(self, files: int, tasks: int) -> None:
        """Wait until the broker uses no more than that, plus one of each for work in progress.

        Raises AssertionError with the present numbers if it does not return to them.
        """
        least = self.resources()
        with trio.move_on_after(_MOST_SECONDS):
            while least[0] > files + 1 or least[1] > tasks + 1:
                await trio.lowlevel.checkpoint()
                now = self.resources()
                least = min(least[0], now[0]), min(least[1], now[1])
        assert least[0] <= files + 1, f"{least[0]} files after {self.rounds} rounds, {files} before"
        assert least[1] <= tasks + 1, f"{least[1]} tasks after {self.rounds} rounds, {tasks} before"


async def soak(broker: BrokerProcess, rounds: int) -> int:
    """Run two rounds to warm up, then so many more; return by how many bytes the broker grew after the first
    of these.
    """
    load = BrokerUnderLoad(broker)
    await load.prepare()
    await load.round()
    await load.round()
    files, tasks = load.least_resources()
    sizes: list[int] = []
    for _ in range(rounds):
        await load.round()
        await load.wait_to_return_to(files, tasks)
        sizes.append(resident_bytes(broker.pid))
    return sizes[-1] - sizes[0]


@pytest.mark.parametrize("rounds", [4, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(0)])])
def test_resources_of_a_broker_do_not_grow_with_its_work(tmp_path: Path, rounds: int) -> None:
    """Files and tasks are the same after each round; memory, too, apart from the allocator's reserves."""
    broker = BrokerProcess(tmp_path, settings=_SETTINGS, controlled=True)
    broker.start()
    try:
        grown = trio.run(soak, broker, rounds)
        assert grown < 2 * _ROUND_BYTES, f"{grown} bytes in {rounds} rounds of {_ROUND_BYTES}"
        assert broker.stop() == 0
    finally:
        broker.close()
